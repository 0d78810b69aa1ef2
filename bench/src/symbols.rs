//! Symbols for the measurements: of equal length, in one block of memory, at a chosen distance from 64-byte
//! boundaries.
//!
//! Every suite stores its sources and results here, for Tidewire and the peers alike. The start of a symbol
//! decides up to a third of a kernel's speed (measured on the reference machine), so it must be chosen and
//! the same for all.

use tidewire_codec::SplitMix64;

/// Equally long symbols.
pub struct Symbols {
    memory: Vec<u8>,
    start: usize,
    stride: usize,
    len: usize,
    count: usize,
}

impl Symbols {
    /// `count` symbols of `len` zeros, each on a 64-byte boundary.
    pub fn zeros(count: usize, len: usize) -> Self {
        Self::misaligned(count, len, 0)
    }

    /// `count` symbols of `len` bytes that look random, each on a 64-byte boundary.
    pub fn noise(count: usize, len: usize) -> Self {
        Self::misaligned(count, len, 0).filled()
    }

    /// `count` symbols of `len` zeros, each `offset` bytes after a 64-byte boundary.
    pub fn misaligned(count: usize, len: usize, offset: usize) -> Self {
        let stride = (len + offset).next_multiple_of(LINE);
        let memory = vec![0; count * stride + 2 * LINE];
        let start = memory.as_ptr().align_offset(LINE) + offset;
        Self { memory, start, stride, len, count }
    }

    /// The same with bytes that look random.
    pub fn filled(mut self) -> Self {
        // The only requirement is that no two symbols are equal.
        let mut random = SplitMix64::new(0);
        self.iter_mut().for_each(|symbol| random.fill(symbol));
        self
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of each.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Symbol `i`.
    pub fn get(&self, i: usize) -> &[u8] {
        &self.memory[self.start + i * self.stride..][..self.len]
    }

    /// Symbol `i`, to be written.
    pub fn get_mut(&mut self, i: usize) -> &mut [u8] {
        &mut self.memory[self.start + i * self.stride..][..self.len]
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.count).map(|i| self.get(i))
    }

    /// All of them, to be written at once.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let len = self.len;
        self.memory[self.start..].chunks_mut(self.stride).take(self.count).map(move |symbol| &mut symbol[..len])
    }
}

/// A cache line and the widest register.
const LINE: usize = 64;

/// A product in GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1, by shift and add. All kernels are checked against
/// it.
pub fn product(a: u8, b: u8) -> u8 {
    let (mut a, mut sum) = (u16::from(a), 0);
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            sum ^= a;
        }
        a <<= 1;
        if a & 0x100 != 0 {
            a ^= 0x11D;
        }
    }
    sum as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_lie_where_they_were_asked_for_and_do_not_overlap() {
        for offset in [0, 16, 32] {
            let mut symbols = Symbols::misaligned(5, 100, offset);
            for (i, symbol) in symbols.iter_mut().enumerate() {
                symbol.fill(i as u8 + 1);
            }
            for (i, symbol) in symbols.iter().enumerate() {
                assert_eq!(symbol.as_ptr() as usize % LINE, offset);
                assert_eq!(symbol, [i as u8 + 1; 100]);
            }
        }
    }

    #[test]
    fn the_product_is_that_of_the_field() {
        assert_eq!(product(0x80, 2), 0x1D);
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(product(a, b), tidewire_codec::field::gf256::mul(a, b));
            }
        }
    }
}
