//! The losses and congestion marks of a path, and how many of them were reported to the estimator and the
//! controller.
//!
//! The connection's FEEDBACK handling calls it. Invariant: the estimator gets each packet's fate once, in the
//! order of sending.

use core::time::Duration;

use super::{EcnTally, LossDetector, LossEstimator, LossRuns};
use crate::Time;

/// Losses of one path, described in the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pub detector: LossDetector,
    pub estimator: LossEstimator,
    /// All losses, for reports.
    pub runs: LossRuns,
    /// First packet whose fate the estimator does not have yet.
    pub fates_from: u64,
    /// ECN counts of the peer's last report.
    pub reported_ecn: EcnTally,
}

impl Losses {
    /// A packet that was sent at `sent` and declared lost arrived after all.
    pub fn on_spurious(&mut self, sent: Time, now: Time, rtt: Duration) {
        self.detector.on_spurious(sent, now, rtt);
        self.estimator.on_spurious();
        self.runs.on_spurious();
    }
}
