//! GFNI: a product is one instruction, which multiplies each byte by an 8 x 8 bit matrix. Processors without
//! AVX-512 (client processors) use 256-bit registers, others 512-bit registers.
//!
//! GF2P8AFFINEQB takes any matrix and so works for any field polynomial. GF2P8MULB has the polynomial 0x11B
//! built in, which this code does not use.

use core::arch::x86_64::{
    __m256i, __m512i, _mm256_and_si256, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi64x,
    _mm256_storeu_si256, _mm256_xor_si256, _mm512_and_si512, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_set1_epi64, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::cpu::cpu;
use super::vector::{Vector, tier};
use crate::field::gf256::MATRICES;

// 11 registers for one destination: a packet of 1,408 bytes is two blocks of 11 x 64 bytes or four of 11 x
// 32, and 16 registers are enough. Four destinations use 4 x 2 of 16 registers, or 4 x 4 of 32. The rule for
// the registers needed is (destinations + 1) x registers + 1.
tier!(GFNI_256, "gfni-256", "avx2,gfni", Gfni256, 11, 2, || cpu().avx2 && cpu().gfni);
tier!(GFNI_512, "gfni-512", "avx512f,avx512dq,gfni", Gfni512, 11, 4, || cpu().avx512 && cpu().gfni);

#[derive(Clone, Copy)]
struct Gfni256(__m256i);

#[derive(Clone, Copy)]
struct Gfni512(__m512i);

// SAFETY of every block below: by the trait's contract the processor has GFNI and AVX2, and `load` and
// `store` get 32 bytes.
impl Vector for Gfni256 {
    const LEN: usize = 32;
    type Split = Self;
    type Factor = __m256i;

    #[inline(always)]
    unsafe fn factor(value: u8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_set1_epi64x(MATRICES[usize::from(value)].cast_signed()) }
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
    unsafe fn split(self) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn mul(split: Self, factor: __m256i) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(split.0, factor) })
    }
}

// SAFETY of every block below: by the trait's contract the processor has GFNI and AVX-512 F, and `load` and
// `store` get 64 bytes.
impl Vector for Gfni512 {
    const LEN: usize = 64;
    type Split = Self;
    type Factor = __m512i;

    #[inline(always)]
    unsafe fn factor(value: u8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_set1_epi64(MATRICES[usize::from(value)].cast_signed()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_and_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn split(self) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn mul(split: Self, factor: __m512i) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(split.0, factor) })
    }
}
