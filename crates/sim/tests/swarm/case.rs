//! A case: the link, two configurations, flows, and the time after which the link's faults end, all derived
//! from a seed.
//!
//! Every feature is switched on or off by its own draw (swarm testing: a run with all features hides what a
//! run with few of them finds). A seed names its generator. A generator never changes, so that a kept seed
//! continues to show what it once found. A new range or feature makes a new generator, which draws for it
//! after everything that the older ones draw, or where they draw nothing.

use core::fmt;
use core::num::ParseIntError;
use core::str::FromStr;
use core::time::Duration;

use tidewire_codec::SplitMix64;
use tidewire_proto::config::Config;
use tidewire_proto::profile::{ARQ, Profile, STREAM, block};
use tidewire_proto::rate::RateControl;
use tidewire_proto::redundancy::Redundancy;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::{Blackout, Capacity, Gilbert, LinkConfig, Loss, Queue, Reorder};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::rebinding::{Rebinding, Rebound};
use tidewire_sim::report::Trial;
use tidewire_units::{Probability, Rate};

use super::{blocks, changing, combinations};

/// Handshake and idle timeouts, longer than any fault.
pub const GIVE_UP: Duration = Duration::from_secs(600);

/// Bytes of a packet of bulk data on the path with the least MTU.
const LEAST_PACKET: f64 = 1_200.0;

/// The generator of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generator {
    /// Links of 0.5 to 200 Mbit/s and 1 to 500 ms. Most seeds have little loss.
    First,
    /// Links of 0.5 to 300 Mbit/s and 0.1 ms to 1.2 s. A third of the seeds with loss lose 30 to 60 %. The
    /// MTU changes during a run, and small records come at high rates.
    Second,
    /// Like the second. A third of the ends send in generations of any length, or of changing length, and
    /// coding jobs leave some connections and return late, in any order.
    Third,
    /// Like the third. A third of the ends send blocks after Sphinx under any of the codes.
    Fourth,
    /// Like the fourth. A third of the ends send blocks after RCDP.
    Fifth,
    /// Like the fifth. A third of the ends send combinations instead of source symbols.
    Sixth,
    /// A client asks for any policy that the sender grants (`asked.rs`).
    Seventh,
    /// The path of bulk data at a high rate and a long round trip changes (`goodput.rs`).
    Eighth,
    /// Many clients of one server, on hosts that are slow (`hosts.rs`).
    Ninth,
}

/// The name of a case, in text `GENERATOR:NUMBER`; a number alone is one of the first generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seed(pub Generator, pub u64);

impl Seed {
    /// The initial state of the case's randomness. Equal numbers of two generators have nothing in common.
    pub fn state(self) -> u64 {
        match self.0 {
            Generator::First => self.1,
            // Any odd factor gives each number a different value. This one is SplitMix64's.
            Generator::Second => self.1.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ 0x0002_0000_0000_0000,
            Generator::Third => self.1.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ 0x0003_0000_0000_0000,
            Generator::Fourth => self.1.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ 0x0004_0000_0000_0000,
            Generator::Fifth => self.1.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ 0x0005_0000_0000_0000,
            Generator::Sixth => self.1.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ 0x0006_0000_0000_0000,
            Generator::Seventh => self.1.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ 0x0007_0000_0000_0000,
            Generator::Eighth => self.1.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ 0x0008_0000_0000_0000,
            Generator::Ninth => self.1.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ 0x0009_0000_0000_0000,
        }
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0 as u8 + 1, self.1)
    }
}

impl FromStr for Seed {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        match text.split_once(':') {
            Some(("3", number)) => Ok(Self(Generator::Third, number.parse()?)),
            Some(("4", number)) => Ok(Self(Generator::Fourth, number.parse()?)),
            Some(("5", number)) => Ok(Self(Generator::Fifth, number.parse()?)),
            Some(("6", number)) => Ok(Self(Generator::Sixth, number.parse()?)),
            Some(("7", number)) => Ok(Self(Generator::Seventh, number.parse()?)),
            Some(("8", number)) => Ok(Self(Generator::Eighth, number.parse()?)),
            Some(("9", number)) => Ok(Self(Generator::Ninth, number.parse()?)),
            Some(("2", number)) => Ok(Self(Generator::Second, number.parse()?)),
            Some(("1", number)) => Ok(Self(Generator::First, number.parse()?)),
            _ => Ok(Self(Generator::First, text.parse()?)),
        }
    }
}

/// From now on IP packets longer than this are lost in one or both directions.
#[derive(Clone, Copy, Debug)]
pub struct MtuChange {
    pub at: Duration,
    pub forward: bool,
    pub back: bool,
    pub mtu: usize,
}

