//! Every kernel of this machine against the field itself: all lengths and all misalignments. No byte outside
//! a symbol may change.
//!
//! Miri runs a reduced set, and also the tiers that the machine lacks, because it interprets their
//! instructions (`cargo xtask miri` has the target features it needs). Without `TIDEWIRE_SEEDS=all` the tests
//! try every length up to two cache lines and a sample of the others, for emulated processors.

mod halves;
mod laid;

use laid::{Bench, LINE, cases, noise};
use tidewire_codec::field::gf256;
use tidewire_codec::kernel::Kernel;

/// Sources of the longest sum. The `mix` module splits sums into batches, so longer ones are not tested here.
const SOURCES: usize = 5;

#[test]
fn the_kernels_of_this_machine_are_found_fastest_first() {
    let mut expected = vec!["scalar"];
    #[cfg(target_arch = "x86_64")]
    {
        let (avx2, gfni) = (is_x86_feature_detected!("avx2"), is_x86_feature_detected!("gfni"));
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq");
        let tiers = [
            ("ssse3", is_x86_feature_detected!("ssse3")),
            ("avx2", avx2),
            ("gfni-256", avx2 && gfni),
            ("gfni-512", gfni && avx512),
        ];
        expected.extend(tiers.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name));
    }
    if cfg!(all(target_arch = "aarch64", target_feature = "neon")) {
        expected.push("neon");
    }
    expected.reverse();
    let names: Vec<_> = Kernel::available().map(Kernel::name).collect();
    println!("kernels tested: {names:?}");
    assert_eq!(names, expected);
    for name in ["scalar", "neon", "ssse3", "avx2", "gfni-256", "gfni-512"] {
        assert_eq!(Kernel::named(name).map(Kernel::name), expected.contains(&name).then_some(name));
    }
    assert_eq!(Kernel::active().name(), expected[0]);
    Kernel::available().last().expect("scalar").activate();
    assert_eq!(Kernel::active().name(), "scalar");
    Kernel::available().next().expect("the fastest").activate();
    assert_eq!(Kernel::active().name(), expected[0]);
    if cfg!(all(miri, target_arch = "x86_64")) {
        assert_eq!(names.len(), 5, "Miri must be told the target features, see the head of this file");
    }
}

#[test]
fn every_kernel_adds_and_scales_as_the_field_does() {
    let (old, src) = (noise(1), noise(2));
    let product = |factor| move |&byte: &u8| gf256::mul(factor, byte);
    let factors: Vec<u8> = if cfg!(miri) { vec![0, 1, 0x8E] } else { (0..=255).collect() };
    let scaled: Vec<Vec<u8>> = factors.iter().map(|&f| old.iter().map(product(f)).collect()).collect();
    let added: Vec<Vec<u8>> =
        factors.iter().map(|&f| old.iter().zip(src.iter().map(product(f))).map(|(a, b)| a ^ b).collect()).collect();
    let xored: Vec<u8> = old.iter().zip(&src).map(|(a, b)| a ^ b).collect();
    let (mut from, mut to) = (Bench::new(), Bench::new());
    for kernel in Kernel::available() {
        for (turn, (len, src_at, dst_at)) in cases().enumerate() {
            let which = turn % factors.len();
            let factor = factors[which];
            let what =
                |op: &str| format!("{} {op}, length {len}, factor {factor}, {src_at} to {dst_at}", kernel.name());
            let src = &*from.lay(src_at, &src[..len]);

            kernel.xor(to.lay(dst_at, &old[..len]), src);
            to.check(dst_at, &xored[..len], || what("xor"));
            kernel.mul_add(to.lay(dst_at, &old[..len]), factor, src);
            to.check(dst_at, &added[which][..len], || what("mul_add"));
            kernel.scale(to.lay(dst_at, &old[..len]), factor);
            to.check(dst_at, &scaled[which][..len], || what("scale"));
        }
    }
}

#[test]
fn every_kernel_sums_many_sources_as_the_field_does() {
    let old = noise(1);
    let sources: Vec<Vec<u8>> = (2..2 + SOURCES as u32).map(noise).collect();
    let factors = [0x1D, 0, 1, 0xFF, 0x80];
    // sums[n] is old plus the first n products.
    let mut sums = vec![old.clone()];
    for (src, factor) in sources.iter().zip(factors) {
        let last = &sums[sums.len() - 1];
        sums.push(last.iter().zip(src).map(|(a, b)| a ^ gf256::mul(factor, *b)).collect());
    }
    let mut froms: Vec<Bench> = sources.iter().map(|_| Bench::new()).collect();
    let mut to = Bench::new();
    for kernel in Kernel::available() {
        for (turn, (len, src_at, dst_at)) in cases().enumerate() {
            let count = turn % (SOURCES + 1);
            let mut terms: Vec<(u8, &[u8])> = Vec::new();
            for (i, from) in froms.iter_mut().enumerate().take(count) {
                terms.push((factors[i], from.lay((src_at + 3 * i) % LINE, &sources[i][..len])));
            }
            kernel.mul_add_many(to.lay(dst_at, &old[..len]), &terms);
            to.check(dst_at, &sums[count][..len], || {
                format!("{} mul_add_many of {count}, length {len}, {src_at} to {dst_at}", kernel.name())
            });
        }
    }
}

