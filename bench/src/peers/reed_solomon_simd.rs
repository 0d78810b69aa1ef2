//! `reed-solomon-simd`: Leopard's transform over GF(2^16). Encoder and decoder objects are reused. Symbols
//! are copied into them; the copy is part of the time, because its users pay for it too.

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use super::{Block, BlockCodec};
use crate::symbols::Symbols;

struct ReedSolomonSimd<'a> {
    block: &'a Block,
    encoder: ReedSolomonEncoder,
    decoder: ReedSolomonDecoder,
    repairs: Symbols,
    decoded: Symbols,
}

pub fn open(block: &Block) -> Option<Box<dyn BlockCodec + '_>> {
    let (k, r, len) = (block.k(), block.repairs, block.len());
    Some(Box::new(ReedSolomonSimd {
        block,
        encoder: ReedSolomonEncoder::new(k, r, len).ok()?,
        decoder: ReedSolomonDecoder::new(k, r, len).ok()?,
        repairs: Symbols::zeros(r, len),
        decoded: Symbols::zeros(block.lost.len(), len),
    }))
}

impl BlockCodec for ReedSolomonSimd<'_> {
    fn encode(&mut self) {
        for source in self.block.sources.iter() {
            self.encoder.add_original_shard(source).expect("a symbol of the right length");
        }
        let result = self.encoder.encode().expect("all symbols are there");
        self.repairs.iter_mut().zip(result.recovery_iter()).for_each(|(to, from)| to.copy_from_slice(from));
    }

    fn decode(&mut self) {
        for (i, source) in self.block.sources.iter().enumerate().filter(|(i, _)| !self.block.is_lost(*i)) {
            self.decoder.add_original_shard(i, source).expect("a symbol of the right length");
        }
        for (i, repair) in self.repairs.iter().take(self.block.lost.len()).enumerate() {
            self.decoder.add_recovery_shard(i, repair).expect("a symbol of the right length");
        }
        let result = self.decoder.decode().expect("enough symbols are there");
        for (to, &lost) in self.decoded.iter_mut().zip(&self.block.lost) {
            to.copy_from_slice(result.restored_original(lost).expect("it was lost"));
        }
    }

    fn decoded(&self) -> Vec<&[u8]> {
        self.decoded.iter().collect()
    }
}
