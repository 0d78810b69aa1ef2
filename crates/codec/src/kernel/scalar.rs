//! The kernel in plain Rust. Processors without a tier of their own use it, vector tiers use it for short
//! ends, and all other tiers are tested against it.
//!
//! It does one table look-up for each byte. It stays simple because it is the reference for the other tiers.

use super::halves::sum as sum_halves;
use super::{FourTerm, Kernel, Operations, Start, Term};
use crate::code::hash_all;
use crate::field::gf256::PRODUCTS;
use crate::row_16::hash_all_16;

pub(super) static SCALAR: Kernel = Kernel {
    name: "scalar",
    is_supported: || true,
    operations: Operations {
        xor,
        scale,
        mul_add,
        mul_add_many,
        sum_few,
        sum_halves,
        hash: hash_all,
        hash_16: hash_all_16,
    },
};

pub(super) fn xor(dst: &mut [u8], src: &[u8]) {
    for (to, from) in dst.iter_mut().zip(src) {
        *to ^= from;
    }
}

pub(super) fn scale(dst: &mut [u8], factor: u8) {
    let products = &PRODUCTS[usize::from(factor)];
    for byte in dst {
        *byte = products[usize::from(*byte)];
    }
}

pub(super) fn mul_add(dst: &mut [u8], factor: u8, src: &[u8]) {
    let products = &PRODUCTS[usize::from(factor)];
    for (to, &from) in dst.iter_mut().zip(src) {
        *to ^= products[usize::from(from)];
    }
}

fn mul_add_many(dst: &mut [u8], sources: &[Term]) {
    for &(factor, src) in sources {
        mul_add(dst, factor, src);
    }
}

fn sum_few(dsts: &mut [&mut [u8]], sources: &[FourTerm], start: Start) {
    start.prepare(dsts);
    for (factors, src) in sources {
        for (dst, factor) in dsts.iter_mut().zip(factors) {
            mul_add(dst, *factor, src);
        }
    }
}
