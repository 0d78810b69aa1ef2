//! The goals, by tier: where each bound comes from, and what is fair on a machine other than the reference
//! machine.
//!
//! The row numbers and the conditions of their measurement are in `docs/performance.md`. The reference
//! machine is an Emerald Rapids core at about 2.85 GHz, with memcpy out of L2 at 85 GB/s.

/// Bounds for the kernels, in units of the yardstick (see [`yardstick`]).
pub struct KernelGoals {
    /// Row 1: multiply-accumulate, one source at a time, sources in L2.
    pub one_source: f64,
    /// Row 2: many sources into one destination.
    pub one_destination: f64,
    /// Row 2: many sources into four destinations, per destination.
    pub four_destinations: f64,
}

/// The bounds of rows 1 and 2 for the kernel of this name. `None` for a kernel that was not measured on the
/// reference machine.
///
/// Row 1 names all tiers. Row 2 names GFNI-512 (1.25 and 1.6); the others are scaled by measured rates. For
/// one destination out of L2 these are 74, 36.7 and 16.5 of 116 GB/s. For four: 0.62, 0.24 and 0.11 of 150
/// GB/s.
pub fn kernel(tier: &str) -> Option<KernelGoals> {
    let (one_source, of_116, of_150) = match tier {
        "gfni-512" => (0.90, 1.0, 1.0),
        "gfni-256" => (0.58, 74.0 / 116.0, 0.62),
        "avx2" => (0.34, 36.7 / 116.0, 0.24),
        "ssse3" => (0.18, 16.5 / 116.0, 0.11),
        _ => return None,
    };
    Some(KernelGoals { one_source, one_destination: 1.25 * of_116, four_destinations: 1.6 * of_150 })
}

/// The yardstick, in GB/s, that a kernel's rate is divided by. It is memcpy out of L2, but at most what
/// memcpy did per cycle on the reference machine: split tables and GFNI are limited by arithmetic, and a
/// machine that copies faster does not make a kernel slow.
pub fn yardstick(memcpy: f64, clock_ghz: Option<f64>) -> f64 {
    clock_ghz.map_or(memcpy, |clock| memcpy.min(clock * REFERENCE_MEMCPY / REFERENCE_GHZ))
}

/// Nanoseconds that the reference decoder spends outside its products (inversion, copies, set-up), on a
/// machine of this clock. It is the time that its rates leave over m k products at 150 GB/s. `None` for block
/// lengths that were not measured.
pub fn decode_overhead(k: usize, clock_ghz: Option<f64>) -> Option<f64> {
    // Source GB/s of the reference decoder, with 10 % of the sources lost and symbols of 1,280 bytes.
    let (lost, rate) = match k {
        16 => (2.0, 34.6),
        32 => (3.0, 22.8),
        64 => (6.0, 14.7),
        200 => (20.0, 5.9),
        256 => (26.0, 4.8),
        1_024 => (102.0, 1.20),
        _ => return None,
    };
    let bytes = k as f64 * 1_280.0;
    let overhead = bytes / rate - lost * bytes / REFERENCE_KERNEL;
    Some(overhead * REFERENCE_GHZ / clock_ghz.unwrap_or(REFERENCE_GHZ))
}

/// Row 3: the share of the kernel in the time of a block encoder. Compared with the same sums by the kernel
/// alone, four destinations in each pass, all prepared.
pub const BLOCK_ENCODE: f64 = 0.90;
/// Row 4: the rate of the block decoder over that of the reference decoder: this machine's time for m k
/// products, plus the cycles that the reference decoder took for inversion, copies and set-up.
pub const BLOCK_DECODE: f64 = 0.90;
/// Row 5: rate over GF(2^16) over that of GF(2^8), same kernel, same run. Three products where GF(2^8) has
/// two leave 0.67.
pub const GF65536: f64 = 0.55;
/// Row 6: rate of `RaptorQ` over that of the crate `raptorq` with its plan cached, for blocks of `k`:
/// encoding and decoding. `None` where there is no goal.
///
/// The bounds were set for GFNI-512, and for AVX2 at k = 64. The others are scaled by the rates of the
/// kernels into four destinations, as in row 2.
pub fn raptorq(tier: &str, k: usize) -> Option<(f64, f64)> {
    let (of_150, at_64) = match tier {
        "gfni-512" => (1.0, None),
        "gfni-256" => (0.62, None),
        "avx2" => (0.24, Some((2.5, 8.0))),
        "ssse3" => (0.11, None),
        _ => return None,
    };
    match k {
        64 => at_64.or(Some((8.0 * of_150, 20.0 * of_150))),
        256 => Some((2.5 * of_150, 8.0 * of_150)),
        _ => None,
    }
}
/// Row 11: rate of the public streaming encoder over that of a loop that copies a symbol into a ring, makes W
/// coefficients and W pointers, and calls the kernel once.
pub const STREAM_ENCODE: f64 = 0.80;
/// Row 12: nanoseconds of a clean source symbol above its copy.
pub const CLEAN_SYMBOL_NS: f64 = 60.0;
/// Row 12: cost of a repaired loss over that of a coded packet at the encoder.
pub const REPAIRED_LOSS: f64 = 1.5;
/// Row 12: rate of the streaming decoder over (kernel rate) / (p W). That limit leaves out the source symbols
/// that do arrive, so there is no goal at 1 %.
pub const STREAM_DECODE: f64 = 0.7;
/// Row 13: Gbit/s that a sending core carries over loopback, encrypted and coded.
pub const SENDING_CORE: f64 = 15.0;
/// Loopback rate over `quinn`'s with its defaults, and with the settings that are best for it. Not one of the
/// numbered rows; docs/performance.md compares the two.
pub const OVER_QUINN: f64 = 1.8;
pub const OVER_TUNED_QUINN: f64 = 2.0;
/// Mbit/s per core with 20 % loss. Not one of the numbered rows: three times the upper end of what the
/// streaming paper reports (600 to 800).
pub const LOSSY_CORE: f64 = 2_500.0;
/// Percent of one core that the redundancy policy takes at 1 Gbit/s. Not one of the numbered rows. Chosen: a
/// sixth of what the cipher takes.
pub const POLICY_SHARE: f64 = 1.0;

/// The reference machine: memcpy out of L2, GB/s.
const REFERENCE_MEMCPY: f64 = 85.0;
/// The reference machine: the clock was found between 2.7 and 3.0 GHz.
const REFERENCE_GHZ: f64 = 2.85;
/// The reference machine: GFNI-512, four destinations a pass, GB/s.
const REFERENCE_KERNEL: f64 = 150.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_copies_faster_is_not_asked_for_more() {
        assert_eq!(yardstick(40.0, Some(2.85)), 40.0);
        assert_eq!(yardstick(200.0, Some(2.85)), 85.0);
        assert_eq!(yardstick(200.0, Some(5.7)), 170.0);
        assert_eq!(yardstick(200.0, None), 200.0);
    }

    #[test]
    fn the_reference_decoder_has_an_overhead_at_every_length() {
        let overhead = [16, 32, 64, 200, 256, 1_024].map(|k| decode_overhead(k, None).unwrap());
        assert!(overhead.is_sorted() && overhead[0] > 100.0, "{overhead:?}");
    }
}
