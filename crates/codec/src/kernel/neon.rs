//! NEON: a product takes two table look-ups, one for each nibble, in tables that registers hold. Every
//! AArch64 processor that runs floating-point code has NEON, so nothing is detected.

use core::arch::aarch64::{uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8};

use super::vector::{Vector, tier};
use crate::field::gf256::NIBBLES;

// One destination: 11 of the 32 registers hold the destination, 2 the tables and 1 the nibble mask. A packet
// of 1,408 bytes is eight blocks. Four destinations: 4 x 3 registers hold them and 6 hold the nibbles of
// three source registers. The compiler overlaps so many products that 16 and 4 x 4, which would fit, spill
// (rustc 1.95).
tier!(NEON, "neon", "neon", Neon, 11, 3, || true);

#[derive(Clone, Copy)]
struct Neon(uint8x16_t);

/// The products with the low nibble and with the high nibble.
#[derive(Clone, Copy)]
struct Tables {
    low: uint8x16_t,
    high: uint8x16_t,
}

/// The low and the high nibble of every byte.
#[derive(Clone, Copy)]
struct Nibbles {
    low: uint8x16_t,
    high: uint8x16_t,
}

// SAFETY of every block below: by the trait's contract the processor has NEON, and `load` and `store` get 16
// bytes.
impl Vector for Neon {
    const LEN: usize = 16;
    type Split = Nibbles;
    type Factor = Tables;

    #[inline(always)]
    unsafe fn factor(value: u8) -> Tables {
        let table = NIBBLES.0[usize::from(value)].as_ptr();
        // SAFETY: a table is 32 bytes; NEON as above.
        unsafe { Tables { low: vld1q_u8(table), high: vld1q_u8(table.add(16)) } }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as above.
        Self(unsafe { vld1q_u8(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as above.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { vandq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn split(self) -> Nibbles {
        // SAFETY: as above.
        unsafe { Nibbles { low: vandq_u8(self.0, vdupq_n_u8(0x0F)), high: vshrq_n_u8::<4>(self.0) } }
    }

    #[inline(always)]
    unsafe fn mul(split: Nibbles, factor: Tables) -> Self {
        // SAFETY: as above.
        Self(unsafe { veorq_u8(vqtbl1q_u8(factor.low, split.low), vqtbl1q_u8(factor.high, split.high)) })
    }
}
