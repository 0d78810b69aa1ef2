//! AVX2: a product is two byte shuffles, one per nibble, out of tables held in registers.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::cpu::cpu;
use super::vector::{Vector, tier};
use crate::field::gf256::NIBBLES;

// One destination: 8 registers hold it, 2 the tables, 1 the nibble mask; 5 of the 16 are left for the
// product. 11 ran as fast, 6 slower, and prefetching the next block gained nothing (Zen 3, 32 and 128 packets
// in L2).
//
// Four: 4 x 2 hold them, 4 the nibbles of two source registers, and tables come from memory, one at a time. A
// product of 32 bytes for one destination is 3 operations of splitting, 2 shuffles, 2 exclusive ors; shared
// by four, 19 for four products instead of 28, so 1.47 times the rate where the vector units are the bound.
// Measured: 1.4 to 1.5.
tier!(AVX2, "avx2", "avx2", Avx2, 8, 2, || cpu().avx2);

#[derive(Clone, Copy)]
struct Avx2(__m256i);

/// Products with the low nibble and with the high nibble, each table twice (a shuffle stays within 16 bytes).
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

// SAFETY of every block below: the trait's contract, AVX2 is there and `load` and `store` get 32 bytes.
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