/// A case derived from a seed.
#[derive(Debug)]
pub struct Case {
    pub trial: Trial,
    /// In the order of time, none later than the faults.
    pub mtu_changes: Vec<MtuChange>,
    /// When the faults of the link end.
    pub faults: Duration,
    /// Loss of the direction with more data.
    pub loss: f64,
    /// Bits per second of the link.
    pub rate: f64,
    /// A round trip with full queues and all random delay.
    pub longest_rtt: Duration,
}

impl Case {
    pub fn new(seed: Seed) -> Self {
        let second = seed.0 >= Generator::Second;
        let draw = &mut Draw(SplitMix64::new(seed.state()));
        let rate = draw.log(0.5e6, if second { 300e6 } else { 200e6 });
        let rtt = Duration::from_secs_f64(if second { draw.log(0.0001, 1.2) } else { draw.log(0.001, 0.5) });
        let queue = rate / 8.0 * rtt.as_secs_f64() * draw.real(0.3, 2.0) + 1_500.0 * draw.real(10.0, 40.0);
        let loss = match draw.chance(0.7) {
            true if second && draw.chance(1.0 / 3.0) => draw.real(0.3, 0.6),
            true => draw.skewed(0.05, 0.6),
            false => draw.skewed(0.0, 0.05),
        };
        let other_loss = if draw.chance(0.6) { draw.skewed(0.0, 0.6) } else { 0.0 };
        let mut shared = LinkConfig::default();
        shared.capacity = Capacity::Fixed(Rate::from_bits_per_second(rate as u64).expect("half a megabit at least"));
        shared.queue = Some(Queue::Bytes(queue as u64));
        faults(draw, rtt, &mut shared);

        // Small records and long fat links cost more per byte, so a run with less work takes as long as
        // before.
        let work = if second { 0.45 } else { 1.0 };
        let flows =
            if second && draw.chance(0.3) { small_records(draw, rate, loss) } else { flows(draw, rate, loss, work) };
        let bytes = |end| flows.iter().filter(|flow| flow.from == end).map(|flow| flow.bytes).sum::<u64>();
        let (near, far) = (bytes(End::Near), bytes(End::Far));
        let produced = flows.iter().filter_map(|flow| Some(flow.bytes as f64 / flow.rate? as f64)).fold(0.0, f64::max);
        let mut link = DuplexConfig::symmetric(shared);
        let (there, back) = if near >= far { (loss, other_loss) } else { (other_loss, loss) };
        (link.forward.loss, link.back.loss) = (loss_model(draw, there), loss_model(draw, back));
        link.set_rtt(rtt);
        link.set_seed(seed.state());

        let mut trial = Trial::new(link, flows, seed.state());
        (trial.near, trial.far) = (config(draw, rate), config(draw, rate));
        trial.limit = Duration::from_secs(3_600);
        let ideal = near.max(far) as f64 * 8.0 / rate / (1.0 - loss) + rtt.as_secs_f64();
        let ideal = if second { ideal.max(produced) } else { ideal };
        let faults = Duration::from_secs_f64(ideal * draw.real(0.3, 1.5));
        let wait = queue * 8.0 / rate * 2.0;
        trial.rebinding = draw.chance(0.2).then(|| rebinding(draw, rtt));
        // Only this finds an end that is not told about its new address and has nothing to send.
        trial.near = trial
            .near
            .to_builder()
            .keep_alive(trial.rebinding.map(|_| Duration::from_secs(1)))
            .build()
            .expect("in range");
        for config in [&mut trial.near, &mut trial.far] {
            if draw.chance(0.15) {
                *config = config.to_builder().packets_per_key(100).build().expect("in range");
            }
        }
        let mtu_changes = if second && draw.chance(0.3) { mtu_changes(draw, faults) } else { Vec::new() };
        let random = trial.link.forward.jitter * 2 + trial.link.forward.reorder.by * 2;
        if seed.0 >= Generator::Third {
            generations(draw, &mut trial, rtt);
        }
        if seed.0 >= Generator::Fourth {
            blocks::choose(draw, &mut trial, loss.max(other_loss));
        }
        if seed.0 >= Generator::Fifth {
            blocks::choose_rcdp(draw, &mut trial, (rate / 8.0 * rtt.as_secs_f64() + queue) / LEAST_PACKET);
        }
        if seed.0 >= Generator::Sixth {
            combinations::choose(draw, &mut trial);
        }
        // The credit of a lane continues when the result of a job is there.
        let late = trial.jobs.unwrap_or_default();
        let longest_rtt = rtt + Duration::from_secs_f64(wait) + random + late;
        Self { trial, mtu_changes, faults, loss, rate, longest_rtt }
    }