#[test]
fn every_kernel_sums_into_one_to_four_destinations_as_the_field_does() {
    let olds: [Vec<u8>; 4] = [11, 12, 13, 14].map(noise);
    let sources: Vec<Vec<u8>> = (2..2 + SOURCES as u32).map(noise).collect();
    // Every destination meets 0 and 1, and no two destinations have the same factors.
    let factors = [[0x1D, 0, 1, 0xFF], [0, 1, 0x80, 2], [1, 0x53, 0, 0xCA], [0xFF, 0xFE, 3, 0], [9, 0x8E, 0xB4, 1]];
    // sums[n][d] is destination d plus the first n products.
    let mut sums = vec![olds.clone()];
    for (src, factors) in sources.iter().zip(factors) {
        let mut next = sums[sums.len() - 1].clone();
        for (sum, factor) in next.iter_mut().zip(factors) {
            for (to, &byte) in sum.iter_mut().zip(src) {
                *to ^= gf256::mul(factor, byte);
            }
        }
        sums.push(next);
    }
    // The same without the destinations' old bytes.
    let without = |sum: &[u8], old: &[u8]| sum.iter().zip(old).map(|(a, b)| a ^ b).collect::<Vec<u8>>();
    let products: Vec<[Vec<u8>; 4]> = sums.iter().map(|sum| [0, 1, 2, 3].map(|d| without(&sum[d], &olds[d]))).collect();
    let mut froms: Vec<Bench> = sources.iter().map(|_| Bench::new()).collect();
    let mut tos = [(); 4].map(|()| Bench::new());
    for kernel in Kernel::available() {
        for (turn, (len, src_at, dst_at)) in cases().enumerate() {
            let (count, few) = (turn % (SOURCES + 1), 1 + turn / (SOURCES + 1) % 4);
            let mut terms: Vec<([u8; 4], &[u8])> = Vec::new();
            for (i, from) in froms.iter_mut().enumerate().take(count) {
                terms.push((factors[i], from.lay((src_at + 3 * i) % LINE, &sources[i][..len])));
            }
            // Each destination at a misalignment of its own.
            let places = [0, 5, 32, 49].map(|more| (dst_at + more) % LINE);
            for adds in [true, false] {
                let lanes = tos.iter_mut().zip(places).zip(&olds).map(|((to, at), old)| to.lay(at, &old[..len]));
                let mut lanes: Vec<_> = lanes.take(few).collect();
                if adds {
                    kernel.mul_add_few(&mut lanes, &terms)
                } else {
                    kernel.mul_few(&mut lanes, &terms)
                }
                for (d, to) in tos.iter_mut().enumerate().take(few) {
                    let sum = if adds { &sums[count][d] } else { &products[count][d] };
                    to.check(places[d], &sum[..len], || {
                        let (kernel, op) = (kernel.name(), if adds { "mul_add_few" } else { "mul_few" });
                        format!("{kernel} {op} of {count}, destination {d} of {few}, length {len}, {src_at}")
                    });
                }
            }
        }
    }
}

/// In allocations that end where the symbol does, so that Miri and the address sanitizer detect reads past
/// the end.
#[test]
fn no_kernel_reads_outside_of_its_symbols() {
    let noise = noise(3);
    for kernel in Kernel::available() {
        for (len, ..) in cases().filter(|(_, from, _)| *from == 0) {
            let src = noise[..len].to_vec();
            let mut dsts = [(); 4].map(|()| noise[..len].to_vec());
            kernel.xor(&mut dsts[0], &src);
            kernel.mul_add(&mut dsts[0], 2, &src);
            kernel.scale(&mut dsts[0], 3);
            let [first, second, third, fourth] = &mut dsts;
            kernel.mul_add_four([first, second, third, fourth], &[([2, 3, 4, 5], &src)]);
            let expected = gf256::mul(3, gf256::mul(2, noise[0])) ^ gf256::mul(2, noise[0]);
            assert_eq!(dsts[0].first().copied().unwrap_or(expected), expected, "{}, length {len}", kernel.name());
        }
    }
}

/// The tables behind the shuffles and the bit matrices, entry by entry.
#[test]
fn every_kernel_knows_all_65_536_products() {
    let bytes: Vec<u8> = (0..=255).collect();
    for kernel in Kernel::available() {
        for factor in (0..=255).step_by(if cfg!(miri) { 23 } else { 1 }) {
            let mut products = vec![0; 256];
            kernel.mul_add(&mut products, factor, &bytes);
            let expected: Vec<u8> = bytes.iter().map(|&byte| gf256::mul(factor, byte)).collect();
            assert_eq!(products, expected, "{} times {factor}", kernel.name());
        }
    }
}

#[test]
#[should_panic(expected = "symbols of different length")]
fn a_source_of_another_length_is_refused() {
    Kernel::active().mul_add_many(&mut [0; 64], &[(2, &[0; 64]), (3, &[0; 63])]);
}

#[test]
#[should_panic(expected = "symbols of different length")]
fn a_source_of_another_length_is_refused_for_four() {
    let [mut a, mut b, mut c, mut d] = [[0; 64]; 4];
    Kernel::active().mul_add_four([&mut a, &mut b, &mut c, &mut d], &[([2; 4], &[0; 64]), ([3; 4], &[0; 65])]);
}

#[test]
#[should_panic(expected = "5 destinations")]
fn more_than_four_destinations_are_refused() {
    let mut dsts = [[0; 64]; 5];
    Kernel::active().mul_add_few(&mut dsts.each_mut().map(|dst| &mut dst[..]), &[]);
}

#[test]
#[should_panic(expected = "symbols of different length")]
fn four_destinations_of_different_length_are_refused() {
    let [mut a, mut b, mut c] = [[0; 64]; 3];
    Kernel::active().mul_add_four([&mut a, &mut b, &mut c, &mut [0; 65]], &[([2; 4], &[0; 64])]);
}
