//! The symbol loops, written once for any vector register. A tier is an implementation of [`Vector`] (20
//! lines) and the [`tier!`] line that names it.
//!
//! Everything is `inline(always)`. The generic code must end up inside the tier's `#[target_feature]`
//! function, where each intrinsic becomes a single instruction. A symbol's last bytes may be fewer than a
//! register. A whole register then reaches back over finished bytes and masks them. A symbol shorter than a
//! register is copied to the stack first; otherwise sums of tiny symbols would be made byte by byte.
//!
//! Safety, for the whole file: the processor has the instructions of `V`, and all slices of a call have the
//! same length. Every pointer made here is at an offset `at` with `at + V::LEN <= len` of its slice.

use super::{LINE, Start, scalar};

/// A register of bytes. The methods are `unsafe` because the processor must have the instructions.
pub(super) trait Vector: Copy {
    /// Bytes in the register.
    const LEN: usize;
    /// A register prepared for products: the part of a multiplication that does not depend on the factor.
    type Split: Copy;
    /// A factor in the form that [`mul`](Self::mul) takes.
    type Factor: Copy;

    unsafe fn factor(value: u8) -> Self::Factor;
    /// Reads `LEN` bytes at any alignment.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes `LEN` bytes at any alignment.
    unsafe fn store(self, to: *mut u8);
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn split(self) -> Self::Split;
    unsafe fn mul(split: Self::Split, factor: Self::Factor) -> Self;
}

/// The factors of a source, one for each of at least `D` destinations. They are fetched one byte at a time,
/// because four fetched at once would have to be separated again.
pub(super) trait Factors<const D: usize>: Copy {
    fn of(&self, destination: usize) -> u8;
}

impl Factors<1> for u8 {
    #[inline(always)]
    fn of(&self, _: usize) -> u8 {
        *self
    }
}

/// The first `D` of four factors.
impl<const D: usize> Factors<D> for [u8; 4] {
    #[inline(always)]
    fn of(&self, destination: usize) -> u8 {
        self[destination]
    }
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
            V::mul(V::load(to.add(at)).split(), factor).store(to.add(at));
            at += V::LEN;
        }
        if at < len {
            let end = to.add(len - V::LEN);
            let old = V::load(end);
            let change = old.xor(V::mul(old.split(), factor)).and(last::<V>(len - at));
            old.xor(change).store(end);
        }
    }
}

/// `dst ^= value * src`.
#[inline(always)]
pub(super) unsafe fn mul_add<V: Vector>(dst: &mut [u8], value: u8, src: &[u8]) {
    let len = dst.len();
    if len < V::LEN {
        return scalar::mul_add(dst, value, src);
    }
    let (to, from) = (dst.as_mut_ptr(), src.as_ptr());
    // SAFETY: see the head of the file; in the last step len >= V::LEN.
    unsafe {
        let factor = V::factor(value);
        let mut at = 0;
        while len - at >= V::LEN {
            let product = V::mul(V::load(from.add(at)).split(), factor);
            V::load(to.add(at)).xor(product).store(to.add(at));
            at += V::LEN;
        }
        if at < len {
            let end = len - V::LEN;
            let change = V::mul(V::load(from.add(end)).split(), factor).and(last::<V>(len - at));
            V::load(to.add(end)).xor(change).store(to.add(end));
        }
    }
}

/// Sums `factors[d] * src` over all sources, for every destination, and adds the sum to what `start` says.
/// `WIDE` registers of each destination are held while the loop passes over the sources. The rest is done in
/// blocks of `NARROW` registers, then of one.
#[inline(always)]
pub(super) unsafe fn mul_sum<V: Vector, F: Factors<D>, const D: usize, const WIDE: usize, const NARROW: usize>(
    mut dsts: [&mut [u8]; D],
    sources: &[(F, &[u8])],
    start: Start,
) {
    let len = dsts[0].len();
    if len < V::LEN {
        // SAFETY: see the head of the file.
        return unsafe { short::<V, F, D>(dsts, sources, start) };
    }
    let to = dsts.each_mut().map(|dst| dst.as_mut_ptr());
    // SAFETY: see the head of the file. A block of N registers at `at` is only entered with N * V::LEN bytes
    // left.
    unsafe {
        let mut at = 0;
        while len - at >= WIDE * V::LEN {
            block::<V, F, D, WIDE>(to, at, sources, start);
            at += WIDE * V::LEN;
        }
        while len - at >= NARROW * V::LEN {
            block::<V, F, D, NARROW>(to, at, sources, start);
            at += NARROW * V::LEN;
        }
        while len - at >= V::LEN {
            block::<V, F, D, 1>(to, at, sources, start);
            at += V::LEN;
        }
        if at < len {
            let end = len - V::LEN;
            let old = load::<V, D, 1>(to, end);
            let new = sum(begin::<V, D, 1>(to, end, start), end, sources);
            let mask = last::<V>(len - at);
            for d in 0..D {
                let change = old[d][0].xor(new[d][0]).and(mask);
                old[d][0].xor(change).store(to[d].add(end));
            }
        }
    }
}

