//! Errors in requests and received symbols: one small enum per operation. Those of generations are in
//! `generation/error.rs`.
//!
//! Every error names the wrong number and the limit it broke, and leaves the state unchanged. The errors of
//! [`Decoder`](crate::Decoder) answer bytes from the network: the caller counts them and drops the symbol.

use core::error::Error;
use core::fmt;
use core::ops::Range;

use crate::{Code, RepairId, SourceId};

/// The message that relay and receiver share.
const ALL_ZERO: &str = "all coefficients are 0, a recoded symbol mixes at least one source symbol";

/// Why a [`RepairId`] names no repair symbol of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanError {
    /// The span holds no symbol.
    Empty,
    /// The span runs past the last possible source id.
    PastLastId {
        /// First id of the span.
        first: SourceId,
        /// Its length.
        count: u16,
    },
    /// A Cauchy span has only `256 - count` repair symbols, with keys from 0 up.
    KeyTooLarge {
        /// The key asked for.
        key: u16,
        /// Length of the span.
        count: u16,
    },
    /// A Reed-Solomon span has only as many repair symbols as its field has elements beyond the next power of
    /// two of its length.
    KeyPastField {
        /// The key asked for.
        key: u16,
        /// Length of the span.
        count: u16,
    },
    /// The code has no spans of that many symbols.
    TooManySymbols {
        /// Length of the span.
        count: u16,
        /// The longest span of the code.
        limit: u16,
    },
    /// The keys run past the last of the 65,536.
    PastLastKey {
        /// The first key asked for.
        key: u16,
        /// How many repair symbols were asked for.
        repairs: usize,
    },
    /// The code is for generations only: a sliding window takes dense codes over GF(2^8).
    GenerationsOnly {
        /// The code asked for.
        code: Code,
    },
    /// A parameter of the code is out of range.
    CodeParameter {
        /// The code asked for.
        code: Code,
    },
}

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the span is empty, a repair symbol mixes at least one source symbol"),
            Self::PastLastId { first, count } => {
                write!(f, "a span of {count} symbols from {first} runs past the last source id")
            }
            Self::KeyTooLarge { key, count } => {
                write!(f, "key {key} over a Cauchy span of {count}: key + count must stay below 256")
            }
            Self::KeyPastField { key, count } => {
                let points = u32::from(*count).next_power_of_two();
                write!(f, "key {key} over a Reed-Solomon span of {count}: key + {points} must stay below 65536")
            }
            Self::TooManySymbols { count, limit } => {
                write!(f, "a span of {count} symbols is too long for this code, use at most {limit}")
            }
            Self::PastLastKey { key, repairs } => {
                write!(f, "{repairs} repair symbols from key {key} run past the last key, {}", u16::MAX)
            }
            Self::GenerationsOnly { code } => {
                write!(f, "the code {code:?} is for generations only, a sliding window takes dense codes over GF(2^8)")
            }
            Self::CodeParameter { code: Code::SemiRandomLt { degree } } => {
                write!(f, "degree {degree} of a semi-random LT code: a repair symbol adds up at least 1 symbol")
            }
            Self::CodeParameter { code } => {
                write!(f, "parameters of {code:?}: each is at least 1 and at most 1000 thousandths")
            }
        }
    }
}

impl Error for SpanError {}

/// Why a call of the [`Encoder`](crate::Encoder) failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The symbol is empty: it carries nothing and looks like a missing one.
    EmptySymbol,
    /// The symbol does not fit its slot.
    SymbolTooLong {
        /// Bytes offered.
        len: usize,
        /// Bytes in a slot.
        limit: usize,
    },
    /// Every slot is taken: release symbols or grow the ring.
    RingFull {
        /// Slots in the ring.
        capacity: usize,
    },
    /// The span is not completely inside the window.
    OutsideWindow {
        /// First id of the span.
        first: SourceId,
        /// Its length.
        count: u16,
        /// First id still held.
        base: SourceId,
        /// The id to be committed next.
        next: SourceId,
    },
    /// The code has no such repair symbol.
    Span(SpanError),
    /// The output buffer is shorter than the repair symbol.
    OutputTooShort {
        /// Bytes given.
        len: usize,
        /// Bytes needed.
        needed: usize,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptySymbol => f.write_str("the symbol is empty, commit at least one byte"),
            Self::SymbolTooLong { len, limit } => write!(f, "a symbol of {len} bytes does not fit a slot of {limit}"),
            Self::RingFull { capacity } => write!(f, "all {capacity} slots are taken, release symbols or grow"),
            Self::OutsideWindow { first, count, base, next } => {
                write!(f, "a span of {count} symbols from {first} is outside the window {base}..{next}")
            }
            Self::Span(error) => error.fmt(f),
            Self::OutputTooShort { len, needed } => {
                write!(f, "a repair symbol of {needed} bytes does not fit an output of {len}")
            }
        }
    }
}

impl Error for EncodeError {}

impl From<SpanError> for EncodeError {
    fn from(error: SpanError) -> Self {
        Self::Span(error)
    }
}

