//! Every kernel over GF(2^16) against the field: all factors, all lengths and all misalignments. No byte
//! outside a symbol may change.

use tidewire_codec::field::gf65536::mul;
use tidewire_codec::kernel::{Halves, HalvesMut, HalvesTerm, Kernel};

use super::laid::{Bench, LINE, cases, noise};

/// Sources of the longest sum.
const SOURCES: usize = 4;

/// Every destination has factors 0 and 1 once, factors of the subfield, and factors of one byte only.
const FACTORS: [[u16; 4]; SOURCES] =
    [[0x8E1D, 0, 1, 0x00FF], [0, 1, 0xA580, 0x0200], [1, 0x0053, 0, 0xFFFF], [0x0100, 0xCAFE, 0x0101, 0]];

fn product(factor: u16, [low, high]: Halves, at: usize) -> [u8; 2] {
    mul(factor, u16::from_le_bytes([low[at], high[at]])).to_le_bytes()
}

/// All 65,536 factors, in each of the four places in turn, on symbols whose length is not a multiple of a
/// register.
#[test]
fn every_kernel_multiplies_by_all_65_536_factors() {
    let step = if cfg!(miri) { 2_039 } else { 1 };
    let (low, high) = (noise(5), noise(6));
    for kernel in Kernel::available() {
        for first in (0..=u16::MAX).step_by(4 * step) {
            let len = 1 + usize::from(first) / 4 % 150;
            let symbol = [&low[..len], &high[..len]];
            let factors = [0, 1, 2, 3].map(|more| first.wrapping_add(more * step as u16));
            let mut outs = vec![[vec![0x55; len], vec![0x55; len]]; 4];
            let mut dsts: Vec<HalvesMut> =
                outs.iter_mut().map(|[low, high]| [low.as_mut_slice(), high.as_mut_slice()]).collect();
            kernel.mul_halves(&mut dsts, &[(factors.into(), symbol)]);
            for (out, factor) in outs.iter().zip(factors) {
                let found: Vec<[u8; 2]> = out[0].iter().zip(&out[1]).map(|(&low, &high)| [low, high]).collect();
                let expected: Vec<[u8; 2]> = (0..len).map(|at| product(factor, symbol, at)).collect();
                assert_eq!(found, expected, "{} times {factor:#x}, length {len}", kernel.name());
            }
        }
    }
}

/// Entry (n, d) is the sum of the first n products for destination d, without its old contents.
fn products(sources: &[[Vec<u8>; 2]]) -> Vec<[[Vec<u8>; 2]; 4]> {
    let len = sources[0][0].len();
    let mut products = vec![[(); 4].map(|()| [vec![0; len], vec![0; len]])];
    for (source, factors) in sources.iter().zip(FACTORS) {
        let mut next = products[products.len() - 1].clone();
        for ([low, high], factor) in next.iter_mut().zip(factors) {
            for (at, (low, high)) in low.iter_mut().zip(high).enumerate() {
                let [of_low, of_high] = product(factor, [&source[0], &source[1]], at);
                *low ^= of_low;
                *high ^= of_high;
            }
        }
        products.push(next);
    }
    products
}

