//! Runs of a video over the paper's networks, in virtual time. The experiments of this folder call it.
//! Invariant: the arguments of a run determine its result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidewire_figures::ascending;
use tidewire_proto::codel::CodelConfig;
use tidewire_proto::config::Config;
use tidewire_proto::profile::{Profile, bucket};
use tidewire_proto::redundancy::{Answer, BucketBlocks, Redundancy};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::{Arq, Capacity, Discipline, Loss, Queue};
use tidewire_sim::network::topology::{Joint, Node, Role, Topology};
use tidewire_sim::network::{Arrival, Buckets, Carrier, Content, Control, FlowPlan, Network, Plan, TunnelPlan, jitter};
use tidewire_sim::tcp::bucket::{Coding, Confirms, Rule};
use tidewire_sim::video::{Frame, FrameTrace, FrameTraceError, Matched, OnOff, Synthetic, Video};
use tidewire_units::{Probability, Rate};

use super::nodes::{self, Place};

/// What carries the video.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum System {
    /// NewReno alone.
    Tcp,
    /// NewReno over buckets.
    Coded(Coding),
    /// NewReno in a tunnel of ours whose lane has buckets. Feedback repairs them, or not.
    Tunnel(BucketBlocks, Answer),
}

/// What the video is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Load {
    /// Video of a variable bit rate (Table 1): the packets of a frame come together.
    Vbr,
    /// The on-off source of section 3.2: packets come one by one, and pause.
    OnOff,
    /// Frames with the figures of Table 3.
    Trace,
    /// 25 small pictures a second, and in place of one of them every three seconds a large one of 70
    /// segments.
    Pictures,
}

/// A run: who carries what over which links.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub place: Place,
    pub system: System,
    pub load: Load,
    /// Share of the packets that each hop loses.
    pub loss: f64,
    /// Whether a hop sends a lost packet again.
    pub arq: bool,
    /// Rate of the channel that all links share.
    pub mbit: u64,
    /// Whether the queues drop by CoDel.
    pub codel: bool,
    pub seconds: u64,
}

/// Delay of each hop besides its transmission. Chosen: radio waves need no time, nodes a little.
const DELAY: Duration = Duration::from_micros(500);
/// Packets of a queue. Chosen: the default of ns-3's drop-tail queue.
const QUEUE: u64 = 100;
/// Repetitions on a hop and the time to the next one, where a hop sends again: 802.11's seven, and a chosen
/// mean of its waiting times.
const ARQ: Arq = Arq { retries: 7, delay: Duration::from_micros(500), in_order: true };
/// Seeds of each point, whose arrivals count together.
pub(super) const SEEDS: [u64; 3] = [1, 2, 3];
/// What counts as start. Chosen: slow start and what it loses are over.
pub(super) const START: Duration = Duration::from_secs(5);

/// Largest packet of the application (Table 1).
const PACKET: u32 = 1_472;
/// Bytes of a large picture: 70 segments, more than the largest cap. And of a small one: one segment.
const PICTURE: u32 = 100_000;
const SMALL_PICTURE: u32 = 500;

/// The variable bucket of the paper, with this Gamma.
pub(super) fn variable(gamma: f64) -> System {
    System::Coded(Coding { rule: Rule::Right, cap: 15, gamma, confirms: Confirms::Degrees })
}

/// The fixed bucket of this size.
pub(super) fn fixed(cap: u16, gamma: f64) -> System {
    System::Coded(Coding { rule: Rule::Fixed, cap, gamma, confirms: Confirms::Degrees })
}

/// A tunnel of buckets.
pub(super) fn tunnel(cap: u16, gamma: f64, is_fixed: bool, is_answered: bool) -> System {
    let answer = if is_answered { Answer::Deficit } else { Answer::Open };
    System::Tunnel(BucketBlocks { cap, gamma, is_fixed }, answer)
}

/// Results of one seed.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub arrivals: Vec<Arrival>,
    /// Packets or frames that the application made.
    pub made: usize,
    /// Window in segments over time in seconds.
    pub window: Vec<(f64, f64)>,
    pub buckets: Buckets,
    /// Packets that the queues dropped.
    pub dropped: u64,
    pub lost: u64,
}

impl Outcome {
    /// Latencies in milliseconds of what was made from `since` on.
    pub fn latencies(&self, since: Duration) -> Vec<f64> {
        self.arrivals.iter().filter(|arrival| arrival.made >= since).map(|arrival| ms(arrival.latency)).collect()
    }

    /// Jitters in milliseconds, with the time of the second of two arrivals in seconds.
    pub fn jitters(&self) -> Vec<(f64, f64)> {
        let pairs = self.arrivals.windows(2);
        pairs.map(|pair| (pair[1].made.as_secs_f64(), ms(jitter(pair[0].latency, pair[1].latency)))).collect()
    }
}

/// A duration in milliseconds.
pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The value that a share `q` of all does not exceed; 0 if there are none.
pub(super) fn quantile(values: &[f64], q: f64) -> f64 {
    tidewire_figures::quantile(&ascending(values.iter().copied()), q).unwrap_or(0.0)
}

/// Outcomes of settings and seeds that ran in this process: several figures have the same runs.
static RAN: Mutex<BTreeMap<String, Arc<Outcome>>> = Mutex::new(BTreeMap::new());

