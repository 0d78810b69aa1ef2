//! `fec-rs`: Reed-Solomon over GF(2^8). It reads symbols in place. It keeps the inverses of loss patterns it
//! has seen, and this benchmark has only one pattern, so its decoder is timed without the inversion.
#![allow(unsafe_code)]

use fec_rs::{ReconstructShard, ReedSolomon};

use super::{Block, BlockCodec};
use crate::symbols::Symbols;

struct FecRs<'a> {
    block: &'a Block,
    codec: ReedSolomon,
    sources: Vec<&'a [u8]>,
    repairs: Symbols,
    shards: Vec<Shard>,
}

pub fn open(block: &Block) -> Option<Box<dyn BlockCodec + '_>> {
    let (k, r) = (block.k(), block.repairs);
    let codec = ReedSolomon::new(k, r).ok()?;
    let mut shards: Vec<Shard> =
        (0..k + r).map(|_| Shard { bytes: Symbols::zeros(1, block.len()), is_there: false }).collect();
    for i in (0..k).filter(|&i| !block.is_lost(i)) {
        shards[i].put(block.sources.get(i));
    }
    Some(Box::new(FecRs { block, codec, sources: block.slices(), repairs: Symbols::zeros(r, block.len()), shards }))
}

impl BlockCodec for FecRs<'_> {
    fn encode(&mut self) {
        let mut repairs: Vec<&mut [u8]> = self.repairs.iter_mut().collect();
        self.codec.encode_sep(&self.sources, &mut repairs).expect("symbols of one length");
    }

    fn decode(&mut self) {
        let (sources, repairs) = self.shards.split_at_mut(self.block.k());
        for (shard, repair) in repairs.iter_mut().zip(self.repairs.iter()).take(self.block.lost.len()) {
            if !shard.is_there {
                shard.put(repair);
            }
        }
        self.block.lost.iter().for_each(|&lost| sources[lost].is_there = false);
        self.codec.reconstruct_data(&mut self.shards).expect("enough symbols are there");
    }

    fn decoded(&self) -> Vec<&[u8]> {
        self.block.lost.iter().map(|&lost| self.shards[lost].bytes.get(0)).collect()
    }
}

/// A symbol that keeps its memory while it is lost; an `Option<Vec<u8>>` would not.
struct Shard {
    bytes: Symbols,
    is_there: bool,
}

impl Shard {
    fn put(&mut self, symbol: &[u8]) {
        self.bytes.get_mut(0).copy_from_slice(symbol);
        self.is_there = true;
    }
}

// SAFETY: the trait requires that shards do not share memory. Each shard owns its allocation, which never
// moves.
unsafe impl ReconstructShard for Shard {
    fn len(&self) -> Option<usize> {
        self.is_there.then(|| self.bytes.len())
    }

    fn get(&self) -> Option<&[u8]> {
        self.is_there.then(|| self.bytes.get(0))
    }

    fn get_mut(&mut self) -> Option<&mut [u8]> {
        if self.is_there { Some(self.bytes.get_mut(0)) } else { None }
    }

    fn initialize(&mut self, len: usize) {
        assert_eq!(len, self.bytes.len());
        self.is_there = true;
    }
}
