//! What the packets of one epoch showed: the pace at which they left, how many arrived, and their queue.
//!
//! [`super::Share`] decides once per epoch. An epoch is a round trip, and longer where the path serves
//! packets in turns or delays them at random: a rate that is measured over less than that is the rate of a
//! burst.

use core::time::Duration;

use super::AckSample;
use super::tuning::{EPOCH_LEAST, EPOCH_MOST, EPOCH_SAMPLES, EPOCH_SPREADS};
use crate::Time;

/// The result of one epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    /// Time over which its packets left.
    pub lasted: Duration,
    /// Bytes per second that left.
    pub sent: f64,
    /// Part of them that did not arrive.
    pub loss: f64,
    /// Least, mean and greatest queueing delay.
    pub least: Duration,
    pub mean: Duration,
    pub most: Duration,
    /// The application had too little to send for a part of it.
    pub app_limited: bool,
    /// The sender stopped for a part of it, because no FEEDBACK came and its window was full.
    pub stopped: bool,
}

impl Epoch {
    /// Bytes per second that arrived.
    pub(super) fn arrived(&self) -> f64 {
        self.sent * (1.0 - self.loss)
    }
}

#[derive(Clone, Copy, Debug)]
struct Begin {
    number: u64,
    left: Time,
    sent: u64,
    acked: u64,
}

/// The epoch in progress.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    begin: Option<Begin>,
    /// Packet whose acknowledgement ends it at the earliest.
    ends: u64,
    samples: u32,
    limited: u32,
    /// First packet after the last stop of the sender.
    resumed: u64,
    least: Duration,
    most: Duration,
    sum: Duration,
    /// Mean delay above the least of the last epoch, and what arrived in it, in bytes per second.
    spread: Duration,
    pub arrived: f64,
}

impl Epochs {
    /// Drops the epoch in progress. The next one begins with packet `next`, the first one of another pace.
    pub(super) fn restart(&mut self, next: u64) {
        (self.begin, self.ends) = (None, next);
    }

    /// Takes an acknowledgement that showed this queueing delay. `rate` is that of the sender in bytes per
    /// second. Returns the epoch that it ends.
    pub(super) fn on_ack(&mut self, ack: &AckSample, queue: Duration, rate: f64) -> Option<Epoch> {
        let mark = Begin { number: ack.newest, left: ack.left, sent: ack.totals.passed, acked: ack.totals.acked };
        // The window has room for one round trip without FEEDBACK; then the sender stops. The next FEEDBACK
        // acknowledges more than a round trip sends.
        if ack.bytes as f64 > rate * ack.smoothed.max(EPOCH_LEAST).as_secs_f64() {
            self.resumed = ack.next;
        }
        let Some(begin) = self.begin else {
            if ack.newest < self.ends {
                return None;
            }
            self.start(mark, ack.next);
            return None;
        };
        self.samples += 1;
        self.limited += u32::from(ack.app_limited);
        self.least = self.least.min(queue);
        self.most = self.most.max(queue);
        self.sum += queue;
        let lasted = ack.left.since(begin.left);
        let least_length = (self.spread * EPOCH_SPREADS).clamp(EPOCH_LEAST, EPOCH_MOST);
        if ack.newest < self.ends || lasted < least_length || self.samples < EPOCH_SAMPLES {
            return None;
        }
        let sent = ack.totals.passed.saturating_sub(begin.sent).max(1) as f64;
        let arrived = ack.totals.acked.saturating_sub(begin.acked) as f64;
        let mean = self.sum / self.samples;
        let epoch = Epoch {
            lasted,
            sent: sent / lasted.as_secs_f64(),
            loss: (1.0 - arrived / sent).clamp(0.0, 1.0),
            least: self.least,
            mean,
            most: self.most,
            app_limited: self.limited * 4 > self.samples,
            stopped: begin.number < self.resumed,
        };
        (self.spread, self.arrived) = (mean - self.least, epoch.arrived());
        self.start(mark, ack.next);
        Some(epoch)
    }

    fn start(&mut self, mark: Begin, next: u64) {
        self.begin = Some(mark);
        (self.ends, self.samples, self.limited) = (next, 0, 0);
        (self.least, self.most, self.sum) = (Duration::MAX, Duration::ZERO, Duration::ZERO);
    }
}
