//! Runs of RCDP's figures over the paper's link, in virtual time. The experiments of this folder call it.
//! Invariant: the arguments of a run determine its result.

use std::time::Duration;

use tidewire_proto::config::Config;
use tidewire_proto::profile::Profile;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::{Capacity, Loss, Queue};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::{Run, Trial, together};
use tidewire_units::{Probability, Rate};

/// A link of the paper: two hosts on Ethernet, with an emulator between them (section V).
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub mbit: u64,
    pub rtt: Duration,
    /// Share of the packets lost on the way of the data.
    pub loss: f64,
}

/// The queue of the link. The paper names none. Chosen: two round trips of 20 ms.
const QUEUE: Duration = Duration::from_millis(40);
/// Seed of link and data.
const SEED: u64 = 1;
/// More bytes than the link carries in any run of a limited time.
const ENDLESS: u64 = 1 << 33;
/// Stream bytes over IP bytes of full packets, repairs left out: used where a wire rate is computed from
/// bytes that were read.
pub(super) const CONTENT: f64 = 0.945;

impl Link {
    /// Bits per second that the link delivers, IP headers included.
    pub(super) fn delivers(&self) -> f64 {
        self.mbit as f64 * 1e6 * (1.0 - self.loss)
    }
}

/// The link as both the simulator and the lab take it.
pub(super) fn duplex(link: Link) -> DuplexConfig {
    let mut duplex = DuplexConfig::default();
    duplex.set_rtt(link.rtt);
    for side in [&mut duplex.forward, &mut duplex.back] {
        // No rate of the figures is 0.
        let rate = Rate::from_bits_per_second(link.mbit * 1_000_000);
        side.capacity = rate.map_or(Capacity::Unlimited, Capacity::Fixed);
        side.queue = Some(Queue::Time(QUEUE));
    }
    duplex.forward.loss = Probability::new(link.loss).filter(|_| link.loss > 0.0).map_or(Loss::None, Loss::Iid);
    duplex.set_seed(SEED);
    duplex
}

/// The settings of both ends.
pub(super) fn config(profile: &Profile) -> Config {
    // The profiles of the figures fit together; if one did not, its rows would be those of the default.
    Config::builder().profile(*profile).build().unwrap_or_default()
}

fn trial(profile: &Profile, link: Link, flow: Flow) -> Trial {
    let mut trial = Trial::new(duplex(link), vec![flow], SEED);
    trial.near = config(profile);
    trial.far = trial.near.clone();
    trial
}

/// Goodput of a transfer of `bytes` bytes in bits per second, start included.
pub(super) fn bulk(profile: &Profile, link: Link, bytes: u64) -> f64 {
    trial(profile, link, Flow::bulk(End::Near, bytes)).run().goodput_bps
}

/// The rate on the wire in bits per second, in windows of `window` from `from` to `until`.
pub(super) fn wire_rates(profile: &Profile, link: Link, window: Duration, [from, until]: [Duration; 2]) -> Vec<f64> {
    let mut run = trial(profile, link, Flow::bulk(End::Near, ENDLESS)).start();
    let began = run.began();
    let mut sent_by = |after| {
        run.until(began + after);
        run.pair.link_mut().forward.stats().offered_bytes as f64
    };
    let (mut at, mut before, mut rates) = (from, sent_by(from), Vec::new());
    while at < until {
        at += window;
        let sent = sent_by(at);
        rates.push((sent - before) * 8.0 / window.as_secs_f64());
        before = sent;
    }
    rates
}

/// The share of the link's rate that each flow delivers as stream bytes. The flows start half a second after
/// each other. Counting begins five seconds after the last start and lasts twenty seconds.
pub(super) fn shares(profiles: &[Profile], link: Link, queue: Duration) -> Vec<f64> {
    const STAGGER: Duration = Duration::from_millis(500);
    const SETTLE: Duration = Duration::from_secs(5);
    const COUNTED: Duration = Duration::from_secs(20);
    let mut runs = Vec::<Run>::new();
    for (n, profile) in (0..).zip(profiles) {
        let flow = Flow { start: STAGGER * n, ..Flow::bulk(End::Near, ENDLESS) };
        let mut trial = trial(profile, link, flow);
        trial.link.forward.queue = Some(Queue::Time(queue));
        trial.seed = SEED + u64::from(n);
        runs.push(trial.start_beside(runs.first()));
    }
    let Some(began) = runs.first().map(Run::began) else { return Vec::new() };
    let mut read_at = |at| {
        together(&mut runs, at);
        runs.iter().map(|run| run.load.read() as f64).collect::<Vec<_>>()
    };
    let begin = began + STAGGER * profiles.len() as u32 + SETTLE;
    let before = read_at(begin);
    let bits = link.mbit as f64 * 1e6 * COUNTED.as_secs_f64();
    read_at(begin + COUNTED).iter().zip(before).map(|(after, before)| 8.0 * (after - before) / bits).collect()
}