    /// The configuration of one end.
    pub fn config(&self, end: End) -> &Config {
        if end == End::Near { &self.trial.near } else { &self.trial.far }
    }

    /// Whether all bytes go in one direction, at once, to a reader that takes them.
    pub fn is_bulk(&self) -> bool {
        let plain = |flow: &Flow| flow.rate.is_none() && flow.reads.is_none() && flow.deaf.is_zero();
        self.trial.flows.iter().all(|flow| plain(flow) && flow.from == self.trial.flows[0].from)
    }
}

fn faults(draw: &mut Draw, rtt: Duration, link: &mut LinkConfig) {
    if draw.chance(0.4) {
        link.jitter = rtt.mul_f64(draw.real(0.0, 0.5));
    }
    if draw.chance(0.4) {
        link.reorder = Reorder { probability: draw.probability(0.1), by: rtt.mul_f64(draw.real(0.0, 0.5)) };
    }
    if draw.chance(0.3) {
        link.duplicate = draw.probability(0.2);
    }
    if draw.chance(0.3) {
        link.corrupt = draw.probability(0.05);
    }
    if draw.chance(0.3) {
        link.blackouts = vec![blackout(draw)];
    }
    if draw.chance(0.4) {
        // From IPv4 packets with the least UDP payload that a path must carry, 1,200 bytes, to a whole
        // Ethernet frame.
        link.mtu = Some(draw.real(1_228.0, 1_501.0) as usize);
    }
}

/// One to four changes, in one direction or both, each within the range of the faults.
fn mtu_changes(draw: &mut Draw, faults: Duration) -> Vec<MtuChange> {
    let count = 1 + draw.below(4);
    let mut changes: Vec<MtuChange> = (0..count)
        .map(|_| {
            let way = draw.below(4);
            let at = faults.mul_f64(draw.real(0.0, 1.0));
            MtuChange { at, forward: way != 0, back: way != 1, mtu: draw.real(1_228.0, 1_501.0) as usize }
        })
        .collect();
    changes.sort_by_key(|change| change.at);
    changes
}

fn blackout(draw: &mut Draw) -> Blackout {
    let start = Duration::from_secs_f64(draw.log(0.01, 10.0));
    let length = Duration::from_secs_f64(draw.log(0.01, 5.0));
    let blackout = if draw.chance(0.5) {
        Blackout::once(start, start + length)
    } else {
        Blackout::periodic(start, start + length, length.mul_f64(draw.real(2.0, 20.0)))
    };
    blackout.expect("it ends after its start")
}

/// Not so often that the far end could never find the near one.
fn rebinding(draw: &mut Draw, rtt: Duration) -> Rebinding {
    let what = [Rebound::Port, Rebound::Host, Rebound::Roams][draw.below(3) as usize];
    Rebinding { what, every: Duration::from_secs_f64(draw.log(1.0, 20.0)).max(rtt * 20) }
}

pub fn loss_model(draw: &mut Draw, loss: f64) -> Loss {
    let probability = Probability::new(loss).expect("a share");
    if loss == 0.0 {
        return Loss::None;
    }
    if draw.chance(0.5) {
        return Loss::Iid(probability);
    }
    let least = (loss / (1.0 - loss)).max(1.0);
    Loss::Gilbert(Gilbert::new(probability, least + draw.real(0.0, 8.0)).expect("longer than the least burst"))
}

fn config(draw: &mut Draw, rate: f64) -> Config {
    // No fault of a case lasts so long that a connection may give up, so every seed must survive.
    let config = Config::builder().idle_timeout(GIVE_UP).handshake_timeout(GIVE_UP);
    let mut config = config.profile(match draw.below(6) {
        0 => ARQ,
        1 => Profile { redundancy: Redundancy::every(draw.log(1.5, 30.0)), ..STREAM },
        2 => {
            let k = 1 + draw.below(64) as u16;
            block(k, draw.below(u64::from(k) / 2 + 2) as u16)
        }
        _ => STREAM,
    });
    if draw.chance(0.15) {
        let bits_per_second = (rate * draw.real(0.5, 0.95)) as u64;
        config = config.rate_control(RateControl::Fixed { bits_per_second });
    }
    if draw.chance(0.2) {
        config = config.max_overhead(draw.real(0.0, 1.0));
    }
    if draw.chance(0.2) {
        config = config.max_span(1 + draw.below(64) as u16);
    }
    if draw.chance(0.2) {
        config = config.ring_memory(1 << 20);
    }
    if draw.chance(0.2) {
        config = config.stream_window(2_048 + draw.below(60_000));
    }
    config.build().expect("in range")
}

