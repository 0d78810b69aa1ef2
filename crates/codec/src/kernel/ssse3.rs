//! SSSE3: the shuffles of AVX2 in registers of half the width, for x86-64 processors without AVX2.

use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_loadu_si128, _mm_set1_epi8, _mm_shuffle_epi8, _mm_srli_epi64, _mm_storeu_si128,
    _mm_xor_si128,
};

use super::cpu::cpu;
use super::vector::{Vector, tier};
use crate::field::gf256::NIBBLES;

// The same as for AVX2, except that a shuffle overwrites its table. The copies of the tables take registers
// too, so 8 would spill.
tier!(SSSE3, "ssse3", "ssse3", Ssse3, 6, 2, || cpu().ssse3);

#[derive(Clone, Copy)]
struct Ssse3(__m128i);

/// The products with the low nibble and with the high nibble.
#[derive(Clone, Copy)]
struct Tables {
    low: __m128i,
    high: __m128i,
}

/// The low and the high nibble of every byte.
#[derive(Clone, Copy)]
struct Nibbles {
    low: __m128i,
    high: __m128i,
}

// SAFETY of every block below: by the trait's contract the processor has SSSE3, and `load` and `store` get 16
// bytes.
impl Vector for Ssse3 {
    const LEN: usize = 16;
    type Split = Nibbles;
    type Factor = Tables;

    #[inline(always)]
    unsafe fn factor(value: u8) -> Tables {
        let table = NIBBLES.0[usize::from(value)].as_ptr().cast::<__m128i>();
        // SAFETY: a table is 32 bytes; SSSE3 as above.
        unsafe { Tables { low: _mm_loadu_si128(table), high: _mm_loadu_si128(table.add(1)) } }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm_loadu_si128(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as above.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm_xor_si128(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm_and_si128(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn split(self) -> Nibbles {
        // SAFETY: as above.
        unsafe {
            let nibble = _mm_set1_epi8(0x0F);
            let low = _mm_and_si128(self.0, nibble);
            let high = _mm_and_si128(_mm_srli_epi64::<4>(self.0), nibble);
            Nibbles { low, high }
        }
    }

    #[inline(always)]
    unsafe fn mul(split: Nibbles, factor: Tables) -> Self {
        // SAFETY: as above.
        unsafe {
            let low = _mm_shuffle_epi8(factor.low, split.low);
            Self(_mm_xor_si128(low, _mm_shuffle_epi8(factor.high, split.high)))
        }
    }
}
