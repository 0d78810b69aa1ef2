//! The one generator of pseudo-random numbers: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom
//! number generators, OOPSLA 2014).
//!
//! The codes draw coefficients and neighbours by its output function, so the wire fixes its algorithm. The
//! simulator, the laboratory, examples and tests draw losses and contents from it: a run follows from its
//! seed alone. It is not for secrets.

/// SplitMix64: output n of a seed is [`mix`](Self::mix) of the seed plus n times [`STEP`](Self::STEP).
#[derive(Clone, Copy, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The distance of two states: 2^64 over the golden ratio, made odd.
    pub const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

    /// The sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The output function, a bijection: every bit of the result depends on every bit of `state`.
    #[inline(always)]
    pub const fn mix(state: u64) -> u64 {
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next 64 uniform bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(Self::STEP);
        Self::mix(self.state)
    }

    /// A number in `[0, 1)`, a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `bound`. Its bias is below `bound` / 2^64.
    ///
    /// # Panics
    /// Panics if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// Fills `bytes`, eight from each output.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.bits().to_le_bytes()[..part.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outputs_from_seed_zero_are_the_published_ones() {
        let mut random = SplitMix64::new(0);
        assert_eq!(random.bits(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(random.bits(), 0x6E78_9E6A_A1B9_65F4);
        let mut bytes = [0; 11];
        random.fill(&mut bytes);
        assert_eq!(bytes[..8], 0x06C4_5D18_8009_454F_u64.to_le_bytes());
        let mut next = SplitMix64::new(SplitMix64::STEP.wrapping_mul(3));
        assert_eq!(bytes[8..], next.bits().to_le_bytes()[..3]);
    }
}
