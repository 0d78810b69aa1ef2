//! Names of symbols: [`SourceId`] counts source symbols, [`RepairId`] says which of them a repair symbol
//! mixes and how.
//!
//! Both travel on the wire as they are. They carry no promise: a `RepairId` read from a datagram is judged by
//! [`Code::check`](crate::Code::check) before anything is done with it.

use core::fmt;
use core::ops::Range;

use crate::SpanError;

/// The number of a source symbol in its lane: 0, 1, 2, ... (RFC 8681 calls it the encoding symbol id, ESI).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SourceId(pub u64);

impl SourceId {
    /// The id after this one; stays at `u64::MAX`, which no lane reaches.
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The id `count` further on; stays at `u64::MAX`.
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// How many ids lie between `earlier` and this one; 0 when `earlier` is in fact later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a repair symbol: its span and the key its coefficients are drawn from (RFC 8681: FSS_ESI, NSS,
/// Repair_Key).
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
    /// The span as plain numbers; saturates, so that hostile ids cannot overflow.
    pub(crate) const fn span(self) -> Range<u64> {
        self.first.0..self.first.plus(self.count as u64).0
    }
}

/// A span as plain numbers, if there is such a span.
pub(crate) fn span(first: SourceId, count: u16) -> Result<Range<u64>, SpanError> {
    if count == 0 {
        return Err(SpanError::Empty);
    }
    let end = first.0.checked_add(count.into()).ok_or(SpanError::PastLastId { first, count })?;
    Ok(first.0..end)
}
