//! Runs of the paper's flows over its networks, in virtual time. The experiments of this folder call it.
//! Invariant: the arguments of a run determine its result.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidewire_model::fairness::{Allocation, NoFairShare, jain};
use tidewire_proto::config::Config;
use tidewire_proto::profile::{Profile, STREAM, pipeline};
use tidewire_proto::rate::RateControl;
use tidewire_proto::redundancy::{Answer, PipelineBlocks, Ratio, Redundancy};
use tidewire_proto::stats::DelayHistogram;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::{Capacity, Loss, Queue};
use tidewire_sim::load::Flow;
use tidewire_sim::network::topology::{Joint, Node, Role, Topology};
use tidewire_sim::network::{Batch, Carrier, Content, Control, FlowPlan, Network, Plan, Report, TunnelPlan};
use tidewire_sim::pair::End;
use tidewire_units::{Probability, Rate};

/// What carries the coded flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum System {
    /// The paper's: a code below TCP without a rate control of its own, and no answer to losses.
    Paper,
    /// The paper's with batch coding: as many packets as a generation has wait for each other before they are
    /// coded.
    Batch,
    /// The same redundancy in a tunnel with its usual rate control.
    Controlled,
    /// The tunnel as it is by default. The redundancy of the figure does not apply.
    Default,
    /// The code of the paper with a rule that computes R from the measured loss, without or with the tunnel's
    /// rate control.
    Rule(Ratio, RateControl),
    /// No TCP: a connection of ours with one stream. The generation and redundancy of the figure do not
    /// apply.
    Ours(Profile),
}

/// Flows over a network: the first `coded` ones run through a tunnel each, or are connections of ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub flows: usize,
    pub coded: usize,
    pub system: System,
    /// Congestion control of all flows of TCP.
    pub control: Control,
    /// g: symbols of a generation.
    pub generation: u16,
    /// R: packets sent for each source packet.
    pub redundancy: f64,
    /// p: the share of the packets that the bottleneck loses, in both directions.
    pub loss: f64,
    /// Rate of each link, which the paper does not state.
    pub mbit: u64,
    /// Delay of each link.
    pub delay: Duration,
    /// The queue of each link in packets of 1,500 bytes, which the paper does not state.
    pub queue: u64,
    pub seconds: u64,
    /// Runs whose mean is taken, each with a seed of its own.
    pub seeds: u64,
}

impl Setting {
    /// The same network and flows, none of them coded. It is the same for all settings that differ in what
    /// such flows do not depend on, so that it runs once.
    pub fn without_code(self) -> Self {
        Self { coded: 0, system: System::Default, generation: 1, redundancy: 1.0, ..self }
    }
}

/// The seed of the first run.
pub(super) const SEED: u64 = 1;
/// How long a batch that is not whole waits for another packet. The paper names no batch coding in detail.
/// Chosen: the most that a packet of [`paced`] waits for the next one, ten times over.
const BATCH_PAUSE: Duration = Duration::from_millis(20);
/// The rate of the flow of [`paced`] in bytes per second: 6 Mbit/s, an eighth of the link.
const PACED_RATE: u64 = 750_000;
/// What a segment in a tunnel carries (`docs/tunnel.md`), so that each record is one packet.
const PACED_RECORD: u64 = 1_368;
/// More bytes than any run carries.
const ENDLESS: u64 = 1 << 40;

/// The mean throughputs of a setting over all seeds, in Mbit/s.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Of each flow.
    pub flows: Vec<f64>,
    /// Of a flow if none is coded, x'.
    pub alone: f64,
    coded: usize,
}

impl Measured {
    /// Runs a setting, and the same one without coded flows.
    pub fn of(setting: Setting) -> Self {
        Self::new(setting, mean(setting), &mean(setting.without_code()))
    }

    /// `flows` are the throughputs of the setting, and `without` those of [`Setting::without_code`].
    pub fn new(setting: Setting, flows: Vec<f64>, without: &[f64]) -> Self {
        let alone = without.iter().sum::<f64>() / without.len() as f64;
        Self { flows, alone, coded: setting.coded }
    }

    /// Mean of the coded flows.
    pub fn coded(&self) -> f64 {
        self.flows[..self.coded].iter().sum::<f64>() / self.coded as f64
    }

