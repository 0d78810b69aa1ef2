//! What one seed stands for: a link, two configurations, flows and the time after which the link's faults end.
//!
//! Every feature is on or off by a draw of its own (swarm testing: a run with all features on hides what a run with few of
//! them finds). The ranges are those of the project's reliability goals.

use core::time::Duration;

use tidewire_proto::config::Config;
use tidewire_proto::rate::RateControl;
use tidewire_proto::redundancy::Redundancy;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::{Blackout, Capacity, Gilbert, LinkConfig, Loss, Queue, Reorder};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::rebinding::{Rebinding, Rebound};
use tidewire_sim::report::Trial;
use tidewire_sim::units::{Probability, Rate};

/// Handshake and idle timeouts: beyond any fault.
const GIVE_UP: Duration = Duration::from_secs(600);

/// A seed, unfolded.
#[derive(Debug)]
pub struct Case {
    pub trial: Trial,
    /// When the link becomes calm.
    pub faults: Duration,
    /// Loss of the direction with more data.
    pub loss: f64,
    /// Bits per second of the link.
    pub rate: f64,
    /// A round trip with full queues and all random delay.
    pub longest_rtt: Duration,
}

impl Case {
    pub fn new(seed: u64) -> Self {
        let draw = &mut Draw(seed);
        let rate = draw.log(0.5e6, 200e6);
        let rtt = Duration::from_secs_f64(draw.log(0.001, 0.5));
        let queue = rate / 8.0 * rtt.as_secs_f64() * draw.real(0.3, 2.0) + 1_500.0 * draw.real(10.0, 40.0);
        let loss = if draw.chance(0.7) { draw.skewed(0.05, 0.6) } else { draw.skewed(0.0, 0.05) };
        let other_loss = if draw.chance(0.6) { draw.skewed(0.0, 0.6) } else { 0.0 };
        let mut shared = LinkConfig::default();
        shared.capacity = Capacity::Fixed(Rate::from_bits_per_second(rate as u64).expect("half a megabit at least"));
        shared.queue = Some(Queue::Bytes(queue as u64));
        faults(draw, rtt, &mut shared);

        let flows = flows(draw, rate, loss);
        let bytes = |end| flows.iter().filter(|flow| flow.from == end).map(|flow| flow.bytes).sum::<u64>();
        let (near, far) = (bytes(End::Near), bytes(End::Far));
        let mut link = DuplexConfig::symmetric(shared);
        let (there, back) = if near >= far { (loss, other_loss) } else { (other_loss, loss) };
        (link.forward.loss, link.back.loss) = (loss_model(draw, there), loss_model(draw, back));
        link.set_rtt(rtt);
        link.set_seed(seed);

        let mut trial = Trial::new(link, flows, seed);
        (trial.near, trial.far) = (config(draw, rate), config(draw, rate));
        trial.limit = Duration::from_secs(3_600);
        let ideal = near.max(far) as f64 * 8.0 / rate / (1.0 - loss) + rtt.as_secs_f64();
        let faults = Duration::from_secs_f64(ideal * draw.real(0.3, 1.5));
        let wait = queue * 8.0 / rate * 2.0;
        trial.rebinding = draw.chance(0.2).then(|| rebinding(draw, rtt));
        // Who is not told of its new address and has nothing to say is found by this alone.
        trial.near.keep_alive = trial.rebinding.map(|_| Duration::from_secs(1));
        for config in [&mut trial.near, &mut trial.far] {
            if draw.chance(0.15) {
                config.packets_per_key = 100;
            }
        }
        let random = trial.link.forward.jitter * 2 + trial.link.forward.reorder.by * 2;
        let longest_rtt = rtt + Duration::from_secs_f64(wait) + random;
        Self { trial, faults, loss, rate, longest_rtt }
    }

    /// The redundancy of the end that has more to send.
    pub fn config(&self, end: End) -> &Config {
        if end == End::Near { &self.trial.near } else { &self.trial.far }
    }

    /// All bytes go one way, at once, to a reader that takes them.
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
        // IPv4 packets of the least UDP payload that a path must carry, 1,200 bytes, up to a whole Ethernet frame.
        link.mtu = Some(draw.real(1_228.0, 1_501.0) as usize);
    }
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

/// Not so often that the far end could never find out where the near one is.
fn rebinding(draw: &mut Draw, rtt: Duration) -> Rebinding {
    let what = [Rebound::Port, Rebound::Host, Rebound::Roams][draw.below(3) as usize];
    Rebinding { what, every: Duration::from_secs_f64(draw.log(1.0, 20.0)).max(rtt * 20) }
}

fn loss_model(draw: &mut Draw, loss: f64) -> Loss {
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
    let mut config = Config::default();
    // No fault of a case lasts so long that a connection might rightly give up: every seed must live.
    (config.idle_timeout, config.handshake_timeout) = (GIVE_UP, GIVE_UP);
    config.redundancy = match draw.below(6) {
        0 => Redundancy::None,
        1 => Redundancy::Every { spacing: draw.log(1.5, 30.0), closed_loop: true },
        2 => {
            let k = 1 + draw.below(64) as u16;
            Redundancy::Block { k, r: draw.below(u64::from(k) / 2 + 2) as u16 }
        }
        _ => Redundancy::Adaptive,
    };
    if draw.chance(0.15) {
        config.rate_control = RateControl::Fixed { bits_per_second: (rate * draw.real(0.5, 0.95)) as u64 };
    }
    if draw.chance(0.2) {
        config.max_overhead = draw.real(0.0, 1.0);
    }
    if draw.chance(0.2) {
        config.max_span = 1 + draw.below(64) as u16;
    }
    if draw.chance(0.2) {
        config.ring_memory = 1 << 20;
    }
    if draw.chance(0.2) {
        config.stream_window = 2_048 + draw.below(60_000);
    }
    config
}

/// One large flow, and up to five more of any kind. One in three seeds has nothing but bulk one way.
fn flows(draw: &mut Draw, rate: f64, loss: f64) -> Vec<Flow> {
    // Shorter where more is lost, so that a seed costs about the same everywhere.
    let bytes = draw.real(2_500_000.0, 23_000_000.0) * (1.0 - loss);
    let main = if draw.chance(0.3) { End::Far } else { End::Near };
    let mut flows = vec![Flow::bulk(main, bytes as u64)];
    let seconds = bytes * 8.0 / rate;
    let one_way = draw.chance(0.33);
    for _ in 0..draw.below(6) {
        let from = if one_way || draw.chance(0.5) { main } else { main.other() };
        let mut flow = Flow::bulk(from, draw.log(1.0, bytes * 0.3) as u64);
        if !one_way && draw.chance(0.4) {
            // Half to all of the large flow's time.
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

/// SplitMix64: what a seed draws must not change with a library.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn real(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn log(&mut self, from: f64, to: f64) -> f64 {
        self.real(from.ln(), to.ln().max(from.ln())).exp()
    }

    /// Half of the draws lie in the lowest quarter of the range.
    fn skewed(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.real(0.0, 1.0).powi(2)
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.real(0.0, 1.0) < probability
    }

    fn probability(&mut self, most: f64) -> Probability {
        Probability::new(self.real(0.0, most)).expect("a share")
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