/// Runs a setting with one seed.
///
/// # Panics
/// Panics if a byte was delivered that was not the one that was sent.
pub(super) fn run(setting: Setting, seed: u64) -> Arc<Outcome> {
    let key = format!("{setting:?} {seed}");
    let ran = || RAN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = ran().get(&key) {
        return known.clone();
    }
    let trace = trace(setting, seed);
    let made = trace.frames().len();
    let report = Network::new(&plan(setting, trace, seed)).run();
    let mut flows = report.flows;
    let video = flows.remove(0);
    assert!(video.errors.is_empty(), "a fault of the simulated code, {setting:?}: {:?}", video.errors);
    let of_links = |count: fn(&tidewire_sim::link::LinkStats) -> u64| {
        report.links.iter().flat_map(|link| &link.stats).map(count).sum::<u64>()
    };
    let outcome = Arc::new(Outcome {
        arrivals: video.latencies.arrivals,
        made,
        window: video.window.iter().map(|&(at, window)| (at.as_secs_f64(), window)).collect(),
        buckets: video.buckets.map(|buckets| *buckets).unwrap_or_default(),
        dropped: of_links(|stats| stats.queue_dropped + stats.codel_dropped),
        lost: of_links(|stats| stats.lost),
    });
    ran().insert(key, outcome.clone());
    outcome
}

/// The packets or frames of the video.
fn trace(setting: Setting, seed: u64) -> FrameTrace {
    let duration = Duration::from_secs(setting.seconds);
    let trace = match setting.load {
        Load::Vbr => frames(seed, duration),
        Load::OnOff => OnOff {
            bits_per_second: 1_000_000,
            bytes: [512, PACKET],
            on_off: [Duration::from_millis(600), Duration::from_millis(400)],
            seed,
        }
        .trace(duration),
        Load::Trace => {
            let frames_per_second = 25;
            Matched { mean: 2_900, least_most: [158, 22_239], frames_per_second, seed }
                .trace(frames_per_second * setting.seconds as u32)
        }
        Load::Pictures => {
            let bytes = |number| if number % (3 * 25) == 0 { PICTURE } else { SMALL_PICTURE };
            let picture = |number| Frame { at: Duration::from_millis(40) * number, bytes: bytes(number) };
            FrameTrace::new((0..25 * setting.seconds as u32).map(picture))
        }
    };
    trace.unwrap_or_else(|error| panic!("no trace of {setting:?}: {error}"))
}

/// Frames of 1 Mbit/s, 25 a second, each cut into packets of at most 1,472 bytes (Table 1).
fn frames(seed: u64, duration: Duration) -> Result<FrameTrace, FrameTraceError> {
    let video = Synthetic { frames_per_second: 25, group: 12, variation: 0.5, ..Synthetic::new(1_000_000, seed) };
    let whole = video.trace(duration).unwrap_or_else(|error| panic!("no video of 1 Mbit/s: {error}"));
    let parts = whole.frames().iter().flat_map(|frame| {
        let offsets = (0..frame.bytes).step_by(PACKET as usize);
        offsets.map(move |offset| Frame { at: frame.at, bytes: PACKET.min(frame.bytes - offset) })
    });
    FrameTrace::new(parts)
}

fn plan(setting: Setting, trace: FrameTrace, seed: u64) -> Plan {
    let topology = topology(setting);
    let mut plan = Plan::new(seed, topology).with_seed(seed);
    // What was made at the end has time to arrive.
    plan.time = Some(Duration::from_secs(setting.seconds + 5));
    let content = Content::Video { video: Video::live(trace), record: PACKET.into() };
    let carrier = match setting.system {
        System::Tcp | System::Tunnel(..) => Carrier::Tcp { control: Control::NewReno, marks: false, content },
        System::Coded(coding) => Carrier::Bucket { coding, content },
    };
    let [from, to] = setting.place.video();
    let flow = |name: &str, [from, to]: [usize; 2], carrier| FlowPlan {
        name: name.to_owned(),
        from,
        to,
        through: None,
        start: Duration::ZERO,
        carrier,
    };
    let mut video = flow("video", [from, to], carrier);
    if let System::Tunnel(blocks, answer) = setting.system {
        let coded = bucket(blocks);
        let coded = Profile { redundancy: Redundancy { answer, ..coded.redundancy }, ..coded };
        let config = Config::builder().profile(coded).build().unwrap_or_else(|error| panic!("{setting:?}: {error}"));
        let (name, settings) = ("buckets".to_owned(), Vec::new());
        plan.tunnels.push(TunnelPlan { name, from, to, config: Box::new(config), settings, batch: None });
        video.through = Some(0);
    }
    plan.flows.push(video);
    for (name, ends, carrier) in setting.place.cross_traffic() {
        plan.flows.push(flow(name, ends, carrier));
    }
    plan
}

fn topology(setting: Setting) -> Topology {
    let names = 0..setting.place.nodes();
    let nodes = names.map(|n| Node { name: n.to_string(), role: Role::Router }).collect();
    let links = nodes::links(setting.place).into_iter();
    let link =
        |[from, to]: [usize; 2]| Joint { name: format!("{from}-{to}"), nodes: [from, to], config: duplex(setting) };
    Topology { nodes, links: links.map(link).collect() }
}

/// One hop: all links transmit in turn on one channel.
fn duplex(setting: Setting) -> DuplexConfig {
    let mut duplex = DuplexConfig::default();
    for side in [&mut duplex.forward, &mut duplex.back] {
        side.delay = DELAY;
        let rate = Rate::from_bits_per_second(setting.mbit * 1_000_000);
        side.capacity = rate.map_or(Capacity::Unlimited, Capacity::Fixed);
        side.queue = Some(Queue::Bytes(QUEUE * 1_500));
        side.aqm.discipline =
            if setting.codel { Discipline::Codel(CodelConfig::default()) } else { Discipline::DropTail };
        side.loss = Probability::new(setting.loss).filter(|_| setting.loss > 0.0).map_or(Loss::None, Loss::Iid);
        side.mac.medium = Some("channel".into());
        side.mac.arq = setting.arq.then_some(ARQ);
    }
    duplex
}