    /// Mean of the others.
    pub fn uncoded(&self) -> f64 {
        self.flows[self.coded..].iter().sum::<f64>() / (self.flows.len() - self.coded) as f64
    }

    /// All flows together.
    pub fn total(&self) -> f64 {
        self.flows.iter().sum()
    }

    /// Jain's index.
    pub fn jain(&self) -> f64 {
        jain(&self.flows).unwrap_or_default()
    }

    /// The throughputs beside the fair ones.
    pub fn allocation(&self) -> Result<Allocation, NoFairShare> {
        Allocation::new(&self.flows, self.coded, self.alone)
    }
}

/// The throughputs of settings that ran in this process: several figures have the same points.
static RAN: Mutex<BTreeMap<String, Vec<f64>>> = Mutex::new(BTreeMap::new());

/// The mean throughput of each flow over all seeds, in Mbit/s.
///
/// # Panics
/// Panics if a tunnel failed or delivered a wrong byte.
fn mean(setting: Setting) -> Vec<f64> {
    let key = format!("{setting:?}");
    let ran = || RAN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = ran().get(&key) {
        return known.clone();
    }
    let mut flows = vec![0.0; setting.flows];
    for seed in SEED..SEED + setting.seeds {
        let report = Network::new(&cross(setting, seed)).run();
        let errors: Vec<_> = report.tunnels.iter().flat_map(|tunnel| &tunnel.errors).collect();
        assert!(errors.is_empty(), "a fault of the simulated tunnel, {setting:?}: {errors:?}");
        let errors: Vec<_> = report.flows.iter().flat_map(|flow| &flow.errors).collect();
        assert!(errors.is_empty(), "a fault of a simulated flow, {setting:?}: {errors:?}");
        let throughputs = throughputs(&report);
        flows.iter_mut().zip(throughputs).for_each(|(sum, one)| *sum += one / setting.seeds as f64);
    }
    ran().insert(key, flows.clone());
    flows
}

/// The goodput of each flow in Mbit/s.
pub(super) fn throughputs(report: &Report) -> Vec<f64> {
    report.flows.iter().map(|flow| flow.goodput_bps() / 1e6).collect()
}

/// One flow for the time of the setting over the line of Figure 1, coded or not, without losses.
pub(super) fn on_a_line(setting: Setting) -> Report {
    let names = [("a", Role::Host), ("r", Role::Router), ("q", Role::Router), ("b", Role::Host)];
    let fast = Setting { mbit: 10 * setting.mbit, ..setting };
    let links = [(0, 1, fast), (1, 2, setting), (2, 3, fast)];
    let mut plan = plan(SEED, &names, &links, setting.seconds);
    plan.sample = Duration::from_millis(50);
    add_flow(&mut plan, setting, [0, 3], setting.coded > 0);
    Network::new(&plan).run()
}

/// The cross of Figure 3: two sources and two destinations, and one link between both routers, which all
/// flows share. The coded flows have the first source and destination. In the paper every link loses packets
/// and every node codes again, so that each link has the redundancy R for its own losses. Here nodes forward
/// only, so one link loses packets.
pub(super) fn cross(setting: Setting, seed: u64) -> Plan {
    let host = Role::Host;
    let names = [("s1", host), ("s2", host), ("r", Role::Router), ("q", Role::Router), ("d1", host), ("d2", host)];
    let clean = Setting { loss: 0.0, ..setting };
    let links = [(0, 2, clean), (1, 2, clean), (2, 3, setting), (3, 4, clean), (3, 5, clean)];
    let mut plan = plan(seed, &names, &links, setting.seconds);
    // Half of the flows have each source, in the run without code too.
    for flow in 0..setting.flows {
        let ends = if 2 * flow < setting.flows { [0, 4] } else { [1, 5] };
        add_flow(&mut plan, setting, ends, flow < setting.coded);
    }
    plan
}

/// One coded flow over the cross that writes a record every 1.8 ms, so that delays are the code's and not
/// those of a queue. Gives the delays of its records.
pub(super) fn paced(setting: Setting) -> DelayHistogram {
    let mut latency = DelayHistogram::default();
    for seed in SEED..SEED + setting.seeds {
        let mut plan = cross(Setting { flows: 1, coded: 1, ..setting }, seed);
        let content = Content::Paced { rate: PACED_RATE, record: PACED_RECORD, bytes: None };
        plan.flows[0].carrier = Carrier::Tcp { control: setting.control, marks: false, content };
        latency.merge(&Network::new(&plan).run().flows[0].latencies.latency);
    }
    latency
}

