//! Arithmetic on whole symbols: the loops in which the codec spends its time, one set for each instruction
//! set.
//!
//! [`Kernel::active`] is the fastest set that this processor runs. It is found once per process, and encoders
//! and decoders use only that one. [`Kernel::available`] and [`Kernel::named`] give the others to tests and
//! benchmarks, which can also [`activate`](Kernel::activate) one for the whole process. A caller can only get
//! a `Kernel` whose instructions exist, which makes its safe methods safe.
//!
//! All `unsafe` of the crate is in this folder. A safe method checks the lengths and calls the tier's
//! `#[target_feature]` function through a pointer. That function is the generic loop of `vector.rs` over the
//! tier's register type. All tiers are tested against the scalar tier.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod cpu;
#[cfg(target_arch = "x86_64")]
mod gfni;
mod halves;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod ssse3;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
mod vector;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
mod vector_halves;

pub(crate) use halves::{HIGH, LOW};
pub use halves::{Halves, HalvesFactors, HalvesMut, HalvesTerm};

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of a cache line, which is also the widest register. Rows and slots begin at multiples of it, so
/// that every kernel works on them in whole aligned registers.
pub(crate) const LINE: usize = 64;

/// A factor and the bytes it multiplies.
pub type Term<'a> = (u8, &'a [u8]);

/// Four factors, one for each destination, and the bytes they multiply.
pub type FourTerm<'a> = ([u8; 4], &'a [u8]);

/// A set of symbol operations for one instruction set.
pub struct Kernel {
    name: &'static str,
    is_supported: fn() -> bool,
    operations: Operations,
}

/// The functions of a tier. A caller must make sure that the processor has the tier's instructions and that
/// all slices of the call have the same length.
struct Operations {
    xor: unsafe fn(&mut [u8], &[u8]),
    scale: unsafe fn(&mut [u8], u8),
    mul_add: unsafe fn(&mut [u8], u8, &[u8]),
    mul_add_many: unsafe fn(&mut [u8], &[Term]),
    /// One to four destinations.
    sum_few: unsafe fn(&mut [&mut [u8]], &[FourTerm], Start),
    /// One to four destinations over GF(2^16).
    sum_halves: unsafe fn(&mut [HalvesMut], &[HalvesTerm], Start),
    /// [`hash_all`](crate::code::hash_all).
    hash: unsafe fn(u64, &mut [u8]),
    /// [`hash_all_16`](crate::row_16::hash_all_16).
    hash_16: unsafe fn(u64, &mut [u16]),
}

/// The value that a sum is added to.
#[derive(Clone, Copy)]
enum Start {
    /// The old contents of the destination.
    Old,
    /// Zero: the destination is written without being read.
    Zero,
}

impl Start {
    /// Clears the destinations if the sum starts at zero. This is the slow way.
    fn prepare(self, dsts: &mut [&mut [u8]]) {
        if let Self::Zero = self {
            dsts.iter_mut().for_each(|dst| dst.fill(0));
        }
    }
}

/// All tiers, fastest first.
static TIERS: &[&Kernel] = &[
    #[cfg(target_arch = "x86_64")]
    &gfni::GFNI_512,
    #[cfg(target_arch = "x86_64")]
    &gfni::GFNI_256,
    #[cfg(target_arch = "x86_64")]
    &avx2::AVX2,
    #[cfg(target_arch = "x86_64")]
    &ssse3::SSSE3,
    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
    &neon::NEON,
    &scalar::SCALAR,
];

/// The index of the active tier in [`TIERS`] plus one; 0 before the first use.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

