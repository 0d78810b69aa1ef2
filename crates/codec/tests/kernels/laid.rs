//! Symbols at all lengths and misalignments, and the bytes around them that must not change.

/// The longest symbol tried. Every length up to it is tried, except under Miri.
const LONGEST: usize = if cfg!(miri) { 1_037 } else { 4_096 };

/// The misalignments tried cover a cache line, which is also the widest register.
pub const LINE: usize = 64;

/// Bytes that look random, different for each `salt`.
pub fn noise(salt: u32) -> Vec<u8> {
    (0..LONGEST as u32).map(|i| ((i + 1).wrapping_mul(0x9E37_79B9 ^ (salt << 7 | 1)) >> 19) as u8).collect()
}

/// Lengths and misalignments. Every length is tried with every misalignment of the source, and lengths over
/// 64 with every pair of misalignments.
pub fn cases() -> impl Iterator<Item = (usize, usize, usize)> {
    // For Miri: each step of the loops (blocks, single registers, reaching back, bytes) at every register
    // length.
    const STEPS: &[usize] = &[0, 1, 17, 33, 65, 191, 421, 1_037];
    let few = tidewire_testing::few_seeds();
    let (step, is_tried): (usize, fn(&usize) -> bool) = match (cfg!(miri), few) {
        (true, _) => (37, |len| STEPS.contains(len)),
        (_, true) => (5, |len| *len < 2 * LINE || len % 97 == 0),
        _ => (1, |_| true),
    };
    let misalignments = (0..LINE).step_by(step);
    let lengths = (0..=LONGEST).filter(is_tried);
    lengths.flat_map(move |len| misalignments.clone().map(move |from| (len, from, (from + len) % LINE)))
}

/// A buffer that can hold symbols at any distance from a 64-byte boundary.
pub struct Bench {
    memory: Vec<u8>,
    start: usize,
}

impl Bench {
    /// The bytes around the symbol, which must still be there afterwards.
    const GUARD: u8 = 0xA5;

    pub fn new() -> Self {
        let memory = vec![Self::GUARD; LONGEST + 4 * LINE];
        let start = memory.as_ptr().align_offset(LINE) + LINE;
        Self { memory, start }
    }

    pub fn lay(&mut self, at: usize, bytes: &[u8]) -> &mut [u8] {
        let slot = &mut self.memory[self.start + at..][..bytes.len()];
        slot.copy_from_slice(bytes);
        slot
    }

    /// Checks the symbol and its surroundings, and wipes it.
    pub fn check(&mut self, at: usize, expected: &[u8], what: impl Fn() -> String) {
        let (before, rest) = self.memory.split_at_mut(self.start + at);
        let (symbol, after) = rest.split_at_mut(expected.len());
        assert!(symbol == expected, "{}", what());
        let guards = [&before[before.len() - LINE..], &after[..LINE]];
        assert!(guards.iter().all(|guard| **guard == [Self::GUARD; LINE]), "{} wrote outside", what());
        symbol.fill(Self::GUARD);
    }
}