/// Why a call of the [`Recoder`](crate::Recoder) failed. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecodeError {
    /// The generation has more symbols than the recoder has room for.
    GenerationTooLong {
        /// Symbols in the generation.
        count: u16,
        /// Most there is room for.
        limit: u16,
    },
    /// The received symbol belongs to another generation, or mixes a symbol of one.
    OutsideGeneration {
        /// First id of its span.
        first: SourceId,
        /// Length of its span.
        count: usize,
        /// The generation begun; empty before the first.
        generation: Range<SourceId>,
    },
    /// There is no such span, or the code has no such repair symbol.
    Span(SpanError),
    /// All coefficients of the recoded symbol are 0. It carries no information, and no honest relay makes
    /// one.
    AllZero,
    /// The symbol is empty.
    EmptySymbol,
    /// The symbol does not fit a slot.
    SymbolTooLong {
        /// Bytes received.
        len: usize,
        /// Bytes in a slot.
        limit: usize,
    },
    /// The recoder holds nothing to mix yet.
    NothingHeld,
    /// The length of the coding vector's buffer differs from the number of symbols in the generation.
    WrongCoefficients {
        /// Length of the buffer.
        len: usize,
        /// Symbols in the generation.
        count: u16,
    },
    /// The output buffer is shorter than the recoded symbol.
    OutputTooShort {
        /// Bytes given.
        len: usize,
        /// Bytes needed.
        needed: usize,
    },
}

impl fmt::Display for RecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GenerationTooLong { count, limit } => {
                write!(f, "a generation of {count} symbols exceeds the limit of {limit}")
            }
            Self::OutsideGeneration { first, count, generation: Range { start, end } } => {
                write!(f, "a span of {count} symbols from {first} is outside the generation {start}..{end}")
            }
            Self::Span(error) => error.fmt(f),
            Self::AllZero => f.write_str(ALL_ZERO),
            Self::EmptySymbol => f.write_str("the symbol is empty"),
            Self::SymbolTooLong { len, limit } => write!(f, "a symbol of {len} bytes does not fit a slot of {limit}"),
            Self::NothingHeld => f.write_str("nothing of the generation was received yet, there is nothing to mix"),
            Self::WrongCoefficients { len, count } => {
                write!(f, "room for {len} coefficients, the generation has {count} symbols")
            }
            Self::OutputTooShort { len, needed } => {
                write!(f, "a recoded symbol of {needed} bytes does not fit an output of {len}")
            }
        }
    }
}

impl Error for RecodeError {}

impl From<SpanError> for RecodeError {
    fn from(error: SpanError) -> Self {
        Self::Span(error)
    }
}

/// Why the [`Decoder`](crate::Decoder) dropped a symbol. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The symbol is empty.
    EmptySymbol,
    /// The symbol does not fit a slot.
    SymbolTooLong {
        /// Bytes received.
        len: usize,
        /// Bytes in a slot.
        limit: usize,
    },
    /// The id is beyond the ring.
    BeyondLimit {
        /// Highest id the symbol mentions.
        id: SourceId,
        /// The first id that is refused.
        limit: SourceId,
    },
    /// The span mixes more symbols than this decoder accepts.
    SpanTooLong {
        /// Symbols in the span.
        count: usize,
        /// Most that are accepted.
        limit: u16,
    },
    /// The code has no such repair symbol, or the span of a recoded symbol is impossible.
    Span(SpanError),
    /// The repair symbol is shorter than a source symbol it mixes.
    RepairTooShort {
        /// Bytes received.
        len: usize,
        /// The source symbol.
        source: SourceId,
        /// Its bytes.
        source_len: usize,
    },
    /// The source symbol is longer than a repair symbol that mixes it.
    LongerThanRow {
        /// Which source symbol.
        id: SourceId,
        /// Bytes received; for a recoded symbol, only those up to the last that is not 0.
        len: usize,
        /// Bytes in the row that the repair symbol became.
        limit: usize,
    },
    /// The source symbol is already held with other contents. A source id names one symbol for ever.
    SourceChanged {
        /// Which source symbol.
        id: SourceId,
        /// First byte that differs.
        at: usize,
    },
    /// A repair symbol of this name is already held with other contents.
    RepairChanged {
        /// Its name.
        id: RepairId,
        /// First byte that differs after everything known is subtracted.
        at: usize,
    },
    /// All coefficients of the recoded symbol are 0. It carries no information, and no honest relay makes
    /// one.
    AllZero,
    /// The symbol needs one more unsolved row than the limit allows.
    TooManyRows {
        /// Most rows that may be held.
        limit: usize,
    },
    /// With this symbol, the rows would mention more missing ids than the limit allows.
    TooManyColumns {
        /// Most missing ids besides the pivots.
        limit: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptySymbol => f.write_str("the symbol is empty"),
            Self::SymbolTooLong { len, limit } => write!(f, "a symbol of {len} bytes does not fit a slot of {limit}"),
            Self::BeyondLimit { id, limit } => write!(f, "source id {id} is not below the limit {limit}"),
            Self::SpanTooLong { count, limit } => write!(f, "a span of {count} symbols exceeds the limit of {limit}"),
            Self::Span(error) => error.fmt(f),
            Self::RepairTooShort { len, source, source_len } => {
                write!(f, "a repair of {len} bytes mixes source symbol {source}, which has {source_len}")
            }
            Self::LongerThanRow { id, len, limit } => {
                write!(f, "source symbol {id} has {len} bytes, a repair that mixes it only {limit}")
            }
            Self::SourceChanged { id, at } => {
                write!(f, "source symbol {id} came before with other contents, from byte {at} on")
            }
            Self::RepairChanged { id: RepairId { first, count, key }, at } => write!(
                f,
                "repair {key} over {count} symbols from {first} came before with other contents, from byte {at} on"
            ),
            Self::AllZero => f.write_str(ALL_ZERO),
            Self::TooManyRows { limit } => write!(f, "all {limit} unsolved rows are taken"),
            Self::TooManyColumns { limit } => write!(f, "the unsolved rows would mention over {limit} missing ids"),
        }
    }
}

impl Error for DecodeError {}

impl From<SpanError> for DecodeError {
    fn from(error: SpanError) -> Self {
        Self::Span(error)
    }
}
