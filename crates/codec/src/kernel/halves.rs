//! Sums over GF(2^16). A symbol is two slices of the same length: the low bytes of all elements, and the high
//! bytes of all elements.
//!
//! A product with a factor is three products over GF(2^8) (`field/gf65536.rs`), so a tier needs no
//! instructions besides those for GF(2^8). [`Generation`](crate::Generation), its plans, the tests and the
//! benchmarks call these methods.

use super::{Kernel, Start, scalar};
use crate::field::gf65536;

/// The low and the high bytes of the elements of a symbol over GF(2^16).
pub type Halves<'a> = [&'a [u8]; 2];

/// [`Halves`] that a kernel writes.
pub type HalvesMut<'a> = [&'a mut [u8]; 2];

/// Four factors over GF(2^16), one for each destination, and the symbol they multiply.
pub type HalvesTerm<'a> = (HalvesFactors, Halves<'a>);

/// Four factors over GF(2^16), in the form that the kernels take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HalvesFactors {
    /// The factors of the four destinations, for each of the three products ([`LOW`], [`HIGH`], [`BOTH`]).
    pub(crate) products: [[u8; 4]; 3],
}

/// The product of the low bytes. Both halves of the result contain it.
pub(crate) const LOW: usize = 0;
/// The product of the high bytes. Added to [`LOW`], it gives the low bytes of the result.
pub(crate) const HIGH: usize = 1;
/// The product of the sum of low and high bytes. Added to [`LOW`], it gives the high bytes of the result.
pub(super) const BOTH: usize = 2;

impl From<[u16; 4]> for HalvesFactors {
    #[inline]
    fn from(factors: [u16; 4]) -> Self {
        let mut products = [[0; 4]; 3];
        for (d, factor) in factors.into_iter().enumerate() {
            for (of_all, of_this) in products.iter_mut().zip(gf65536::multipliers(factor)) {
                of_all[d] = of_this;
            }
        }
        Self { products }
    }
}

impl Kernel {
    /// Adds every source times its factors to one to four destinations: `dsts[d] ^= factors[d] * src` over
    /// GF(2^16). With fewer than four destinations, the last factors are ignored. One call with many sources
    /// is faster than many calls, as for [`mul_add_many`](Self::mul_add_many).
    ///
    /// # Panics
    /// The number of destinations is not 1 to 4, or the halves of destinations and sources differ in length.
    #[inline]
    pub fn mul_add_halves(&self, dsts: &mut [HalvesMut], sources: &[HalvesTerm]) {
        self.sum_halves(dsts, sources, Start::Old);
    }

    /// Overwrites one to four destinations with a sum over all sources: `dsts[d] = sum of factors[d] * src`
    /// over GF(2^16). It is [`mul_add_halves`](Self::mul_add_halves) that starts at zero.
    ///
    /// # Panics
    /// The number of destinations is not 1 to 4, or the halves of destinations and sources differ in length.
    #[inline]
    pub fn mul_halves(&self, dsts: &mut [HalvesMut], sources: &[HalvesTerm]) {
        self.sum_halves(dsts, sources, Start::Zero);
    }

    #[inline]
    fn sum_halves(&self, dsts: &mut [HalvesMut], sources: &[HalvesTerm], start: Start) {
        assert!((1..=4).contains(&dsts.len()), "{} destinations", dsts.len());
        let len = dsts[0][0].len();
        for dst in dsts.iter() {
            assert!(dst.iter().all(|half| half.len() == len), "halves of different length");
        }
        for (_, src) in sources {
            assert!(src.iter().all(|half| half.len() == len), "halves of different length");
        }
        // SAFETY: the lengths are checked above, and a kernel is only handed out where its instructions
        // exist.
        unsafe { (self.operations.sum_halves)(dsts, sources, start) }
    }
}

/// The scalar tier's sum takes four products over GF(2^8). The other tiers take three and are tested against
/// this sum, so it must not repeat their formula.
pub(super) fn sum(dsts: &mut [HalvesMut], sources: &[HalvesTerm], start: Start) {
    for dst in dsts.iter_mut() {
        start.prepare(dst);
    }
    for (HalvesFactors { products }, [low, high]) in sources {
        for (d, [to_low, to_high]) in dsts.iter_mut().enumerate() {
            let [factor, of_high, sum] = products.map(|factors| factors[d]);
            scalar::mul_add(to_low, factor, low);
            scalar::mul_add(to_low, of_high, high);
            scalar::mul_add(to_high, factor ^ sum, low);
            scalar::mul_add(to_high, sum, high);
        }
    }
}