impl Kernel {
    /// The kernel that encoders and decoders use. It is the fastest that this processor runs, found on the
    /// first call, unless [`activate`](Self::activate) chose another.
    #[inline]
    pub fn active() -> &'static Self {
        let chosen = ACTIVE.load(Ordering::Relaxed);
        TIERS[if chosen == 0 { choose() } else { chosen } - 1]
    }

    /// Makes this kernel the active one, so that tests and benchmarks can run whole codecs on each tier.
    ///
    /// It changes the whole process: every encoder and decoder of every thread uses it from the next
    /// operation on. Results stay the same, because all kernels compute the same; only the speed changes.
    pub fn activate(&'static self) {
        // Every existing kernel comes from the list.
        let index = TIERS.iter().position(|tier| tier.name == self.name);
        ACTIVE.store(index.map_or(0, |index| index + 1), Ordering::Relaxed);
    }

    /// Every kernel that this processor runs, fastest first; `scalar` is always the last.
    pub fn available() -> impl Iterator<Item = &'static Self> {
        TIERS.iter().copied().filter(|tier| (tier.is_supported)())
    }

    /// The kernel of this name, if this processor runs it: `gfni-512`, `gfni-256`, `avx2`, `ssse3`, `neon`
    /// or `scalar`.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::available().find(|tier| tier.name == name)
    }

    /// What this kernel is called in reports.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// `dst ^= src`.
    ///
    /// # Panics
    /// The lengths differ.
    #[inline]
    pub fn xor(&self, dst: &mut [u8], src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "symbols of different length");
        // SAFETY: the lengths are checked above, and a kernel is only handed out where its instructions
        // exist.
        unsafe { (self.operations.xor)(dst, src) }
    }

    /// `dst = factor * dst`.
    #[inline]
    pub fn scale(&self, dst: &mut [u8], factor: u8) {
        if factor != 1 {
            // SAFETY: a kernel is only handed out where its instructions exist.
            unsafe { (self.operations.scale)(dst, factor) }
        }
    }

    /// `dst ^= factor * src`.
    ///
    /// # Panics
    /// The lengths differ.
    #[inline]
    pub fn mul_add(&self, dst: &mut [u8], factor: u8, src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "symbols of different length");
        match factor {
            0 => {}
            // SAFETY: the lengths are checked above, and a kernel is only handed out where its instructions
            // exist.
            1 => unsafe { (self.operations.xor)(dst, src) },
            // SAFETY: as above.
            _ => unsafe { (self.operations.mul_add)(dst, factor, src) },
        }
    }

    /// Adds every source times its factor: `dst ^= factor * src` for every pair. Each piece of `dst` stays in
    /// registers while the loop passes over all sources, so one call with many sources is fastest. 16 to 64
    /// are best; more evict each other from the L1 cache.
    ///
    /// # Panics
    /// A source's length differs from that of `dst`.
    #[inline]
    pub fn mul_add_many(&self, dst: &mut [u8], sources: &[Term]) {
        let differ = sources.iter().fold(0, |differ, (_, src)| differ | src.len() ^ dst.len());
        assert!(differ == 0, "symbols of different length");
        // SAFETY: the lengths are checked above, and a kernel is only handed out where its instructions
        // exist.
        unsafe { (self.operations.mul_add_many)(dst, sources) }
    }

    /// Adds every source times its factors to four destinations: `dsts[d] ^= factors[d] * src`. Each source
    /// is read once for four sums, so this is the way to make several repair symbols of one span. One call
    /// with many sources is faster than many calls.
    ///
    /// # Panics
    /// The lengths of destinations and sources differ.
    #[inline]
    pub fn mul_add_four(&self, mut dsts: [&mut [u8]; 4], sources: &[FourTerm]) {
        self.mul_add_few(&mut dsts, sources);
    }

    /// [`mul_add_four`](Self::mul_add_four) into the first one to four destinations; the other factors are
    /// ignored. A product costs more with fewer destinations: on AVX2 1.3 times as much for one as for four.
    ///
    /// # Panics
    /// The number of destinations is not 1 to 4, or the lengths of destinations and sources differ.
    #[inline]
    pub fn mul_add_few(&self, dsts: &mut [&mut [u8]], sources: &[FourTerm]) {
        self.sum_few(dsts, sources, Start::Old);
    }

    /// Overwrites the first one to four destinations with a sum: `dsts[d] = sum of factors[d] * src`. It is
    /// [`mul_add_few`](Self::mul_add_few) that starts at zero. Use it for the first batch of sources; the
    /// destinations need not be cleared before.
    ///
    /// # Panics
    /// The number of destinations is not 1 to 4, or the lengths of destinations and sources differ.
    #[inline]
    pub fn mul_few(&self, dsts: &mut [&mut [u8]], sources: &[FourTerm]) {
        self.sum_few(dsts, sources, Start::Zero);
    }

    #[inline]
    fn sum_few(&self, dsts: &mut [&mut [u8]], sources: &[FourTerm], start: Start) {
        assert!((1..=4).contains(&dsts.len()), "{} destinations", dsts.len());
        let len = dsts[0].len();
        // One test after all comparisons: a branch for each source took 2 % of the time of short blocks.
        let differ = dsts.iter().fold(0, |differ, dst| differ | dst.len() ^ len);
        let differ = sources.iter().fold(differ, |differ, (_, src)| differ | src.len() ^ len);
        assert!(differ == 0, "symbols of different length");
        // SAFETY: the lengths are checked above, and a kernel is only handed out where its instructions
        // exist.
        unsafe { (self.operations.sum_few)(dsts, sources, start) }
    }

    /// The coefficients of [`Code::Rlc`](crate::Code::Rlc) from this counter on. They are not symbol data,
    /// but every product needs them, and vector registers compute them in half the time or less.
    #[inline]
    pub(crate) fn hash(&self, counter: u64, coefficients: &mut [u8]) {
        // SAFETY: a kernel is only handed out where its instructions exist.
        unsafe { (self.operations.hash)(counter, coefficients) }
    }

    /// The coefficients of [`Code::Rlc16`](crate::Code::Rlc16) from this counter on.
    #[inline]
    pub(crate) fn hash_16(&self, counter: u64, coefficients: &mut [u16]) {
        // SAFETY: a kernel is only handed out where its instructions exist.
        unsafe { (self.operations.hash_16)(counter, coefficients) }
    }
}

/// Chooses the active kernel. Returns what [`ACTIVE`] holds from now on.
#[cold]
fn choose() -> usize {
    // The last tier, scalar, runs on every processor.
    let fastest = TIERS.iter().position(|tier| (tier.is_supported)()).unwrap_or(TIERS.len() - 1) + 1;
    // Another thread, or an `activate`, may have stored its choice first. That choice stays.
    let was = ACTIVE.compare_exchange(0, fastest, Ordering::Relaxed, Ordering::Relaxed);
    was.err().unwrap_or(fastest)
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernel").field(&self.name).finish()
    }
}
