//! `rusty_erasure`: ISA-L's Reed-Solomon in Rust. It reads symbols in place. It is timed once with its k x k
//! inversion in every call, and once with the plan for the loss pattern kept.

use rusty_erasure::{Coder, DecodePlan, Matrix};

use super::{Block, BlockCodec};
use crate::symbols::Symbols;

struct RustyErasure<'a> {
    block: &'a Block,
    coder: Coder,
    sources: Vec<&'a [u8]>,
    plan: Option<DecodePlan>,
    repairs: Symbols,
    decoded: Symbols,
}

/// Decoding with the inversion.
pub fn open(block: &Block) -> Option<Box<dyn BlockCodec + '_>> {
    Some(Box::new(codec(block)?))
}

/// Decoding with the plan known.
pub fn open_known(block: &Block) -> Option<Box<dyn BlockCodec + '_>> {
    let mut codec = codec(block)?;
    let present: Vec<bool> =
        (0..block.k()).map(|i| !block.is_lost(i)).chain((0..block.repairs).map(|_| true)).collect();
    codec.plan = Some(codec.coder.decode_plan(&present, &block.lost).expect("enough symbols are there"));
    Some(Box::new(codec))
}

fn codec(block: &Block) -> Option<RustyErasure<'_>> {
    let coder = rusty_erasure::coder(Matrix::cauchy(block.k(), block.repairs).ok()?).ok()?;
    let (repairs, decoded) =
        (Symbols::zeros(block.repairs, block.len()), Symbols::zeros(block.lost.len(), block.len()));
    Some(RustyErasure { block, coder, sources: block.slices(), plan: None, repairs, decoded })
}

impl BlockCodec for RustyErasure<'_> {
    fn encode(&mut self) {
        let mut repairs: Vec<&mut [u8]> = self.repairs.iter_mut().collect();
        self.coder.encode(&self.sources, &mut repairs).expect("symbols of one length");
    }

    fn decode(&mut self) {
        let mut symbols: Vec<Option<&[u8]>> = self.sources.iter().copied().map(Some).collect();
        self.block.lost.iter().for_each(|&lost| symbols[lost] = None);
        symbols.extend(self.repairs.iter().map(Some));
        let mut decoded: Vec<&mut [u8]> = self.decoded.iter_mut().collect();
        let result = match &self.plan {
            None => self.coder.recover(&symbols, &self.block.lost, &mut decoded),
            Some(plan) => self.coder.recover_with(plan, &symbols, &mut decoded),
        };
        result.expect("enough symbols are there");
    }

    fn decoded(&self) -> Vec<&[u8]> {
        self.decoded.iter().collect()
    }
}
