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
    /// The peer's host dropped it before the peer read it.
    Host,
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
    /// Packets that the peer's host dropped, as the peer reported.
    pub host: HostDrops,
}

/// Packets that the peer's host dropped; see [`Cause::Host`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostDrops {
    /// All that were reported.
    reported: u64,
    /// How many of them are not found among the losses yet.
    open: u64,
}

impl HostDrops {
    /// Takes a report. Returns whether it has news.
    pub(crate) fn on_report(&mut self, packets: u64) -> bool {
        let new = packets.saturating_sub(self.reported);
        self.reported += new;
        self.open = self.open.saturating_add(new);
        new > 0
    }

    /// Whether a lost packet is one of them; it then is no more.
    pub(crate) fn take(&mut self) -> bool {
        let is_one = self.open > 0;
        self.open -= u64::from(is_one);
        is_one
    }
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
