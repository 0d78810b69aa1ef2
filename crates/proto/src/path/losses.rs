//! The losses and congestion marks of a path, and how many of them were reported to the estimator and the
//! controller.
//!
//! The connection's FEEDBACK handling calls it. Invariant: the estimator gets each packet's fate once, in the
//! order of sending.

use core::time::Duration;

use super::{EcnTally, LossDetector, LossEstimator, LossRuns};
use crate::Time;

/// What lost a packet, as far as the sender knew when it declared the packet lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The medium, or something that the rate controller does not know.
    Medium,
    /// The bottleneck dropped it, because the sender sent too fast.
    OwnRate,
}

/// Losses of one path, described in the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pub detector: LossDetector,
    pub estimator: LossEstimator,
    /// Losses of the medium, for reports.
    pub runs: LossRuns,
    /// First packet whose fate the estimator does not have yet.
    pub fates_from: u64,
    /// ECN counts of the peer's last report.
    pub reported_ecn: EcnTally,
}

impl Losses {
    /// A packet that was sent at `sent` and declared lost arrived after all.
    pub(crate) fn on_spurious(&mut self, cause: Cause, sent: Time, now: Time, rtt: Duration) {
        self.detector.on_spurious(sent, now, rtt);
        if cause == Cause::Medium {
            self.estimator.on_spurious();
            self.runs.on_spurious();
        }
    }
}
