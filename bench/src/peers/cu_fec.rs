//! `cu-fec`: the sliding code of RFC 8681. It does not allocate, and the compiler knows its sizes.

use cu_fec::{DensityThreshold, EncodingSymbolId, Field, RepairParameters, RlcConfig, RlcEncoder};

use crate::stream::LEN;
use crate::symbols::Symbols;

/// The peer's encoder, over the last symbols pushed.
pub struct CuFec {
    encoder: Box<RlcEncoder<LEN, { CuFec::LONGEST as usize }>>,
    key: u16,
    out: Symbols,
}

impl CuFec {
    /// The longest window that this benchmark builds it for.
    pub const LONGEST: u16 = 128;

    /// An encoder with a window of zeros, as in the other benchmarks.
    pub fn new(window: u16) -> Self {
        let config = RlcConfig::new(LEN, window.into(), Field::Gf256).expect("sizes that it takes");
        let encoder = RlcEncoder::new(config, EncodingSymbolId::new(0)).expect("sizes that it takes");
        let mut peer = Self { encoder: Box::new(encoder), key: 0, out: Symbols::zeros(1, LEN) };
        (0..window).for_each(|_| peer.push(&[0; LEN]));
        peer
    }

    /// Takes a source symbol; the oldest leaves the window.
    pub fn push(&mut self, symbol: &[u8]) {
        self.encoder.push_source(symbol).expect("a symbol of the right length");
    }

    /// Makes the next repair symbol.
    pub fn write_repair(&mut self) {
        self.key = self.key.wrapping_add(1);
        let parameters = RepairParameters::new(self.key, DensityThreshold::FULL);
        self.encoder.encode_repair(parameters, std::hint::black_box(self.out.get_mut(0))).expect("a window");
    }

    /// The last repair symbol that was made.
    pub fn repair(&self) -> &[u8] {
        self.out.get(0)
    }
}
