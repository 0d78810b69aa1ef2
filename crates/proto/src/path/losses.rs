//! What the path knows of its losses and congestion marks, and who was told of which.
//!
//! The connection's FEEDBACK handling feeds it. Invariant: each packet's fate is told to the estimator once, in the
//! order of sending.

use core::time::Duration;

use super::{EcnTally, LossDetector, LossEstimator, LossRuns};
use crate::Time;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pub detector: LossDetector,
    pub estimator: LossEstimator,
    /// All losses, for reports.
    pub runs: LossRuns,
    /// First packet whose fate the estimator has not been told.
    pub fates_from: u64,
    /// ECN counts that the peer last reported.
    pub reported_ecn: EcnTally,
}

impl Losses {
    /// A packet that left at `sent` and was given up as lost did arrive.
    pub fn on_spurious(&mut self, sent: Time, now: Time, rtt: Duration) {
        self.detector.on_spurious(sent, now, rtt);
        self.estimator.on_spurious();
        self.runs.on_spurious();
    }
}