/// Sums symbols that are shorter than a register.
#[inline(always)]
unsafe fn short<V: Vector, F: Factors<D>, const D: usize>(dsts: [&mut [u8]; D], sources: &[(F, &[u8])], start: Start) {
    // SAFETY: see the head of the file.
    let mut sums = unsafe { zeros::<V, D, 1>() };
    for (factors, src) in sources {
        // SAFETY: as above.
        sums = unsafe { add_products(sums, *factors, [padded::<V>(src).split()]) };
    }
    for (dst, [sum]) in dsts.into_iter().zip(sums) {
        // SAFETY: as above.
        unsafe { put_short(dst, sum, start) };
    }
}

/// A register that begins with a symbol shorter than itself and is 0 after it.
#[inline(always)]
pub(super) unsafe fn padded<V: Vector>(symbol: &[u8]) -> V {
    let mut bytes = [0; LINE];
    bytes[..symbol.len()].copy_from_slice(symbol);
    // SAFETY: LINE is at least V::LEN.
    unsafe { V::load(bytes.as_ptr()) }
}

/// Adds the first bytes of a register to what `start` says. The destination is shorter than the register.
#[inline(always)]
pub(super) unsafe fn put_short<V: Vector>(dst: &mut [u8], sum: V, start: Start) {
    let mut bytes = [0; LINE];
    // SAFETY: LINE is at least V::LEN.
    unsafe {
        match start {
            Start::Old => sum.xor(padded(dst)),
            Start::Zero => sum,
        }
        .store(bytes.as_mut_ptr());
    }
    dst.copy_from_slice(&bytes[..dst.len()]);
}

#[inline(always)]
unsafe fn block<V: Vector, F: Factors<D>, const D: usize, const N: usize>(
    to: [*mut u8; D],
    at: usize,
    sources: &[(F, &[u8])],
    start: Start,
) {
    // SAFETY: N registers of bytes follow `at` in every destination.
    unsafe {
        store(to, at, sum(begin::<V, D, N>(to, at, start), at, sources));
    }
}

/// Writes `N` registers to every destination.
#[inline(always)]
pub(super) unsafe fn store<V: Vector, const D: usize, const N: usize>(to: [*mut u8; D], at: usize, held: [[V; N]; D]) {
    for (to, held) in to.into_iter().zip(held) {
        for (i, register) in held.into_iter().enumerate() {
            // SAFETY: N registers of bytes follow `at` in every destination.
            unsafe { register.store(to.add(at + i * V::LEN)) };
        }
    }
}

/// The registers that a sum begins with.
#[inline(always)]
pub(super) unsafe fn begin<V: Vector, const D: usize, const N: usize>(
    to: [*mut u8; D],
    at: usize,
    start: Start,
) -> [[V; N]; D] {
    // SAFETY: N registers of bytes follow `at` in every destination.
    unsafe {
        match start {
            Start::Old => load(to, at),
            Start::Zero => zeros(),
        }
    }
}

#[inline(always)]
pub(super) unsafe fn zeros<V: Vector, const D: usize, const N: usize>() -> [[V; N]; D] {
    // SAFETY: see the head of the file.
    unsafe { [[last::<V>(0); N]; D] }
}

/// Loads `N` registers of every destination.
#[inline(always)]
unsafe fn load<V: Vector, const D: usize, const N: usize>(from: [*mut u8; D], at: usize) -> [[V; N]; D] {
    // SAFETY: N registers of bytes follow `at` in every destination.
    unsafe {
        let mut held = [[V::load(from[0].add(at)); N]; D];
        for (held, from) in held.iter_mut().zip(from) {
            for (i, register) in held.iter_mut().enumerate() {
                *register = V::load(from.add(at + i * V::LEN));
            }
        }
        held
    }
}

/// Adds every source at `at`, times its factor, to the held registers.
#[inline(always)]
unsafe fn sum<V: Vector, F: Factors<D>, const D: usize, const N: usize>(
    mut held: [[V; N]; D],
    at: usize,
    sources: &[(F, &[u8])],
) -> [[V; N]; D] {
    for (factors, src) in sources {
        // SAFETY: sources are as long as the destinations, where N registers of bytes follow `at`.
        unsafe {
            let from = src.as_ptr().add(at);
            let mut splits = [V::load(from).split(); N];
            for (i, split) in splits.iter_mut().enumerate() {
                *split = V::load(from.add(i * V::LEN)).split();
            }
            held = add_products(held, *factors, splits);
        }
    }
    held
}

/// Adds the `N` registers of one source, times its factors, to the held registers.
#[inline(always)]
pub(super) unsafe fn add_products<V: Vector, F: Factors<D>, const D: usize, const N: usize>(
    mut held: [[V; N]; D],
    factors: F,
    source: [V::Split; N],
) -> [[V; N]; D] {
    for (d, held) in held.iter_mut().enumerate() {
        // SAFETY: see the head of the file.
        unsafe {
            let factor = V::factor(factors.of(d));
            for (register, split) in held.iter_mut().zip(source) {
                *register = register.xor(V::mul(split, factor));
            }
        }
    }
    held
}

