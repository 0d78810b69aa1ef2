//! Errors in the symbols and names of a generation: one small enum per operation.

use core::error::Error;
use core::fmt;

use crate::{Code, RepairId, SourceId, SpanError};

/// Why a plan for a pattern of losses cannot be made. The [`DecodePlan`](crate::DecodePlan) is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// A lost symbol is not part of the generation.
    LostOutside {
        /// Its index.
        index: u16,
        /// Symbols in the generation.
        count: u16,
    },
    /// A lost symbol is named twice.
    LostTwice {
        /// Its index.
        index: u16,
    },
    /// A repair symbol is named twice.
    KeyTwice {
        /// Its key.
        key: u16,
    },
    /// A repair symbol does not begin with the generation, or mixes symbols beyond its end.
    RepairOutside {
        /// The repair symbol.
        repair: RepairId,
        /// First symbol of the generation.
        first: SourceId,
        /// Symbols in the generation.
        count: u16,
    },
    /// The code has no such repair symbol.
    Span(SpanError),
    /// The repair symbols do not determine the lost ones. There are too few, or some are combinations of
    /// others, which happens now and then with random codes.
    Deficit {
        /// Source symbols lost.
        lost: usize,
        /// Repair symbols that the plan could choose from.
        offered: usize,
        /// Independent repair symbols needed in addition.
        deficit: usize,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LostOutside { index, count } => {
                write!(f, "lost symbol {index} is outside the generation of {count}, indices count from 0")
            }
            Self::LostTwice { index } => write!(f, "lost symbol {index} is named twice"),
            Self::KeyTwice { key } => write!(f, "the repair symbol with key {key} is named twice"),
            Self::RepairOutside { repair: RepairId { first: start, count: span, key }, first, count } => write!(
                f,
                "repair {key} over {span} symbols from {start} is not of the generation of {count} symbols from {first}"
            ),
            Self::Span(error) => error.fmt(f),
            Self::Deficit { lost, offered, deficit } => {
                write!(f, "{offered} repair symbols do not determine {lost} lost ones, find {deficit} more")
            }
        }
    }
}

impl Error for PlanError {}

impl From<SpanError> for PlanError {
    fn from(error: SpanError) -> Self {
        Self::Span(error)
    }
}

/// Why the symbols do not fit a [`Generation`](crate::Generation) or each other. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GenerationError {
    /// The number of places differs from the number of source symbols.
    SourceCount {
        /// Places given.
        given: usize,
        /// Symbols in the generation.
        expected: usize,
    },
    /// The number of places differs from the number of keys in the plan.
    RepairCount {
        /// Places given.
        given: usize,
        /// Keys the plan was made with.
        expected: usize,
    },
    /// The number of outputs differs from the number of lost symbols.
    DecodedCount {
        /// Outputs given.
        given: usize,
        /// Symbols that the plan decodes.
        expected: usize,
    },
    /// The code has no such repair symbol.
    Span(SpanError),
    /// The code is not sparse, so that peeling decodes nothing.
    NotSparse {
        /// The code.
        code: Code,
    },
    /// The code has no rows of coefficients that could be eliminated while symbols arrive.
    NoRows {
        /// The code.
        code: Code,
    },
    /// The symbols are empty and so carry nothing.
    EmptySymbol,
    /// The length of repair and decoded symbols is odd; over GF(2^16) it must be even.
    OddLen {
        /// Their length.
        len: usize,
    },
    /// A source symbol is longer than the repair symbols.
    SourceTooLong {
        /// Which, counted from 0.
        index: usize,
        /// Its bytes.
        len: usize,
        /// Bytes of a repair symbol.
        limit: usize,
    },
    /// A repair symbol is not as long as the outputs.
    RepairLen {
        /// Which, counted from 0.
        index: usize,
        /// Its bytes.
        len: usize,
        /// Bytes of the first output.
        expected: usize,
    },
    /// A decoded symbol is not as long as the others.
    DecodedLen {
        /// Which, counted from 0.
        index: usize,
        /// Its bytes.
        len: usize,
        /// Bytes of the first.
        expected: usize,
    },
}

impl fmt::Display for GenerationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SourceCount { given, expected } => {
                write!(f, "{given} source symbols for a generation of {expected}, keep a place for the lost ones")
            }
            Self::RepairCount { given, expected } => {
                write!(f, "{given} repair symbols for a plan with {expected} keys, keep a place for the unused ones")
            }
            Self::DecodedCount { given, expected } => write!(f, "{given} outputs for {expected} lost symbols"),
            Self::Span(error) => error.fmt(f),
            Self::NotSparse { code } => {
                write!(f, "{code:?} mixes all symbols of a generation, peeling needs a sparse code: use a plan")
            }
            Self::NoRows { code } => write!(f, "{code:?} has no rows of coefficients to eliminate: use a plan"),
            Self::EmptySymbol => f.write_str("the symbols are empty, give at least one byte each"),
            Self::OddLen { len } => {
                write!(f, "symbols over GF(2^16) have an even length, pad those of {len} bytes with a zero")
            }
            Self::SourceTooLong { index, len, limit } => {
                write!(f, "source symbol {index} has {len} bytes, more than the {limit} of a repair symbol")
            }
            Self::RepairLen { index, len, expected } => {
                write!(f, "repair symbol {index} has {len} bytes instead of {expected}")
            }
            Self::DecodedLen { index, len, expected } => {
                write!(f, "output {index} has {len} bytes, the first has {expected}")
            }
        }
    }
}

impl Error for GenerationError {}

impl From<SpanError> for GenerationError {
    fn from(error: SpanError) -> Self {
        Self::Span(error)
    }
}

/// Why [`Rank`](crate::Rank) did not count a symbol. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RankError {
    /// The source symbol is not part of the generation.
    SourceOutside {
        /// Its index.
        index: u16,
        /// Most symbols that the generation may have.
        limit: u16,
    },
    /// The repair symbol mixes symbols beyond the end of the generation.
    RepairOutside {
        /// How many symbols it mixes.
        count: u16,
        /// Most symbols that the generation may have.
        limit: u16,
    },
    /// The code mixes whole generations only, and the repair symbol mixes only the first symbols of this one.
    RepairOfPart {
        /// How many symbols it mixes.
        count: u16,
        /// Symbols in the generation.
        expected: u16,
    },
    /// The code has no such repair symbol.
    Span(SpanError),
    /// The generation cannot end there: it has more symbols, was announced with fewer, or ended elsewhere.
    EndContradicts {
        /// The number of symbols that it would end with.
        count: u16,
        /// The fewest symbols that it may end with.
        least: u16,
        /// The most symbols that it may end with.
        most: u16,
    },
}

impl fmt::Display for RankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SourceOutside { index, limit } => {
                write!(f, "source symbol {index} is outside the generation of at most {limit}, indices count from 0")
            }
            Self::RepairOutside { count, limit } => {
                write!(f, "a repair symbol over {count} symbols is outside the generation of at most {limit}")
            }
            Self::RepairOfPart { count, expected } => {
                write!(f, "a repair symbol over {count} symbols, this code mixes all {expected} of the generation")
            }
            Self::Span(error) => error.fmt(f),
            Self::EndContradicts { count, least, most } => {
                write!(f, "the generation cannot end with {count} symbols, it has at least {least} and at most {most}")
            }
        }
    }
}

impl Error for RankError {}

impl From<SpanError> for RankError {
    fn from(error: SpanError) -> Self {
        Self::Span(error)
    }
}
