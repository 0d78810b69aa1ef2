//! Sums over GF(2^16), written once for any vector register, like those over GF(2^8) in `vector.rs`.
//!
//! Each block of the destinations takes three passes over the sources, one for each product over GF(2^8):
//! that of the low bytes, of the high bytes, and of the sum of both. So the innermost loop is the one of
//! GF(2^8) and needs no more registers.
//!
//! Safety, for the whole file: the processor has the instructions of `V`, and all halves of a call have the
//! same length. Every pointer made here is at an offset `at` with `at + V::LEN <= len` of its half.

use super::Start;
use super::halves::{BOTH, HIGH, HalvesFactors, HalvesMut, HalvesTerm, LOW};
use super::vector::{Factors, Vector, add_products, begin, last, padded, put_short, store, zeros};

/// The factors of one of the three products.
#[derive(Clone, Copy)]
struct Product<'a, const WHICH: usize>(&'a HalvesFactors);

impl<const D: usize, const WHICH: usize> Factors<D> for Product<'_, WHICH> {
    #[inline(always)]
    fn of(&self, destination: usize) -> u8 {
        self.0.products[WHICH][destination]
    }
}

/// Sums `factors[d] * src` over all sources, for every destination, and adds the sum to what `start` says. It
/// works in blocks of `WIDE`, then `NARROW`, then one register of each half.
#[inline(always)]
pub(super) unsafe fn mul_sum<V: Vector, const D: usize, const WIDE: usize, const NARROW: usize>(
    mut dsts: [&mut HalvesMut; D],
    sources: &[HalvesTerm],
    start: Start,
) {
    let len = dsts[0][LOW].len();
    if len < V::LEN {
        // SAFETY: see the head of the file.
        return unsafe { short::<V, D>(dsts, sources, start) };
    }
    let low = dsts.each_mut().map(|dst| dst[LOW].as_mut_ptr());
    let high = dsts.each_mut().map(|dst| dst[HIGH].as_mut_ptr());
    // SAFETY: see the head of the file. A block of N registers at `at` is only entered with N * V::LEN bytes
    // left.
    unsafe {
        let mut at = 0;
        while len - at >= WIDE * V::LEN {
            block::<V, D, WIDE>(low, high, at, sources, start);
            at += WIDE * V::LEN;
        }
        while len - at >= NARROW * V::LEN {
            block::<V, D, NARROW>(low, high, at, sources, start);
            at += NARROW * V::LEN;
        }
        while len - at >= V::LEN {
            block::<V, D, 1>(low, high, at, sources, start);
            at += V::LEN;
        }
        if at < len {
            let end = len - V::LEN;
            let shared = sum::<V, D, 1, LOW>(zeros(), end, sources);
            let new_low = sum::<V, D, 1, HIGH>(plus(begin(low, end, start), shared), end, sources);
            let new_high = sum::<V, D, 1, BOTH>(plus(begin(high, end, start), shared), end, sources);
            let mask = last::<V>(len - at);
            for (to, new) in [(low, new_low), (high, new_high)] {
                for d in 0..D {
                    let old = V::load(to[d].add(end));
                    let change = old.xor(new[d][0]).and(mask);
                    old.xor(change).store(to[d].add(end));
                }
            }
        }
    }
}

/// Sums halves that are shorter than a register.
#[inline(always)]
unsafe fn short<V: Vector, const D: usize>(dsts: [&mut HalvesMut; D], sources: &[HalvesTerm], start: Start) {
    // SAFETY: see the head of the file.
    unsafe {
        let (mut shared, mut low_sums, mut high_sums) = (zeros::<V, D, 1>(), zeros::<V, D, 1>(), zeros::<V, D, 1>());
        for (factors, [low, high]) in sources {
            let (low, high) = (padded::<V>(low), padded::<V>(high));
            shared = add_products(shared, Product::<LOW>(factors), [low.split()]);
            low_sums = add_products(low_sums, Product::<HIGH>(factors), [high.split()]);
            high_sums = add_products(high_sums, Product::<BOTH>(factors), [low.xor(high).split()]);
        }
        let (low_sums, high_sums) = (plus(low_sums, shared), plus(high_sums, shared));
        for (dst, ([low_sum], [high_sum])) in dsts.into_iter().zip(low_sums.into_iter().zip(high_sums)) {
            put_short(dst[LOW], low_sum, start);
            put_short(dst[HIGH], high_sum, start);
        }
    }
}

#[inline(always)]
unsafe fn block<V: Vector, const D: usize, const N: usize>(
    low: [*mut u8; D],
    high: [*mut u8; D],
    at: usize,
    sources: &[HalvesTerm],
    start: Start,
) {
    // SAFETY: N registers of bytes follow `at` in both halves of every destination.
    unsafe {
        let shared = sum::<V, D, N, LOW>(zeros(), at, sources);
        store(low, at, sum::<V, D, N, HIGH>(plus(begin(low, at, start), shared), at, sources));
        store(high, at, sum::<V, D, N, BOTH>(plus(begin(high, at, start), shared), at, sources));
    }
}

/// Adds one of the three products of every source at `at` to the held registers.
#[inline(always)]
unsafe fn sum<V: Vector, const D: usize, const N: usize, const PRODUCT: usize>(
    mut held: [[V; N]; D],
    at: usize,
    sources: &[HalvesTerm],
) -> [[V; N]; D] {
    for (factors, [low, high]) in sources {
        // SAFETY: sources are as long as the destinations, where N registers of bytes follow `at`.
        unsafe {
            let (low, high) = (low.as_ptr().add(at), high.as_ptr().add(at));
            let mut splits = [V::load(low).split(); N];
            for (i, split) in splits.iter_mut().enumerate() {
                let at = i * V::LEN;
                let register = match PRODUCT {
                    LOW => V::load(low.add(at)),
                    HIGH => V::load(high.add(at)),
                    _ => V::load(low.add(at)).xor(V::load(high.add(at))),
                };
                *split = register.split();
            }
            held = add_products(held, Product::<PRODUCT>(factors), splits);
        }
    }
    held
}

#[inline(always)]
unsafe fn plus<V: Vector, const D: usize, const N: usize>(mut sums: [[V; N]; D], others: [[V; N]; D]) -> [[V; N]; D] {
    for (sums, others) in sums.iter_mut().zip(others) {
        for (sum, other) in sums.iter_mut().zip(others) {
            // SAFETY: see the head of the file.
            *sum = unsafe { sum.xor(other) };
        }
    }
    sums
}
