//! `rlnc`: random linear network coding, not systematic. The encoder's copy of the data is made before. The
//! decoder gets source symbols as pieces with a unit vector, then the coded ones: it decodes fastest in this
//! order. The decoder is cubic in the number of pieces, so from k = 1,024 on a round would take minutes.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rlnc::full::{Decoder, Encoder};

use super::{Block, BlockCodec};

struct Rlnc<'a> {
    block: &'a Block,
    encoder: Encoder,
    rng: SmallRng,
    /// Coefficients and bytes of source pieces and of coded pieces.
    sources: Vec<Vec<u8>>,
    coded: Vec<Vec<u8>>,
    decoded: Vec<u8>,
}

pub fn open(block: &Block) -> Option<Box<dyn BlockCodec + '_>> {
    const LONGEST: usize = 256;
    let k = block.k();
    if k > LONGEST {
        return None;
    }
    let mut data = block.slices().concat();
    // The crate adds an end mark after the data. One byte less makes the pieces as long as the block's
    // symbols.
    data.pop();
    let encoder = Encoder::new(data, k).ok()?;
    assert_eq!(encoder.get_piece_byte_len(), block.len());
    let piece = |i: usize| {
        let mut piece = vec![0; k];
        piece[i] = 1;
        piece.extend_from_slice(block.sources.get(i));
        if i == k - 1 {
            *piece.last_mut().expect("it has bytes") = END_MARK;
        }
        piece
    };
    let sources = (0..k).filter(|&i| !block.is_lost(i)).map(piece).collect();
    let coded = vec![vec![0; k + block.len()]; block.repairs];
    Some(Box::new(Rlnc { block, encoder, rng: SmallRng::seed_from_u64(1), sources, coded, decoded: Vec::new() }))
}

impl BlockCodec for Rlnc<'_> {
    fn encode(&mut self) {
        for piece in &mut self.coded {
            self.encoder.code_with_buf(&mut self.rng, piece).expect("a buffer of the right length");
        }
    }

    fn decode(&mut self) {
        let mut decoder = Decoder::new(self.block.len(), self.block.k()).expect("sizes that it takes");
        for piece in self.sources.iter().chain(&self.coded) {
            if decoder.is_already_decoded() {
                break;
            }
            // A piece may be redundant; then the next one replaces it.
            let _ = decoder.decode(piece);
        }
        self.decoded = decoder.get_decoded_data().expect("enough pieces are there");
    }

    fn decoded(&self) -> Vec<&[u8]> {
        let symbols: Vec<&[u8]> = self.decoded.chunks(self.block.len()).collect();
        self.block.lost.iter().map(|&lost| symbols[lost]).collect()
    }
}

/// The end mark that the crate puts after the data.
const END_MARK: u8 = 0x81;
