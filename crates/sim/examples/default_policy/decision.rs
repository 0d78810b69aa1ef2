//! One question to the redundancy policy, and its answer.

use core::time::Duration;

use tidewire_proto::path::LossEstimate;
use tidewire_proto::redundancy::Redundancy;
use tidewire_proto::redundancy::plan::{Plan, SteadyPath, Target, steady_share};

/// Mean lengths of runs of losses: independent losses, the means of docs/envelope.md, and two means beside
/// them.
pub const BURSTS: [Burst; 4] = [Burst::Independent, Burst::Mean(2), Burst::Mean(4), Burst::Mean(8)];
/// Round trips within a city, a continent and the world.
pub const RTTS_MS: [u64; 3] = [10, 60, 200];
/// Proactive repairs per source symbol at most: the default of `--max-overhead`.
pub const CAP: f64 = 0.5;
/// The part of the symbols that a stated target is for: the default of `--deliver`. Without a target the
/// policy aims at this part too.
pub const DELIVER: f64 = 0.99;
/// Time that a packet of 1,500 bytes takes at 25 Mbit/s, the link of docs/recovery.md.
const SLOT: Duration = Duration::from_micros(480);

/// How losses are distributed.
#[derive(Clone, Copy, Debug)]
pub enum Burst {
    /// Each packet is lost independently.
    Independent,
    /// Losses come in runs of this mean length (Gilbert).
    Mean(u8),
}

impl Burst {
    fn mean(self, loss: f64) -> f64 {
        match self {
            Self::Independent => 1.0 / (1.0 - loss),
            Self::Mean(mean) => mean.into(),
        }
    }

    /// The name in a legend.
    pub fn name(self) -> String {
        match self {
            Self::Independent => "independent".into(),
            Self::Mean(mean) => format!("runs of {mean}"),
        }
    }
}

/// The flow, and the target that is stated for it.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Round trip in milliseconds.
    pub rtt_ms: u64,
    /// Whether the flow sends all that the link carries. If not, it sends half of that.
    pub saturated: bool,
    /// The stated latency in milliseconds, for [`DELIVER`] of the symbols.
    pub latency_ms: Option<f64>,
}

/// What the policy decides.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// Proactive repairs per source symbol.
    pub share: f64,
    /// The plan behind the decision, if there was one.
    pub plan: Option<Plan>,
}

impl Flow {
    /// Asks the policy as if the path had already sent as many packets as the loss estimate remembers.
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
    /// Whether no proactive repair is sent.
    pub fn asks_only(&self) -> bool {
        self.share == 0.0
    }

    /// The part of the symbols that can be on time within the cap, if that is less than the policy aims at.
    pub fn falls_short(&self) -> Option<f64> {
        self.plan.map(|plan| 1.0 - plan.late).filter(|kept| *kept < DELIVER)
    }
}
