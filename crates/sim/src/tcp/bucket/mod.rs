//! Buckets under TCP: NewReno whose segments leave as combinations, and whose acknowledgements count degrees
//! of freedom (Bhat and McNair, "Delivering Low Latency Video using TCP with Network Coding over Wireless
//! Network").
//!
//! A network's flow of the carrier `Bucket` is the caller. [`Coder`] holds the [`Sender`](super::Sender) of
//! the usual model, takes as many segments as [`Rule`] says, and makes `Gamma` combinations for each over
//! GF(2^16). [`Decoder`] counts the innovative ones, and decodes a bucket when it has as many as symbols.
//! Source segments are not sent themselves.
//!
//! What the paper leaves open is chosen here:
//!
//! - The degrees of freedom of a bucket count only while all earlier buckets are complete. So a bucket that
//!   lacks combinations stops the acknowledgements, combinations of later buckets cause duplicate ones, and
//!   TCP sends again. A combination that is no news is acknowledged only if it answers for a repeated
//!   segment. Each ACK leaves at once.
//! - A segment that TCP sends again is a new combination of its bucket, so it fills any gap.
//! - A zero-payload packet of a fixed bucket takes a place in the window (Figure 2 of the paper has two
//!   combinations of two segments, and two of one and a zero-payload packet, in a window of four). Its degree
//!   is confirmed before those of the segments, so TCP holds a segment until the bucket can be decoded.
//!
//! Invariants: every bucket has 1 to `cap` symbols; nothing is delivered that was not decoded and compared
//! with what was sent.

mod decoder;
mod rule;
mod sender;

#[cfg(test)]
mod tests;

use tidewire_codec::{Code, Generation, SourceId};
use tidewire_proto::Time;

pub use decoder::{Decoder, DecoderStats};
pub use rule::{Offer, Rule};
pub use sender::{Coder, CoderStats};

/// Header of a combination behind that of TCP: 4 bytes number of the bucket, 8 bits its size and 16 bits the
/// seed of the coefficients (Figure 5 of the paper names the last two), and 1 byte of flags.
pub const CODING_HEADER: usize = 8;
/// Bytes before the payload of each symbol: its length, since symbols of a bucket are as long as the longest.
const LENGTH: usize = 2;
/// Largest payload of a segment, so that a combination fits a packet of 1,500 bytes.
pub const SEGMENT: u32 = super::SEGMENT_BYTES - CODING_HEADER as u32 - LENGTH as u32;
/// The receiver's window in bytes: the largest of the usual model. It does not grow here, because it never
/// limits a video.
pub const RECEIVE_WINDOW: u64 = 2_629_632;
/// Most symbols of a bucket: what 8 bits can say (Figure 5).
pub const MOST_SYMBOLS: u16 = 255;

/// What the receiver confirms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirms {
    /// Each innovative combination, which the paper describes (section 4.1.2).
    #[default]
    Degrees,
    /// Buckets that were decoded: the only way in which a long bucket can cause a timeout (section 4.4).
    Buckets,
}

/// The code of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coding {
    /// How many segments a bucket takes.
    pub rule: Rule,
    /// Most symbols of a bucket; all of them of a fixed one. From 1 to [`MOST_SYMBOLS`].
    pub cap: u16,
    /// Combinations per symbol. The fraction is carried.
    pub gamma: f64,
    /// What is acknowledged.
    pub confirms: Confirms,
}

/// A packet with data: one combination of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combination {
    /// Number of the bucket, from 0.
    pub bucket: u64,
    /// Symbols of the bucket.
    pub size: u16,
    /// Seed of the coefficients, which no other combination of the bucket has.
    pub seed: u16,
    /// Whether it answers for a segment that TCP sent again.
    pub is_repeat: bool,
    /// When it was sent.
    pub stamp: Time,
    /// The symbol.
    pub bytes: Vec<u8>,
}

impl Combination {
    /// Length of its IP packet.
    pub fn ip_bytes(&self) -> usize {
        super::HEADERS + CODING_HEADER + self.bytes.len()
    }
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DegreeAck {
    /// Innovative combinations of the first buckets: all of those that are complete, and of the next one.
    pub degrees: u64,
    /// The stamp of the combination that caused it.
    pub echo: Time,
}

impl DegreeAck {
    /// Length of its IP packet.
    pub fn ip_bytes(&self) -> usize {
        super::HEADERS
    }
}

/// The coefficients of a bucket: those of generation `number` of this many symbols.
fn generation(number: u64, size: u16) -> Option<Generation> {
    // Ids of different buckets do not overlap, so their coefficients differ.
    Generation::new(Code::Rlc16, size).ok()?.at(SourceId(number * u64::from(MOST_SYMBOLS + 1))).ok()
}