/// A mask of the last `count` bytes of a register, `count < V::LEN`.
#[inline(always)]
pub(super) unsafe fn last<V: Vector>(count: usize) -> V {
    static ZEROS_THEN_ONES: [u8; 2 * LINE] = {
        let mut bytes = [0; 2 * LINE];
        let mut i = LINE;
        while i < 2 * LINE {
            bytes[i] = 0xFF;
            i += 1;
        }
        bytes
    };
    // SAFETY: reads V::LEN bytes from LINE - (V::LEN - count), which ends at LINE + count <= 2 * LINE.
    unsafe { V::load(ZEROS_THEN_ONES.as_ptr().add(LINE + count - V::LEN)) }
}

/// Defines a `Kernel` from a [`Vector`]. The arguments are its static, its name, its instructions, the number
/// of registers that hold a single destination, the number for each of four destinations, and the test for
/// support.
macro_rules! tier {
    ($kernel:ident, $name:literal, $features:literal, $vector:ty, $one:literal, $four:literal, $is_supported:expr) => {
        pub(super) static $kernel: $crate::kernel::Kernel = {
            use $crate::code::hash_all;
            use $crate::kernel::{
                FourTerm, HalvesMut, HalvesTerm, Kernel, Operations, Start, Term, vector, vector_halves,
            };
            use $crate::row_16::hash_all_16;

            #[target_feature(enable = $features)]
            fn xor(dst: &mut [u8], src: &[u8]) {
                // SAFETY: the features are enabled here; `Kernel` checked the lengths.
                unsafe { vector::xor::<$vector>(dst, src) }
            }
            #[target_feature(enable = $features)]
            fn scale(dst: &mut [u8], factor: u8) {
                // SAFETY: the features are enabled here.
                unsafe { vector::scale::<$vector>(dst, factor) }
            }
            #[target_feature(enable = $features)]
            fn mul_add(dst: &mut [u8], factor: u8, src: &[u8]) {
                // SAFETY: the features are enabled here; `Kernel` checked the lengths.
                unsafe { vector::mul_add::<$vector>(dst, factor, src) }
            }
            #[target_feature(enable = $features)]
            fn mul_add_many(dst: &mut [u8], sources: &[Term]) {
                // SAFETY: the features are enabled here; `Kernel` checked the lengths.
                unsafe { vector::mul_sum::<$vector, u8, 1, $one, 4>([dst], sources, Start::Old) }
            }
            #[target_feature(enable = $features)]
            fn sum_few(dsts: &mut [&mut [u8]], sources: &[FourTerm], start: Start) {
                // SAFETY: the features are enabled here; `Kernel` checked the lengths.
                unsafe {
                    match dsts {
                        [a] => vector::mul_sum::<$vector, _, 1, $one, 4>([a], sources, start),
                        // Two destinations leave registers for one more block each.
                        [a, b] => vector::mul_sum::<$vector, _, 2, { $four + 1 }, 2>([a, b], sources, start),
                        [a, b, c] => vector::mul_sum::<$vector, _, 3, $four, 2>([a, b, c], sources, start),
                        [a, b, c, d] => vector::mul_sum::<$vector, _, 4, $four, 2>([a, b, c, d], sources, start),
                        _ => {}
                    }
                }
            }
            #[target_feature(enable = $features)]
            fn sum_halves(dsts: &mut [HalvesMut], sources: &[HalvesTerm], start: Start) {
                // SAFETY: the features are enabled here; `Kernel` checked the lengths.
                unsafe {
                    match dsts {
                        [a] => vector_halves::mul_sum::<$vector, 1, $one, 2>([a], sources, start),
                        [a, b] => vector_halves::mul_sum::<$vector, 2, { $four + 1 }, 2>([a, b], sources, start),
                        [a, b, c] => vector_halves::mul_sum::<$vector, 3, $four, 2>([a, b, c], sources, start),
                        [a, b, c, d] => vector_halves::mul_sum::<$vector, 4, $four, 2>([a, b, c, d], sources, start),
                        _ => {}
                    }
                }
            }
            #[target_feature(enable = $features)]
            fn hash_16(counter: u64, coefficients: &mut [u16]) {
                hash_all_16(counter, coefficients);
            }
            #[target_feature(enable = $features)]
            fn hash(counter: u64, coefficients: &mut [u8]) {
                // Plain code: inlined here, the compiler uses this tier's registers for it.
                hash_all(counter, coefficients);
            }
            let operations = Operations { xor, scale, mul_add, mul_add_many, sum_few, sum_halves, hash, hash_16 };
            Kernel { name: $name, is_supported: $is_supported, operations }
        };
    };
}
pub(super) use tier;
