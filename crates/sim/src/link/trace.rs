//! Recorded link capacity in the format of mahimahi: the times at which the link could have delivered 1,500
//! bytes.
//!
//! A trace is a list of times in whole milliseconds, one per line, in ascending order. Each is one
//! opportunity to deliver up to 1,500 IP bytes, and a time may be repeated. The last time is also the period
//! after which the trace starts again. As in mahimahi, an opportunity serves what waits at that time, several
//! small packets or a part of a large one. An unused opportunity is lost.

use std::sync::Arc;

/// IP bytes of one delivery opportunity: mahimahi's packet size, the payload of a full Ethernet frame.
pub const OPPORTUNITY_BYTES: u64 = 1_500;

/// The delivery opportunities of a recorded link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateTrace {
    /// Not empty, ascending, the last above zero.
    millis: Vec<u64>,
}

impl RateTrace {
    /// Parses mahimahi's text form. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// Names the first line that is not a whole number of milliseconds or that goes back in time, or says
    /// that the trace has no duration.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut millis: Vec<u64> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = line.parse().ok().filter(|&at| at <= LONGEST_MILLIS);
            let at = at.ok_or(TraceError::NotMillis { line: line_number })?;
            if millis.last().is_some_and(|&last| at < last) {
                return Err(TraceError::BackInTime { line: line_number });
            }
            millis.push(at);
        }
        if millis.last().is_none_or(|&last| last == 0) {
            return Err(TraceError::NoTime);
        }
        Ok(Self { millis })
    }

    /// Time after which the trace repeats, in nanoseconds.
    fn period(&self) -> u64 {
        self.millis[self.millis.len() - 1] * NANOS_PER_MILLI
    }

    /// When opportunity `number` happens, counted through all repetitions.
    fn at(&self, number: u64) -> u64 {
        let count = self.millis.len() as u64;
        let within = self.millis[(number % count) as usize] * NANOS_PER_MILLI;
        (number / count).saturating_mul(self.period()).saturating_add(within)
    }

    /// The first opportunity at or after `now`.
    fn first_from(&self, now: u64) -> u64 {
        // The first round whose last opportunity, at its very end, is not before `now`.
        let round = now.saturating_sub(1) / self.period();
        let offset = now - round * self.period();
        let skipped = self.millis.partition_point(|&at| at * NANOS_PER_MILLI < offset);
        round * self.millis.len() as u64 + skipped as u64
    }
}

/// A position in a trace, which packets advance.
#[derive(Clone, Debug)]
pub(super) struct TraceCursor {
    trace: Arc<RateTrace>,
    /// The opportunity that the next packet may use.
    number: u64,
    /// IP bytes left in it, above zero.
    left: u64,
}

impl TraceCursor {
    pub(super) fn new(trace: Arc<RateTrace>) -> Self {
        Self { trace, number: 0, left: OPPORTUNITY_BYTES }
    }

    /// IP bytes that the trace carries on average in `time` nanoseconds.
    pub(super) fn mean_bytes_in(&self, time: u64) -> u64 {
        let per_period = u128::from(OPPORTUNITY_BYTES) * self.trace.millis.len() as u128;
        u64::try_from(per_period * u128::from(time) / u128::from(self.trace.period())).unwrap_or(u64::MAX)
    }

    /// Whether an opportunity before `now` was not used.
    pub(super) fn has_passed(&self, now: u64) -> bool {
        self.trace.at(self.number) < now
    }

    /// When the first byte of a packet sent at `now` leaves. Unused opportunities before are given up.
    pub(super) fn start(&mut self, now: u64) -> u64 {
        let at = self.trace.at(self.number);
        if at >= now {
            return at;
        }
        self.number = self.trace.first_from(now);
        self.left = OPPORTUNITY_BYTES;
        self.trace.at(self.number)
    }

    /// Uses the opportunities for a packet of `bytes`. Returns when its last byte leaves.
    pub(super) fn serve(&mut self, bytes: u64) -> u64 {
        let missing = bytes.saturating_sub(self.left);
        let further = missing.div_ceil(OPPORTUNITY_BYTES);
        let end = self.trace.at(self.number + further);
        self.number += further;
        self.left = self.left + further * OPPORTUNITY_BYTES - bytes;
        if self.left == 0 {
            self.number += 1;
            self.left = OPPORTUNITY_BYTES;
        }
        end
    }
}

/// Why a text is not a rate trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line is not a whole number of milliseconds below 2^40 (35 years).
    #[error("line {line} is not a time in whole milliseconds, such as 42")]
    NotMillis {
        /// The number of the line, from 1.
        line: usize,
    },
    /// A line has an earlier time than the line before.
    #[error("line {line} lies before the line above it: sort the times")]
    BackInTime {
        /// The number of the line, from 1.
        line: usize,
    },
    /// There is no opportunity after 0 ms, so the trace has no rate.
    #[error("a rate trace needs at least one time above 0 ms")]
    NoTime,
}

const NANOS_PER_MILLI: u64 = 1_000_000;

/// Longest trace: 2^40 ms is 35 years, and 10^6 times that still fits into 64 bits.
const LONGEST_MILLIS: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(text: &str) -> TraceCursor {
        TraceCursor::new(Arc::new(RateTrace::parse(text).unwrap()))
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn rejects_what_is_no_trace() {
        assert_eq!(RateTrace::parse("1\nx\n"), Err(TraceError::NotMillis { line: 2 }));
        assert_eq!(RateTrace::parse("1\n99999999999999999\n"), Err(TraceError::NotMillis { line: 2 }));
        assert_eq!(RateTrace::parse("# made by hand\n5\n4\n"), Err(TraceError::BackInTime { line: 3 }));
        assert_eq!(RateTrace::parse("0\n0\n"), Err(TraceError::NoTime));
        assert_eq!(RateTrace::parse(""), Err(TraceError::NoTime));
    }

    #[test]
    fn small_packets_share_an_opportunity_and_large_ones_take_several() {
        let mut cursor = cursor("2\n5\n5\n");
        assert_eq!(cursor.start(0), 2 * MS);
        assert_eq!(cursor.serve(1_000), 2 * MS);
        assert_eq!(cursor.start(0), 2 * MS);
        // 500 bytes at 2 ms, 1,500 at each of the two opportunities at 5 ms, 100 in the next round.
        assert_eq!(cursor.serve(3_600), 7 * MS);
        assert_eq!(cursor.start(0), 7 * MS);
        assert_eq!(cursor.serve(1_400), 7 * MS);
        assert_eq!(cursor.start(0), 10 * MS, "the opportunity at 7 ms is used up");
        assert_eq!(cursor.start(20 * MS), 20 * MS, "the last of a round, from idle");
        assert_eq!(cursor.serve(3_000), 20 * MS);
        assert_eq!(cursor.start(20 * MS), 22 * MS);
    }

    #[test]
    fn unused_opportunities_are_gone() {
        let mut cursor = cursor("0\n4\n");
        assert_eq!(cursor.start(0), 0);
        assert_eq!(cursor.start(1), 4 * MS);
        assert_eq!(cursor.start(4 * MS), 4 * MS, "serves what arrives at its very moment");
        // At 4 ms the round ends and the next begins with its opportunity at 0, so two coincide.
        assert_eq!(cursor.serve(3_000), 4 * MS);
        assert_eq!(cursor.start(4 * MS), 8 * MS);
        assert_eq!(cursor.start(1_000_000 * MS + 1), 1_000_004 * MS);
    }
}
