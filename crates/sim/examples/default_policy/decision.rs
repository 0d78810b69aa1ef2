//! One question to the policy and its answer.

use core::time::Duration;

use tidewire_proto::path::LossEstimate;
use tidewire_proto::redundancy::Redundancy;
use tidewire_proto::redundancy::plan::{Plan, SteadyPath, Target, steady_share};

/// Mean lengths of runs of losses: independent ones, and those of docs/envelope.md with two beside.
pub const BURSTS: [Burst; 4] = [Burst::Independent, Burst::Mean(2), Burst::Mean(4), Burst::Mean(8)];
/// Round trips: a city, a continent, the world.
pub const RTTS_MS: [u64; 3] = [10, 60, 200];
/// Proactive repairs per source symbol at most: the default of `--max-overhead`.
pub const CAP: f64 = 0.5;
/// Part of the symbols that a stated target is for: the default of `--deliver`, which is the default's own
/// aim too.
pub const DELIVER: f64 = 0.99;
/// Time of a packet of 1,500 bytes at 25 Mbit/s: the link of docs/recovery.md.
const SLOT: Duration = Duration::from_micros(480);

/// How losses come.
#[derive(Clone, Copy, Debug)]
pub enum Burst {
    /// Each by itself.
    Independent,
    /// In runs of this mean length (Gilbert).
    Mean(u8),
}

impl Burst {
    fn mean(self, loss: f64) -> f64 {
        match self {
            Self::Independent => 1.0 / (1.0 - loss),
            Self::Mean(mean) => mean.into(),
        }
    }

    /// In a legend.
    pub fn name(self) -> String {
        match self {
            Self::Independent => "independent".into(),
            Self::Mean(mean) => format!("runs of {mean}"),
        }
    }
}

/// The flow, and what is asked for it.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Round trip in milliseconds.
    pub rtt_ms: u64,
    /// All that the link carries, else half of it.
    pub saturated: bool,
    /// A latency that the user states, in milliseconds, for [`DELIVER`] of the symbols.
    pub latency_ms: Option<f64>,
}

/// What the policy does.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// Proactive repairs per source symbol.
    pub share: f64,
    /// Why, where it was planned.
    pub plan: Option<Plan>,
}

impl Flow {
    /// Asks the policy, once it has seen so many packets of the path as it ever looks back on.
    pub fn decide(&self, loss: f64, burst: Burst) -> Decision {
        let path = SteadyPath {
            loss: LossEstimate::settled(loss, burst.mean(loss)),
            rtt: Duration::from_millis(self.rtt_ms),
            interval: if self.saturated { SLOT } else { SLOT * 2 },
            saturated: self.saturated,
        };
        let target = self.latency_ms.map(|latency| Target {
            latency: Duration::from_secs_f64(latency / 1e3),
            deliver: DELIVER,
            max_overhead: CAP,
        });
        let (share, plan) = steady_share(Redundancy::ADAPTIVE, &path, CAP, target);
        Decision { share, plan }
    }
}

impl Decision {
    /// No proactive repair is sent.
    pub fn asks_only(&self) -> bool {
        self.share == 0.0
    }

    /// The part of the symbols that the cap allows to be on time, where that is less than what is aimed at.
    pub fn falls_short(&self) -> Option<f64> {
        self.plan.map(|plan| 1.0 - plan.late).filter(|kept| *kept < DELIVER)
    }
}
