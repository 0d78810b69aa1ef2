//! The application above a sender: how many bytes it has produced by a time.
//!
//! [`Sender`](super::Sender) asks it before it sends new data. Invariant: the count never falls.

use core::time::Duration;
use std::sync::Arc;

use crate::video::FrameTrace;

/// What the application has to send. Times count from the start of the flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// As much as TCP takes.
    Bulk,
    /// This many bytes at once.
    Bytes(u64),
    /// `bytes` bytes at the start and after each `every`: small records for an application at a rate, large
    /// ones for an application that is on and off.
    Records {
        /// Length of a record.
        bytes: u64,
        /// Time from one record to the next; not zero.
        every: Duration,
    },
    /// The frames of a live video, each at its time.
    Frames(Arc<FrameTrace>),
}

impl Source {
    /// Bytes produced when the flow is `age` old.
    pub(super) fn produced(&self, age: Duration) -> u64 {
        match self {
            Self::Bulk => u64::MAX,
            Self::Bytes(bytes) => *bytes,
            Self::Frames(frames) => frames.bytes_until(age),
            Self::Records { bytes, every } => bytes.saturating_mul(records(age, *every).saturating_add(1)),
        }
    }

    /// When it produces more after `age`; `None` if never.
    pub(super) fn next(&self, age: Duration) -> Option<Duration> {
        match self {
            Self::Bulk | Self::Bytes(_) => None,
            Self::Frames(frames) => frames.time_of(frames.bytes_until(age)),
            Self::Records { every, .. } => {
                let next = every.as_nanos().saturating_mul(u128::from(records(age, *every)) + 1);
                Some(Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX)))
            }
        }
    }
}

/// Number of whole intervals in `age`.
fn records(age: Duration, every: Duration) -> u64 {
    u64::try_from(age.as_nanos() / every.as_nanos().max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_at_the_start_and_after_each_interval() {
        let source = Source::Records { bytes: 100, every: Duration::from_millis(10) };
        for (ms, produced, next) in [(0, 100, 10), (9, 100, 10), (10, 200, 20), (35, 400, 40)] {
            let age = Duration::from_millis(ms);
            assert_eq!((source.produced(age), source.next(age)), (produced, Some(Duration::from_millis(next))));
        }
        assert_eq!((Source::Bytes(7).produced(Duration::ZERO), Source::Bytes(7).next(Duration::ZERO)), (7, None));
    }
}
