//! The times in which a link may transmit: the beginning of each period, as in TDMA, or on a radio channel
//! that others use in between.
//!
//! The server of a queue works in *open time*, which passes only while the link is open, and uses this module
//! to convert between open time and time. Invariant: open time never goes back, and is the exact sum of the
//! open parts, so a busy link carries exactly its rate times the open fraction over whole periods.

use core::fmt;
use core::time::Duration;

use super::config::nanos;

/// The link is open from the start of each period on, for a part of it. The first period begins at the start
/// of the link's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Nanoseconds.
    period: u64,
    /// Nanoseconds, from 1 to `period`.
    open: u64,
}

impl Slots {
    /// The link transmits during the first `open` of each `period`.
    ///
    /// # Errors
    /// Fails if the link would never be open, or be open for longer than a period.
    pub fn new(period: Duration, open: Duration) -> Result<Self, ImpossibleSlots> {
        match (nanos(period), nanos(open)) {
            (period, open) if 0 < open && open <= period => Ok(Self { period, open }),
            _ => Err(ImpossibleSlots { period, open }),
        }
    }

    /// Time from one opening to the next.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// How long the link stays open.
    pub fn open(&self) -> Duration {
        Duration::from_nanos(self.open)
    }

    /// Open time that has passed at `now`.
    pub(super) fn passed(&self, now: u64) -> u64 {
        // At most `now`, because `open` is at most `period`.
        (now / self.period) * self.open + (now % self.period).min(self.open)
    }

    /// When the link begins to do what begins after `work` nanoseconds of open time. At the end of a slot
    /// this is the next opening.
    pub(super) fn begins(&self, work: u64) -> u64 {
        (work / self.open).saturating_mul(self.period).saturating_add(work % self.open)
    }

    /// When the link has done what takes until `work` nanoseconds of open time. At the end of a slot this is
    /// that end.
    pub(super) fn ends(&self, work: u64) -> u64 {
        match work.checked_sub(1) {
            Some(before) => self.begins(before).saturating_add(1),
            None => 0,
        }
    }
}

/// Slots in which a link never transmits, or longer than their period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImpossibleSlots {
    /// Time from one opening to the next.
    pub period: Duration,
    /// How long the link would stay open.
    pub open: Duration,
}

impl fmt::Display for ImpossibleSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { period, open } = self;
        if open.is_zero() {
            write!(f, "a link that is open for {open:?} of every {period:?} carries nothing: lengthen the open time")
        } else {
            write!(f, "a link cannot be open for {open:?} of every {period:?}: shorten the open time")
        }
    }
}

impl core::error::Error for ImpossibleSlots {}
