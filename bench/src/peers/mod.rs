//! Other erasure codes, each set up as someone would who wants it to win: objects reused, plans cached,
//! buffers on 64-byte boundaries, sizes it likes.
//!
//! The suite `blocks` opens every peer for every block it can do, lets it encode and then decode from its own
//! repair symbols, checks the result, and only then times the two. A peer is a file; what it is spared and
//! what it is not is said there, since a comparison is worth what its set-up is.

pub mod cu_fec;
mod fec_rs;
mod isal;
mod raptorq;
mod reed_solomon_simd;
mod rlnc;
mod rusty_erasure;

use crate::symbols::Symbols;

/// What is encoded, and which of it is lost.
pub struct Block {
    /// The source symbols, k of them.
    pub sources: Symbols,
    /// Repair symbols that the encoder makes.
    pub repairs: usize,
    /// Source symbols that the decoder does not get; it gets as many repair symbols.
    pub lost: Vec<usize>,
}

impl Block {
    /// Number of source symbols.
    pub fn k(&self) -> usize {
        self.sources.count()
    }

    /// Bytes of a symbol.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether source symbol `i` is lost.
    pub fn is_lost(&self, i: usize) -> bool {
        self.lost.contains(&i)
    }

    /// All source symbols.
    pub fn slices(&self) -> Vec<&[u8]> {
        self.sources.iter().collect()
    }
}

/// An encoder and decoder of one block.
pub trait BlockCodec {
    /// Makes all repair symbols.
    fn encode(&mut self);
    /// Makes the lost source symbols out of the others and the first repair symbols of the last
    /// [`encode`](Self::encode).
    fn decode(&mut self);
    /// The lost symbols as they were decoded, in the order of [`Block::lost`].
    fn decoded(&self) -> Vec<&[u8]>;
}

/// A way to use a peer.
pub struct Peer {
    /// Its row.
    pub name: &'static str,
    /// Whether its encoder is measured; not where only decoding differs from the row before.
    pub encodes: bool,
    /// Sets it up; `None` where it is not installed or cannot do the block.
    pub open: Open,
}

type Open = for<'a> fn(&'a Block) -> Option<Box<dyn BlockCodec + 'a>>;

/// Every peer, in the order of the table.
pub const PEERS: &[Peer] = &[
    Peer { name: "ISA-L", encodes: true, open: isal::open },
    Peer { name: "ISA-L, inverse known", encodes: false, open: isal::open_known },
    Peer { name: "`rusty_erasure` 0.4", encodes: true, open: rusty_erasure::open },
    Peer { name: "`rusty_erasure` 0.4, plan known", encodes: false, open: rusty_erasure::open_known },
    Peer { name: "`fec-rs` 0.1, inverse cached", encodes: true, open: fec_rs::open },
    Peer { name: "`rlnc` 0.8", encodes: true, open: rlnc::open },
    Peer { name: "`reed-solomon-simd` 3", encodes: true, open: reed_solomon_simd::open },
    Peer { name: "`raptorq` 2, plan cached", encodes: true, open: raptorq::open },
];
