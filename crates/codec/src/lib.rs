//! Erasure codes over GF(2^8) for blocks, sliding windows and relays, and over GF(2^16) for blocks. They use
//! the fastest vector instructions of the machine and bounded memory.
//!
//! A *source symbol* is a unit of original data with an id 0, 1, 2, ...; a *repair symbol* is a linear
//! combination of the source symbols of one *span*. A receiver that has as many independent repair symbols as
//! it lost source symbols decodes all of them, whichever were lost. In a block code the spans do not overlap,
//! in a sliding code they do, and a retransmission is a span of one. A [`Code`] is the rule that gives the
//! coefficients. All codes work everywhere, except [`Code::Rlc16`], `RsFft`, `RaptorQ` and the sparse codes,
//! which are for blocks only. `RsFft` comes with the feature `rs-fft` and `RaptorQ` with the feature
//! `raptorq`, which bring in other crates.
//!
//! # Simple: a block in memory
//!
//! [`Generation`] and [`DecodePlan`] work in place on slices: use them for storage, multicast, or any block
//! that is in memory. [`generation`] shows more, for example one plan for many stripes.
//!
//! ```
//! use tidewire_codec::{Code, Generation};
//!
//! let data = [*b"the tide", *b"comes in", *b"goes out"];
//! let block = Generation::new(Code::Cauchy, 3)?;
//! let mut repairs = [[0; 8]; 2];
//! block.encode(&data, 0, &mut repairs)?;
//!
//! // Symbols 0 and 2 are lost; both repair symbols arrived.
//! let mut decoded = [[0; 8]; 2];
//! block.plan(&[0, 2], &[0, 1])?.decode(&[&[], &data[1][..], &[]], &repairs, &mut decoded)?;
//! assert_eq!(decoded, [*b"the tide", *b"goes out"]);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # Basic: a stream of packets
//!
//! [`Encoder`] keeps sent symbols until they are released, and mixes any span of them. [`Decoder`] takes
//! symbols in any order and decodes each lost one as soon as it is determined. It is reorder buffer and read
//! buffer in one.
//!
//! ```
//! use tidewire_codec::{Code, Decoder, Encoder, Limits, RepairId, SourceId};
//!
//! let mut encoder = Encoder::new(1_408, 256);
//! for text in ["the tide", "comes in", "and goes out"] {
//!     encoder.push(text.as_bytes())?;
//! }
//!
//! // One repair symbol over all three: it can replace any one of them.
//! let id = RepairId { first: SourceId(0), count: 3, key: 7 };
//! let mut repair = [0; 1_408];
//! let len = encoder.write_repair(Code::Rlc, id, &mut repair)?;
//!
//! // Symbol 1 is lost.
//! let mut decoder = Decoder::new(Limits { slot_len: 1_408, capacity: 256, max_span: 64, max_rows: 64 });
//! decoder.receive_source(SourceId(0), b"the tide")?;
//! decoder.receive_source(SourceId(2), b"and goes out")?;
//! decoder.receive_repair(Code::Rlc, id, &repair[..len])?;
//!
//! let repaired = decoder.symbol(SourceId(1)).expect("one loss, one repair symbol");
//! // A repaired symbol is as long as its repair, with zeros at the end. Put the length inside if it matters.
//! assert!(repaired.starts_with(b"comes in") && repaired[8..].iter().all(|&byte| byte == 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Advanced: relays
//!
//! A [`Recoder`] sits between encoder and decoder. It makes new combinations of the symbols it has received,
//! without decoding, and sends their coefficients along. Later relays do the same with those. A symbol that
//! reaches the end is as useful as one that the source sent over a single hop.
//!
//! ```
//! use tidewire_codec::{Decoder, Limits, Recoder, SourceId};
//!
//! let mut relay = Recoder::new(64, 4);
//! relay.begin(SourceId(0), 2)?;
//! relay.receive_source(SourceId(0), b"high")?;
//! relay.receive_source(SourceId(1), b"low ")?;
//!
//! let mut decoder = Decoder::new(Limits { slot_len: 64, capacity: 16, max_span: 4, max_rows: 4 });
//! let (mut coefficients, mut symbol) = ([0; 2], [0; 64]);
//! for key in 0..2 {
//!     let len = relay.write_recoded(key, &mut coefficients, &mut symbol)?;
//!     decoder.receive_recoded(SourceId(0), &coefficients, &symbol[..len])?;
//! }
//! assert_eq!(decoder.symbol(SourceId(0)), Some(&b"high"[..]));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//! An [`Echelon`] keeps only the coding vectors: it says which symbols are innovative, without their bytes.
//! `examples/relay.rs` sends through two relays over three hops that all lose packets.
//!
//! # What holds everywhere
//! This crate reads no clock, no socket and no source of randomness. The numbers given at construction bound
//! all memory; a plan's memory is bounded by its generation. After the first loss, a lane allocates nothing
//! until it grows.
//!
//! No received symbol causes a panic. An error names the wrong number and the limit it broke, and leaves the
//! state unchanged.
//!
//! Symbols are kept in slots that begin on 64-byte boundaries. A received symbol is copied there once, from
//! any alignment, and the arithmetic reads only slots. It runs on the fastest [`kernel`](kernel::Kernel) of
//! this processor, chosen once per process. Only that module contains `unsafe`.
#![no_std]
#![deny(unsafe_code)]
#![warn(clippy::exhaustive_enums)]
extern crate alloc;

mod code;
mod decoder;
mod echelon;
mod encoder;
mod error;
pub mod field;
pub mod generation;
mod id;
mod id_set;
#[allow(unsafe_code)]
pub mod kernel;
mod mix;
mod neighbours;
mod prepared;
mod random;
#[cfg(feature = "raptorq")]
mod raptorq;
mod recoder;
mod ring;
mod row_16;
mod soliton;
mod tinymt;

pub use code::{Code, Row};
pub use decoder::{Decoded, Decoder, Limits, Reception};
pub use echelon::Echelon;
pub use encoder::Encoder;
pub use error::{DecodeError, EncodeError, RecodeError, SpanError};
pub use generation::{
    DecodePlan, Elimination, Generation, GenerationError, PeelingDecoder, PlanError, Rank, RankError, ShortDecoder,
};
pub use id::{RepairId, SourceId};
pub use neighbours::Neighbours;
pub use prepared::Prepared;
pub use random::SplitMix64;
pub use recoder::Recoder;
pub use row_16::Row16;

/// The documentation tests compile the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
