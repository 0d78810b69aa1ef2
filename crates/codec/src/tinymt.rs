//! TinyMT32, the pseudo-random generator of RFC 8682, from which [`Code::Rlc8681`](crate::Code::Rlc8681)
//! draws its coefficients.
//!
//! Every implementation of RFC 8681 must compute the same numbers, so nothing here can be chosen. The
//! parameter set is the one that RFC 8682 section 2.1 prescribes, and the RFC's own test values check the
//! outputs.

/// The parameter set of RFC 8682 section 2.1. The first two belong to the state's step, the third to the
/// output.
const MAT1: u32 = 0x8F70_11EE;
const MAT2: u32 = 0xFC78_FF1F;
const TMAT: u32 = 0x3793_FDFF;

/// Rounds that spread the seed over the state, and steps taken before the first output (RFC 8682 section
/// 2.1).
const SEED_ROUNDS: u32 = 8;
const STEPS_AHEAD: u32 = 8;

/// 127 bits of state; the period is 2^127 - 1.
#[derive(Clone, Debug)]
pub(crate) struct TinyMt32([u32; 4]);

impl TinyMt32 {
    pub fn new(seed: u32) -> Self {
        /// The multiplier with which the Mersenne Twister family spreads a seed.
        const SPREAD: u32 = 1_812_433_253;
        let mut state = [seed, MAT1, MAT2, TMAT];
        let mut before = seed;
        for round in 1..SEED_ROUNDS {
            let word = &mut state[round as usize % 4];
            *word ^= (before ^ before >> 30).wrapping_mul(SPREAD).wrapping_add(round);
            before = *word;
        }
        let mut generator = Self(state);
        (0..STEPS_AHEAD).for_each(|_| generator.step());
        generator
    }

    /// The next output, uniform over 32 bits.
    #[inline]
    pub fn draw(&mut self) -> u32 {
        self.step();
        let [low, _, middle, high] = self.0;
        let sum = low.wrapping_add(middle >> 8);
        high ^ sum ^ if_odd(sum, TMAT)
    }

    #[inline]
    fn step(&mut self) {
        let [s0, s1, s2, s3] = self.0;
        // The top bit of the first word is not part of the state.
        let x = (s0 & 0x7FFF_FFFF) ^ s1 ^ s2;
        let x = x ^ x << 1;
        let y = s3 ^ s3 >> 1 ^ x;
        self.0 = [s1, s2 ^ if_odd(y, MAT1), x ^ y << 10 ^ if_odd(y, MAT2), y];
    }
}

/// `mask` if `number` is odd, else 0. It has no branch, because the processor could not predict it.
#[inline]
const fn if_odd(number: u32, mask: u32) -> u32 {
    (number & 1).wrapping_neg() & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8682 section 2.3: the first outputs for seed 1 that every implementation must give.
    #[test]
    fn the_first_outputs_for_seed_1_are_those_of_the_rfc() {
        const EXPECTED: [u32; 10] = [
            2_545_341_989,
            981_918_433,
            3_715_302_833,
            2_387_538_352,
            3_591_001_365,
            3_820_442_102,
            2_114_400_566,
            2_196_103_051,
            2_783_359_912,
            764_534_509,
        ];
        let mut generator = TinyMt32::new(1);
        assert_eq!(EXPECTED.map(|_| generator.draw()), EXPECTED);
    }
}
