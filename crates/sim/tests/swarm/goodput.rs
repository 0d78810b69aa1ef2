//! What a change of the path costs bulk data at a high rate over a long round trip: the client's address
//! changes, the path becomes narrower, or both, and the longest span may be short.
//!
//! A seed is run twice, with the change and without. `behaviour/roam.rs` has rows of chosen links.

use core::time::Duration;

use tidewire_codec::SplitMix64;
use tidewire_proto::config::Config;
use tidewire_proto::profile::{ARQ, Profile, STREAM, block};
use tidewire_proto::redundancy::Redundancy;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::{Capacity, LinkConfig, Loss, Queue};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::rebinding::Rebound;
use tidewire_sim::report::Trial;
use tidewire_units::{Probability, Rate};

use super::case::{Draw, Seed};
use super::turns::Turns;

/// A transfer whose path changes.
#[derive(Debug)]
pub struct Change {
    pub trial: Trial,
    /// When the path changes.
    at: Duration,
    roam: Option<Rebound>,
    /// The longest IP packet from then on.
    mtu: Option<usize>,
    /// From when on, and how long goodput is compared.
    compared: (Duration, Duration),
}

impl Change {
    pub fn new(seed: Seed) -> Self {
        let draw = &mut Draw(SplitMix64::new(seed.state()));
        let rate = draw.log(50e6, 1_000e6);
        let rtt = Duration::from_secs_f64(draw.log(0.05, 0.2));
        let mut shared = LinkConfig::default();
        shared.capacity = Capacity::Fixed(Rate::from_bits_per_second(rate as u64).expect("50 Mbit/s at least"));
        shared.queue = Some(Queue::Bytes((rate / 8.0 * rtt.as_secs_f64() * draw.real(0.5, 2.0)) as u64));
        if draw.chance(0.4) {
            shared.loss = Loss::Iid(Probability::new(draw.log(0.0001, 0.01)).expect("a share"));
        }
        let mut link = DuplexConfig::symmetric(shared);
        link.set_rtt(rtt);
        link.set_seed(seed.state());

        let from = if draw.chance(0.5) { End::Near } else { End::Far };
        let mut trial = Trial::new(link, vec![Flow::bulk(from, u64::MAX / 4)], seed.state());
        trial.near = config(draw);
        trial.far = config(draw);
        let what = draw.below(4);
        let roam = [None, Some(Rebound::Roams), Some(Rebound::Host), Some(Rebound::Roams)][what as usize];
        let mtu = matches!(what, 0 | 3).then(|| draw.real(1_228.0, 1_400.0) as usize);
        let at = (rtt * 12).max(Duration::from_secs(1));
        let wait = if mtu.is_some() { Duration::from_secs(4) + rtt * 10 } else { rtt * 10 };
        let compared = (at + wait, (rtt * 10).max(Duration::from_secs(1)));
        Self { trial, at, roam, mtu, compared }
    }

    /// Bits per second read in the time that is compared.
    pub fn goodput(&self, is_changed: bool) -> Result<(f64, Turns), String> {
        let mut turns = Turns::new(self.trial.start());
        let began = turns.run.began();
        turns.until(began + self.at);
        if is_changed {
            if let Some(mtu) = self.mtu {
                let link = turns.run.pair.link_mut();
                link.forward.set_mtu(Some(mtu));
                link.back.set_mtu(Some(mtu));
            }
            self.roam.into_iter().for_each(|what| turns.run.pair.rebind(what));
        }
        turns.until(began + self.compared.0);
        let before = turns.run.load.read();
        turns.until(began + self.compared.0 + self.compared.1);
        let read = turns.run.load.read() - before;
        let load = &turns.run.load;
        if !load.errors.is_empty() || load.closed != [None, None] {
            return Err(format!("wrong bytes or closed: {:?}, {:?}", load.errors, load.closed));
        }
        Ok((read as f64 * 8.0 / self.compared.1.as_secs_f64(), turns))
    }
}

fn config(draw: &mut Draw) -> Config {
    let profile = match draw.below(6) {
        0 => ARQ,
        1 => Profile { redundancy: Redundancy::every(draw.log(3.0, 30.0)), ..STREAM },
        2 => {
            let k = 1 + draw.below(64) as u16;
            block(k, draw.below(u64::from(k) / 2 + 1) as u16)
        }
        _ => STREAM,
    };
    let mut config = Config::builder().profile(profile);
    if draw.chance(0.5) {
        config = config.max_span(draw.log(1.0, 65.0) as u16);
    }
    config.build().expect("in range")
}

/// The share of the goodput without the change that must be reached. Of seeds 8:1 to 8:140 the least are 0.71
/// (8:35: plain retransmission at 0.7 % loss, 856 Mbit/s and 177 ms) and 0.85, and 129 have 0.9 or more. When
/// losses of packets that were too long lowered the rate for good, seed 8:124 had 0.51 and seed 8:5100139
/// 0.000. When at most 64 symbols were in parts, seed 8:1 had 0.04 and seed 8:8 had 0.007. When a round trip
/// repaired no more than one report of short spans covers, seed 8:12 had 0.009 (span 6) and seed 8:28 had
/// 0.058 (span 1).
pub const LEAST: f64 = 0.5;
