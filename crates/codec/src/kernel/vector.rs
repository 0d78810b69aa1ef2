//! The symbol loops, written once over any vector register; a tier is an implementation of [`Vector`] (20 lines) and
//! the [`tier!`] line that names it.
//!
//! Everything is `inline(always)`: the generic code must end up inside the tier's `#[target_feature]` function, where
//! the intrinsics become single instructions. The last bytes of a symbol, fewer than a register, are done by a whole
//! register that reaches back over bytes already done and is masked there; only symbols shorter than one register
//! go byte by byte.
//!
//! Safety, for the whole file: the caller has the instructions of `V`, and all slices of a call have one length. Every
//! pointer made here is at an offset `at` with `at + V::LEN <= len` of its slice.

use super::{Term, scalar};

/// A register of bytes. The methods are `unsafe` because the processor must have the instructions.
pub(super) trait Vector: Copy {
    /// Bytes in the register.
    const LEN: usize;
    /// A factor, laid out as [`mul`](Self::mul) wants it.
    type Factor: Copy;

    unsafe fn factor(value: u8) -> Self::Factor;
    /// Reads `LEN` bytes at any alignment.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes `LEN` bytes at any alignment.
    unsafe fn store(self, to: *mut u8);
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn mul(self, factor: Self::Factor) -> Self;
}

/// `dst ^= src`.
#[inline(always)]
pub(super) unsafe fn xor<V: Vector>(dst: &mut [u8], src: &[u8]) {
    let len = dst.len();
    if len < V::LEN {
        return scalar::xor(dst, src);
    }
    let (to, from) = (dst.as_mut_ptr(), src.as_ptr());
    // SAFETY: see the head of the file; in the last step len >= V::LEN.
    unsafe {
        let mut at = 0;
        while len - at >= V::LEN {
            V::load(to.add(at)).xor(V::load(from.add(at))).store(to.add(at));
            at += V::LEN;
        }
        if at < len {
            let end = len - V::LEN;
            let change = V::load(from.add(end)).and(last::<V>(len - at));
            V::load(to.add(end)).xor(change).store(to.add(end));
        }
    }
}

/// `dst = value * dst`.
#[inline(always)]
pub(super) unsafe fn scale<V: Vector>(dst: &mut [u8], value: u8) {
    let len = dst.len();
    if len < V::LEN {
        return scalar::scale(dst, value);
    }
    let to = dst.as_mut_ptr();
    // SAFETY: see the head of the file; in the last step len >= V::LEN.
    unsafe {
        let factor = V::factor(value);
        let mut at = 0;
        while len - at >= V::LEN {
            V::load(to.add(at)).mul(factor).store(to.add(at));
            at += V::LEN;
        }
        if at < len {
            let end = to.add(len - V::LEN);
            let old = V::load(end);
            let change = old.xor(old.mul(factor)).and(last::<V>(len - at));
            old.xor(change).store(end);
        }
    }
}

/// `dst ^= factor * src` for every pair, with `WIDE` registers of `dst` held at once while the sources go by.
#[inline(always)]
pub(super) unsafe fn mul_add_many<V: Vector, const WIDE: usize>(dst: &mut [u8], sources: &[Term]) {
    let len = dst.len();
    if len < V::LEN {
        return scalar::mul_add_many(dst, sources);
    }
    let to = dst.as_mut_ptr();
    // SAFETY: see the head of the file; a block of N registers at `at` is only entered with N * V::LEN bytes left.
    unsafe {
        let mut at = 0;
        while len - at >= WIDE * V::LEN {
            block::<V, WIDE>(to, at, sources);
            at += WIDE * V::LEN;
        }
        while len - at >= 4 * V::LEN {
            block::<V, 4>(to, at, sources);
            at += 4 * V::LEN;
        }
        while len - at >= V::LEN {
            block::<V, 1>(to, at, sources);
            at += V::LEN;
        }
        if at < len {
            let end = len - V::LEN;
            let old = V::load(to.add(end));
            let [new] = sum([old], end, sources);
            let change = old.xor(new).and(last::<V>(len - at));
            old.xor(change).store(to.add(end));
        }
    }
}

#[inline(always)]
unsafe fn block<V: Vector, const N: usize>(to: *mut u8, at: usize, sources: &[Term]) {
    // SAFETY: the caller has N registers' bytes at `at`.
    unsafe {
        let mut held = [V::load(to.add(at)); N];
        for (i, register) in held.iter_mut().enumerate().skip(1) {
            *register = V::load(to.add(at + i * V::LEN));
        }
        for (i, register) in sum(held, at, sources).into_iter().enumerate() {
            register.store(to.add(at + i * V::LEN));
        }
    }
}

/// The held registers plus every factor times its source at `at`.
#[inline(always)]
unsafe fn sum<V: Vector, const N: usize>(mut held: [V; N], at: usize, sources: &[Term]) -> [V; N] {
    for &(value, src) in sources {
        // SAFETY: sources are as long as the destination, which has N registers' bytes at `at`.
        unsafe {
            let factor = V::factor(value);
            let from = src.as_ptr().add(at);
            for (i, register) in held.iter_mut().enumerate() {
                *register = register.xor(V::load(from.add(i * V::LEN)).mul(factor));
            }
        }
    }
    held
}

/// A mask of the last `count` bytes of a register, `count < V::LEN`.
#[inline(always)]
unsafe fn last<V: Vector>(count: usize) -> V {
    /// The widest register.
    const MAX: usize = 64;
    static ZEROS_THEN_ONES: [u8; 2 * MAX] = {
        let mut bytes = [0; 2 * MAX];
        let mut i = MAX;
        while i < 2 * MAX {
            bytes[i] = 0xFF;
            i += 1;
        }
        bytes
    };
    // SAFETY: reads V::LEN bytes from MAX - (V::LEN - count), which ends at MAX + count <= 2 * MAX.
    unsafe { V::load(ZEROS_THEN_ONES.as_ptr().add(MAX + count - V::LEN)) }
}

/// Defines a `Kernel` from a [`Vector`]: its static, its name, its instructions, how many registers hold `dst`, and
/// the test for support.
macro_rules! tier {
    ($kernel:ident, $name:literal, $features:literal, $vector:ty, $wide:literal, $is_supported:expr) => {
        pub(super) static $kernel: $crate::kernel::Kernel = {
            #[target_feature(enable = $features)]
            fn xor(dst: &mut [u8], src: &[u8]) {
                // SAFETY: the features are enabled here; `Kernel` checked the lengths.
                unsafe { $crate::kernel::vector::xor::<$vector>(dst, src) }
            }
            #[target_feature(enable = $features)]
            fn scale(dst: &mut [u8], factor: u8) {
                // SAFETY: the features are enabled here.
                unsafe { $crate::kernel::vector::scale::<$vector>(dst, factor) }
            }
            #[target_feature(enable = $features)]
            fn mul_add_many(dst: &mut [u8], sources: &[$crate::kernel::Term]) {
                // SAFETY: the features are enabled here; `Kernel` checked the lengths.
                unsafe { $crate::kernel::vector::mul_add_many::<$vector, $wide>(dst, sources) }
            }
            $crate::kernel::Kernel {
                name: $name,
                is_supported: $is_supported,
                operations: $crate::kernel::Operations { xor, scale, mul_add_many },
            }
        };
    };
}
pub(super) use tier;
