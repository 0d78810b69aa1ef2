//! Erasure codes over GF(2^8): one encoder, one decoder, a rule for the coefficients, and a recoder for relays.
//!
//! A *source symbol* is a unit of original data with an id 0, 1, 2, ...; a *repair symbol* is a linear combination of
//! the source symbols of one *span*. Whoever received as many independent symbols as were lost gets all of them back,
//! whichever they are. A block code is spans that do not overlap; a sliding code is spans that do; a retransmission is
//! a span of one. A relay between the two makes new combinations of what it has ([`Recoder`]), without decoding. Who
//! holds whole blocks in memory of his own, storage for example, needs none of these: see [`generation`].
//!
//! ```
//! use tidewire_codec::{Code, Decoder, Encoder, Limits, RepairId, SourceId};
//!
//! let mut encoder = Encoder::new(1_408, 256);
//! for text in ["the tide", "comes in", "and goes out"] {
//!     encoder.push(text.as_bytes())?;
//! }
//!
//! // One repair symbol over all three: it can stand for any of them.
//! let id = RepairId { first: SourceId(0), count: 3, key: 7 };
//! let mut repair = [0; 1_408];
//! let len = encoder.write_repair(Code::Rlc, id, &mut repair)?;
//!
//! // Symbol 1 is lost on the way.
//! let mut decoder = Decoder::new(Limits { slot_len: 1_408, capacity: 256, max_span: 64, max_rows: 64 });
//! decoder.receive_source(SourceId(0), b"the tide")?;
//! decoder.receive_source(SourceId(2), b"and goes out")?;
//! decoder.receive_repair(Code::Rlc, id, &repair[..len])?;
//!
//! let repaired = decoder.symbol(SourceId(1)).expect("one loss, one repair symbol");
//! // A repaired symbol is as long as its repair; the rest is zero. Put the length inside where it matters.
//! assert!(repaired.starts_with(b"comes in") && repaired[8..].iter().all(|&byte| byte == 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here reads a clock, a socket or a source of randomness, and after the first use of each lane nothing
//! allocates. All memory is bounded by the numbers given at construction. The arithmetic runs on the fastest
//! [`kernel`](kernel::Kernel) this processor has, chosen once per process; `unsafe` lives there and nowhere else.
#![no_std]
#![deny(unsafe_code)]
extern crate alloc;

mod code;
mod decoder;
mod encoder;
mod error;
pub mod field;
pub mod generation;
mod id;
mod id_set;
#[allow(unsafe_code)]
pub mod kernel;
mod mix;
mod recoder;
mod ring;
mod tinymt;

pub use code::{Code, Row};
pub use decoder::{Decoded, Decoder, Limits, Reception};
pub use encoder::Encoder;
pub use error::{DecodeError, EncodeError, GenerationError, PlanError, RecodeError, SpanError};
pub use generation::{DecodePlan, Generation};
pub use id::{RepairId, SourceId};
pub use recoder::Recoder;
