//! Names of symbols: [`SourceId`] counts source symbols, [`RepairId`] says which of them a repair symbol
//! mixes and how.
//!
//! Both travel on the wire unchanged. A `RepairId` read from a datagram can hold any values:
//! [`Code::check`](crate::Code::check) checks it before any use.

use core::fmt;
use core::ops::Range;

use crate::SpanError;

/// The number of a source symbol in its lane: 0, 1, 2, ... (RFC 8681 calls it the encoding symbol id, ESI).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SourceId(pub u64);

impl SourceId {
    /// The next id; stays at `u64::MAX`, which no lane reaches.
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The id `count` after this one; stays at `u64::MAX`.
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// The number of ids from `earlier` to this one; 0 if `earlier` is in fact later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a repair symbol: its span, and the key from which its coefficients are drawn (RFC 8681:
/// FSS_ESI, NSS, Repair_Key).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RepairId {
    /// First source symbol of the span.
    pub first: SourceId,
    /// Number of consecutive source symbols in the span.
    pub count: u16,
    /// Distinguishes repair symbols over the same span. Never reuse one for other contents.
    pub key: u16,
}

impl RepairId {
    /// The span as plain numbers. It saturates, so that hostile ids cannot overflow.
    pub(crate) const fn span(self) -> Range<u64> {
        self.first.0..self.first.plus(self.count as u64).0
    }
}

/// The span as plain numbers, or an error if there is no such span.
pub(crate) fn span(first: SourceId, count: u16) -> Result<Range<u64>, SpanError> {
    if count == 0 {
        return Err(SpanError::Empty);
    }
    let end = first.0.checked_add(count.into()).ok_or(SpanError::PastLastId { first, count })?;
    Ok(first.0..end)
}