#[test]
fn every_kernel_sums_halves_into_one_to_four_destinations_as_the_field_does() {
    let olds: [[Vec<u8>; 2]; 4] = [11, 12, 13, 14].map(|salt| [noise(salt), noise(salt + 10)]);
    let sources: Vec<[Vec<u8>; 2]> = (2..2 + SOURCES as u32).map(|salt| [noise(salt), noise(salt + 40)]).collect();
    let products = products(&sources);
    let with_old = |(d, sum): (usize, &[Vec<u8>; 2])| {
        [0, 1].map(|half| sum[half].iter().zip(&olds[d][half]).map(|(a, b)| a ^ b).collect::<Vec<u8>>())
    };
    let sums: Vec<Vec<[Vec<u8>; 2]>> =
        products.iter().map(|products| products.iter().enumerate().map(with_old).collect()).collect();
    let mut froms: Vec<[Bench; 2]> = sources.iter().map(|_| [Bench::new(), Bench::new()]).collect();
    let mut tos = [(); 4].map(|()| [Bench::new(), Bench::new()]);
    for kernel in Kernel::available() {
        // A third of the misalignments of each length: there are two halves to each symbol.
        for (turn, (len, src_at, dst_at)) in cases().step_by(3).enumerate() {
            // So that the few cases under Miri include four destinations of all block sizes.
            let (count, few) = ((turn + 2) % (SOURCES + 1), 4 - turn % 4);
            let mut terms: Vec<HalvesTerm> = Vec::new();
            for (i, [low, high]) in froms.iter_mut().enumerate().take(count) {
                let at = [src_at + 3 * i, src_at + 7 * i + 1].map(|at| at % LINE);
                let symbol: Halves = [low.lay(at[0], &sources[i][0][..len]), high.lay(at[1], &sources[i][1][..len])];
                terms.push((FACTORS[i].into(), symbol));
            }
            let adds = turn % 2 == 0;
            // Each half of each destination at a misalignment of its own.
            let places = [0, 5, 32, 49].map(|more| [(dst_at + more) % LINE, (dst_at + 3 * more + 2) % LINE]);
            let mut lanes: Vec<HalvesMut> = Vec::new();
            for ((to, at), old) in tos.iter_mut().zip(places).zip(&olds).take(few) {
                let [low, high] = to;
                lanes.push([low.lay(at[0], &old[0][..len]), high.lay(at[1], &old[1][..len])]);
            }
            if adds {
                kernel.mul_add_halves(&mut lanes, &terms)
            } else {
                kernel.mul_halves(&mut lanes, &terms)
            }
            for (d, to) in tos.iter_mut().enumerate().take(few) {
                for (half, to) in to.iter_mut().enumerate() {
                    let sum = if adds { &sums[count][d][half] } else { &products[count][d][half] };
                    to.check(places[d][half], &sum[..len], || {
                        let (kernel, op) = (kernel.name(), if adds { "mul_add_halves" } else { "mul_halves" });
                        format!(
                            "{kernel} {op} of {count}, half {half} of destination {d} of {few}, length {len}, {src_at}"
                        )
                    });
                }
            }
        }
    }
}

/// In allocations that end where the halves do, so that Miri and the address sanitizer detect reads past the
/// end.
#[test]
fn no_kernel_reads_outside_of_its_halves() {
    let noise = noise(3);
    for kernel in Kernel::available() {
        // Miri is slow: a quarter of the lengths.
        let step = if cfg!(miri) { 4 } else { 1 };
        for (len, ..) in cases().filter(|(_, from, _)| *from == 0).step_by(step) {
            let (low, high) = (noise[..len].to_vec(), noise[..len].to_vec());
            let mut outs = [(); 4].map(|()| [noise[..len].to_vec(), noise[..len].to_vec()]);
            let mut dsts: Vec<HalvesMut> =
                outs.iter_mut().map(|[low, high]| [low.as_mut_slice(), high.as_mut_slice()]).collect();
            kernel.mul_add_halves(&mut dsts, &[([1, 2, 3, 4].into(), [&low, &high])]);
            assert!(outs[0].iter().flatten().all(|&byte| byte == 0), "{}, length {len}", kernel.name());
        }
    }
}

#[test]
#[should_panic(expected = "halves of different length")]
fn a_source_half_of_another_length_is_refused() {
    let [mut low, mut high] = [[0; 64]; 2];
    Kernel::active().mul_add_halves(&mut [[&mut low, &mut high]], &[([2; 4].into(), [&[0; 64], &[0; 63]])]);
}

#[test]
#[should_panic(expected = "halves of different length")]
fn a_destination_half_of_another_length_is_refused() {
    Kernel::active().mul_halves(&mut [[&mut [0; 64], &mut [0; 65]]], &[([2; 4].into(), [&[0; 64]; 2])]);
}

#[test]
#[should_panic(expected = "0 destinations")]
fn no_destination_is_refused() {
    Kernel::active().mul_halves(&mut [], &[]);
}
