//! AVX2: a product takes two byte shuffles, one for each nibble. The shuffles look the products up in tables
//! that registers hold.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::cpu::cpu;
use super::vector::{Vector, tier};
use crate::field::gf256::NIBBLES;

// One destination: 8 registers hold the destination, 2 the tables and 1 the nibble mask. The other 5 of the
// 16 are free for the product. Holding 11 registers was as fast, 6 was slower, and prefetching the next block
// gained nothing (Zen 3, 32 and 128 packets in L2).
//
// Four destinations: 4 x 2 registers hold the destinations and 4 hold the nibbles of two source registers.
// The tables are loaded from memory one at a time. For one destination, 32 bytes of product take 3 operations
// to split the source, 2 shuffles and 2 exclusive ors. Four destinations share the split: 19 operations for
// four products instead of 28. That is 1.47 times the rate where the vector units are the bottleneck.
// Measured: 1.4 to 1.5.
tier!(AVX2, "avx2", "avx2", Avx2, 8, 2, || cpu().avx2);

#[derive(Clone, Copy)]
struct Avx2(__m256i);

/// The products with the low nibble and with the high nibble. Each table is there twice, because a shuffle
/// stays within 16 bytes.
#[derive(Clone, Copy)]
struct Tables {
    low: __m256i,
    high: __m256i,
}

/// The low and the high nibble of every byte.
#[derive(Clone, Copy)]
struct Nibbles {
    low: __m256i,
    high: __m256i,
}

// SAFETY of every block below: by the trait's contract the processor has AVX2, and `load` and `store` get 32
// bytes.
impl Vector for Avx2 {
    const LEN: usize = 32;
    type Split = Nibbles;
    type Factor = Tables;

    #[inline(always)]
    unsafe fn factor(value: u8) -> Tables {
        let table = NIBBLES.0[usize::from(value)].as_ptr().cast::<__m128i>();
        // SAFETY: a table is 32 bytes; AVX2 as above.
        unsafe {
            Tables {
                low: _mm256_broadcastsi128_si256(_mm_loadu_si128(table)),
                high: _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(1))),
            }
        }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_and_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn split(self) -> Nibbles {
        // SAFETY: as above.
        unsafe {
            let nibble = _mm256_set1_epi8(0x0F);
            let low = _mm256_and_si256(self.0, nibble);
            let high = _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), nibble);
            Nibbles { low, high }
        }
    }

    #[inline(always)]
    unsafe fn mul(split: Nibbles, factor: Tables) -> Self {
        // SAFETY: as above.
        unsafe {
            let low = _mm256_shuffle_epi8(factor.low, split.low);
            Self(_mm256_xor_si256(low, _mm256_shuffle_epi8(factor.high, split.high)))
        }
    }
}
