//! Other erasure codes. Each is set up to be as fast as possible: objects reused, plans cached, buffers on
//! 64-byte boundaries, and sizes that suit it.
//!
//! The suite `blocks` opens every peer for every block that it can do. It lets the peer encode and then
//! decode from its own repair symbols, checks the result, and only then times both. Each peer has a file,
//! which says which work is inside and outside its time: a comparison is only as good as its set-up.

pub mod cu_fec;
mod fec_rs;
mod isal;
mod raptorq;
mod reed_solomon_simd;
mod rlnc;
mod rusty_erasure;

use crate::symbols::Symbols;

/// A block to encode, and which of its symbols are lost.
pub struct Block {
    /// The source symbols, k of them.
    pub sources: Symbols,
    /// Number of repair symbols that the encoder makes.
    pub repairs: usize,
    /// Source symbols that the decoder does not get. It gets the same number of repair symbols instead.
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
    /// Decodes the lost source symbols from the others and the first repair symbols of the last
    /// [`encode`](Self::encode).
    fn decode(&mut self);
    /// The decoded lost symbols, in the order of [`Block::lost`].
    fn decoded(&self) -> Vec<&[u8]>;
}

/// A way to use a peer.
pub struct Peer {
    /// The name of its row.
    pub name: &'static str,
    /// Whether its encoder is measured. False if only decoding differs from the row before.
    pub encodes: bool,
    /// Sets the peer up. `None` if it is not installed or cannot do the block.
    pub open: Open,
}

type Open = for<'a> fn(&'a Block) -> Option<Box<dyn BlockCodec + 'a>>;

/// The row of the peer that has the same code as `Code::RaptorQ`.
pub const RAPTORQ: &str = "`raptorq` 2, plan cached";

/// Every peer, in the order of the table.
pub const PEERS: &[Peer] = &[
    Peer { name: "ISA-L", encodes: true, open: isal::open },
    Peer { name: "ISA-L, inverse known", encodes: false, open: isal::open_known },
    Peer { name: "`rusty_erasure` 0.4", encodes: true, open: rusty_erasure::open },
    Peer { name: "`rusty_erasure` 0.4, plan known", encodes: false, open: rusty_erasure::open_known },
    Peer { name: "`fec-rs` 0.1, inverse cached", encodes: true, open: fec_rs::open },
    Peer { name: "`rlnc` 0.8", encodes: true, open: rlnc::open },
    Peer { name: "`reed-solomon-simd` 3", encodes: true, open: reed_solomon_simd::open },
    Peer { name: RAPTORQ, encodes: true, open: raptorq::open },
];