/// Lanes in generations, and jobs that leave their connections.
fn generations(draw: &mut Draw, trial: &mut Trial, rtt: Duration) {
    for config in [&mut trial.near, &mut trial.far] {
        let (mut changed, rate_control) = (config.to_builder(), config.profile().rate_control);
        match draw.below(6) {
            0 => {
                let k = 2 + draw.below(300) as u16;
                let profile = block(k, draw.below(u64::from(k) / 2 + 2) as u16);
                changed = changed.profile(Profile { rate_control, ..profile });
            }
            1 => changed = changed.profile(Profile { rate_control, ..changing::profile(draw.below(1 << 32) as f64) }),
            _ => {}
        }
        if draw.chance(0.6) {
            changed = changed.workers(1).inline_products(draw.log(1.0, 1e6) as usize);
        }
        *config = changed.build().expect("in range");
    }
    trial.jobs = draw.chance(0.7).then(|| Duration::from_millis(1) + rtt.mul_f64(draw.real(0.0, 1.5)));
}

/// One large flow, and up to five more of any kind. One in three seeds has nothing but bulk one way.
fn flows(draw: &mut Draw, rate: f64, loss: f64, work: f64) -> Vec<Flow> {
    // Shorter if more is lost, so that all seeds cost about the same.
    let bytes = draw.real(2_500_000.0, 23_000_000.0) * (1.0 - loss) * work;
    let main = if draw.chance(0.3) { End::Far } else { End::Near };
    let mut flows = vec![Flow::bulk(main, bytes as u64)];
    let seconds = bytes * 8.0 / rate;
    let one_way = draw.chance(0.33);
    for _ in 0..draw.below(6) {
        let from = if one_way || draw.chance(0.5) { main } else { main.other() };
        let mut flow = Flow::bulk(from, draw.log(1.0, bytes * 0.3) as u64);
        if !one_way && draw.chance(0.4) {
            // Half to all of the time of the large flow.
            flow.rate = Some((flow.bytes as f64 / seconds * draw.real(1.0, 2.0)) as u64 + 1);
            flow.record = 1 + draw.below(5_000);
        }
        if draw.chance(0.3) {
            flow.start = Duration::from_secs_f64(seconds * draw.real(0.0, 0.8));
        }
        flows.push(flow);
    }
    if !one_way && let Some(slow) = flows.get_mut(1) {
        slow.deaf = Duration::from_secs_f64(seconds.min(20.0) * draw.real(0.0, 0.5));
        slow.reads = draw.chance(0.5).then(|| (slow.bytes as f64 / seconds * draw.real(1.0, 3.0)) as u64 + 100);
    }
    flows
}

/// Records of a few bytes at a rate that leaves no room for one packet each, alone or with some bulk beside
/// them.
fn small_records(draw: &mut Draw, rate: f64, loss: f64) -> Vec<Flow> {
    let main = if draw.chance(0.3) { End::Far } else { End::Near };
    let record = draw.log(1.0, 300.0) as u64;
    // At most 40,000 per second, and at most half of what the loss leaves of the link's rate.
    let most = (record as f64 * 40_000.0).min(rate / 8.0 * 0.5 * (1.0 - loss));
    let bytes_per_second = (most * draw.log(0.03, 1.0)).max(1_000.0);
    let bytes = bytes_per_second * draw.log(3.0, 30.0);
    let mut small = Flow::paced(main, bytes.min(4e6) as u64 + 1, bytes_per_second as u64);
    small.record = record;
    let mut flows = vec![small];
    if draw.chance(0.4) {
        let from = if draw.chance(0.7) { main } else { main.other() };
        flows.push(Flow::bulk(from, draw.real(0.1e6, 5e6) as u64));
    }
    flows
}

/// The draws of a seed, which must not change with a library.
#[derive(Debug)]
pub struct Draw(pub SplitMix64);

impl Draw {
    pub fn real(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.0.unit()
    }

    pub fn log(&mut self, from: f64, to: f64) -> f64 {
        self.real(from.ln(), to.ln().max(from.ln())).exp()
    }

    /// Half of the draws are in the lowest quarter of the range.
    fn skewed(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.real(0.0, 1.0).powi(2)
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.real(0.0, 1.0) < probability
    }

    fn probability(&mut self, most: f64) -> Probability {
        Probability::new(self.real(0.0, most)).expect("a share")
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }
}