fn plan(seed: u64, names: &[(&str, Role)], links: &[(usize, usize, Setting)], seconds: u64) -> Plan {
    let nodes = names.iter().map(|&(name, role)| Node { name: name.to_owned(), role }).collect();
    let link = |&(from, to, setting): &(usize, usize, Setting)| {
        let name = format!("{}-{}", names[from].0, names[to].0);
        Joint { name, nodes: [from, to], config: duplex(setting) }
    };
    let topology = Topology { nodes, links: links.iter().map(link).collect() };
    let mut plan = Plan::new(seed, topology).with_seed(seed);
    plan.time = Some(Duration::from_secs(seconds));
    plan
}

fn duplex(setting: Setting) -> DuplexConfig {
    let mut duplex = DuplexConfig::default();
    for side in [&mut duplex.forward, &mut duplex.back] {
        side.delay = setting.delay;
        // No rate of the figures is 0.
        let rate = Rate::from_bits_per_second(setting.mbit * 1_000_000);
        side.capacity = rate.map_or(Capacity::Unlimited, Capacity::Fixed);
        side.queue = Some(Queue::Bytes(setting.queue * 1_500));
        side.loss = Probability::new(setting.loss).filter(|_| setting.loss > 0.0).map_or(Loss::None, Loss::Iid);
    }
    duplex
}

/// Adds a flow without end: of TCP, in a tunnel of its own if it is coded, or a connection of ours.
fn add_flow(plan: &mut Plan, setting: Setting, [from, to]: [usize; 2], is_coded: bool) {
    let ours = if let System::Ours(profile) = setting.system { Some(profile) } else { None };
    let carrier = if let Some(profile) = ours.filter(|_| is_coded) {
        let end = || config(profile);
        Carrier::Ours { ends: Box::new([end(), end()]), streams: vec![Flow::bulk(End::Near, ENDLESS)], via: Vec::new() }
    } else {
        let content = Content::Bulk { bytes: None };
        Carrier::Tcp { control: setting.control, marks: false, content }
    };
    let is_inside = is_coded && ours.is_none();
    if is_inside {
        let coding = coding(setting);
        let (name, config) = (format!("{}", plan.tunnels.len() + 1), Box::new(config(coding)));
        let is_batch = setting.system == System::Batch;
        let batch = is_batch.then(|| Batch { packets: setting.generation.into(), pause: BATCH_PAUSE });
        plan.tunnels.push(TunnelPlan { name, from, to, config, settings: settings(coding), batch });
    }
    let through = is_inside.then(|| plan.tunnels.len() - 1);
    let (name, start) = (format!("{}", plan.flows.len() + 1), Duration::ZERO);
    plan.flows.push(FlowPlan { name, from, to, through, start, carrier });
}

fn config(profile: Profile) -> Config {
    // The settings of the figures fit together; if some did not, the rows would be those of the default.
    Config::builder().profile(profile).build().unwrap_or_default()
}

/// The choices of a tunnel as options of the command, for the lab.
fn settings(coding: Profile) -> Vec<(String, String)> {
    let redundancy = ("redundancy".to_owned(), coding.redundancy.to_string());
    vec![redundancy, ("rate_control".to_owned(), coding.rate_control.to_string())]
}

/// The code of a coded flow. Nothing answers a loss: what a generation lacks is lost for TCP.
fn coding(setting: Setting) -> Profile {
    let ratio = if let System::Rule(ratio, _) = setting.system { ratio } else { Ratio::Fixed(setting.redundancy) };
    let coded = pipeline(PipelineBlocks { symbols: setting.generation, ratio, systematic: false });
    let coded = Profile { redundancy: Redundancy { answer: Answer::Open, ..coded.redundancy }, ..coded };
    match setting.system {
        System::Paper | System::Batch => Profile { rate_control: RateControl::Open, ..coded },
        System::Rule(_, rate_control) => Profile { rate_control, ..coded },
        System::Controlled => coded,
        System::Default => STREAM,
        System::Ours(profile) => profile,
    }
}
