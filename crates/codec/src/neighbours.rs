//! The source symbols that a repair symbol of a sparse code adds up, drawn from its name alone.
//!
//! [`Code::row`](crate::Code::row), the encoder of a [`Generation`](crate::Generation) and the
//! [`PeelingDecoder`](crate::PeelingDecoder) walk them. Both ends compute them from the
//! [`RepairId`], in integer arithmetic. The rule is also in docs/sphinx.md section 4:
//!
//! The draws are SplitMix64's output function over `start + i * ID_STEP`, i = 0, 1, 2, ..., where `start`
//! is that function of `first * ID_STEP + (key + 1) * KEY_STEP + SPARSE` (constants here and in
//! `code.rs`, all sums modulo 2^64). Draw 0 gives the degree d of [`Code::Lt`](crate::Code::Lt), and is
//! unused otherwise. Then the places 0, 1, 2, ... of the span are visited. With `left` places from this
//! one on and `lacking` of d neighbours not chosen yet, place j is a neighbour if `draw(j + 1) * left /
//! 2^64`, rounded down, is below `lacking`. This is selection sampling (Knuth, The Art of Computer
//! Programming 2, algorithm 3.4.2 S): it chooses exactly d places, every set of d equally often, in order
//! and without memory.

use core::iter::FusedIterator;

use crate::code::{ID_STEP, hash_counter};
use crate::soliton::RobustSoliton;
use crate::{RepairId, SourceId, SplitMix64};

/// How the repair symbols of a sparse code over spans of one length get their degree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Degrees {
    Soliton(RobustSoliton),
    /// The same for all.
    Fixed(u16),
}

impl Degrees {
    /// The neighbours of a repair symbol. Its span has the length that the distribution was made for.
    pub fn neighbours(&self, id: RepairId) -> Neighbours {
        let start = start(id.key, id.first);
        let degree = match self {
            Self::Soliton(soliton) => soliton.degree(SplitMix64::mix(start)),
            Self::Fixed(degree) => *degree,
        };
        Neighbours { counter: start.wrapping_add(ID_STEP), place: 0, count: id.count, lacking: degree.min(id.count) }
    }
}

/// The places in its span of the source symbols that a repair symbol adds up, in ascending order. Made by
/// [`Code::neighbours`](crate::Code::neighbours); owns no memory. A walk costs a hash for each place up
/// to the last neighbour.
#[derive(Clone, Debug)]
pub struct Neighbours {
    /// The draw for the next place.
    counter: u64,
    place: u16,
    count: u16,
    /// Neighbours not visited yet.
    lacking: u16,
}

impl Neighbours {
    /// Visits the next place. Returns whether it is a neighbour.
    #[inline]
    pub(crate) fn visit(&mut self) -> bool {
        let left = u128::from(self.count - self.place);
        let is_chosen = (u128::from(SplitMix64::mix(self.counter)) * left) >> 64 < self.lacking.into();
        self.counter = self.counter.wrapping_add(ID_STEP);
        self.place += 1;
        self.lacking -= u16::from(is_chosen);
        is_chosen
    }
}

impl Iterator for Neighbours {
    type Item = u16;

    #[inline]
    fn next(&mut self) -> Option<u16> {
        while self.lacking > 0 {
            if self.visit() {
                return Some(self.place - 1);
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.lacking.into(), Some(self.lacking.into()))
    }
}

impl ExactSizeIterator for Neighbours {}
impl FusedIterator for Neighbours {}

/// The beginning of the draws. A further mix keeps the draws of neighbouring keys and ids apart.
fn start(key: u16, first: SourceId) -> u64 {
    SplitMix64::mix(hash_counter(key, first).wrapping_add(SPARSE))
}

/// Separates these draws from the coefficients of [`Code::Rlc`](crate::Code::Rlc). Chosen: the fractional
/// bits of the square root of 3.
const SPARSE: u64 = 0xBB67_AE85_84CA_A73B;

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::Code;

    const LT: Code = Code::Lt { c_milli: 100, delta_milli: 500 };

    fn id(first: u64, count: u16, key: u16) -> RepairId {
        RepairId { first: SourceId(first), count, key }
    }

    fn places(code: Code, id: RepairId) -> Vec<u16> {
        code.neighbours(id).unwrap().collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn a_repair_has_exactly_its_degree_of_neighbours_in_order() {
        for (count, degree) in [(1, 1), (1, 5), (2, 1), (100, 17), (100, 99), (100, 100), (100, 200), (65_535, 9)] {
            for key in [0, 1, 65_535] {
                let code = Code::SemiRandomLt { degree };
                let all = code.neighbours(id(7, count, key)).unwrap();
                let places: Vec<u16> = all.clone().collect();
                assert_eq!((places.len(), all.len()), (degree.min(count).into(), places.len()));
                assert!(places.windows(2).all(|pair| pair[0] < pair[1]) && places.iter().all(|&place| place < count));
                let row: Vec<u8> = code.row(id(7, count, key)).collect();
                let ones = (0..count).zip(&row).filter(|(_, one)| **one == 1).map(|(place, _)| place);
                assert!(ones.eq(places.iter().copied()) && row.len() == usize::from(count));
                assert!(row.iter().all(|&coefficient| coefficient <= 1));
            }
        }
    }

    /// Other implementations must compute these values. They were computed separately, with unbounded
    /// integers.
    #[test]
    fn neighbours_and_degrees_are_pinned() {
        assert_eq!(places(Code::SemiRandomLt { degree: 5 }, id(0, 20, 0)), [0, 5, 8, 12, 14]);
        assert_eq!(places(Code::SemiRandomLt { degree: 5 }, id(1 << 40, 20, 65_535)), [3, 4, 8, 9, 12]);
        let expected: [&[u16]; 4] = [&[5, 18, 38], &[5, 52], &[89, 93], &[3, 9, 60, 84]];
        assert_eq!([0, 1, 2, 3].map(|key| places(LT, id(0, 100, key))), expected);
        let code = Code::Lt { c_milli: 30, delta_milli: 50 };
        let degrees: Vec<usize> = (0..16).map(|key| places(code, id(1 << 40, 256, key)).len()).collect();
        assert_eq!(degrees, [3, 3, 2, 5, 7, 2, 2, 27, 8, 2, 4, 4, 6, 2, 10, 23]);
    }

    #[test]
    fn a_code_that_is_not_sparse_has_no_neighbours() {
        for code in [Code::Rlc, Code::Rlc8681, Code::Cauchy, Code::Rlc16] {
            assert!(code.neighbours(id(0, 10, 0)).is_none());
        }
    }

    /// Every place is a neighbour equally often, and so is every pair. Pearson's chi-squared over 100 places
    /// with a fixed total has mean 99; over 190 pairs of 20 places it has mean 189 and deviation 19.4.
    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn every_set_of_places_is_equally_likely() {
        let (mut seen, mut pairs) = ([0u32; 100], [[0u32; 20]; 20]);
        let code = |degree| Code::SemiRandomLt { degree };
        for key in 0..20_000 {
            places(code(10), id(500, 100, key)).iter().for_each(|&place| seen[usize::from(place)] += 1);
            let few = places(code(2), id(500, 20, key));
            pairs[usize::from(few[0])][usize::from(few[1])] += 1;
        }
        // Without replacement the counts of a repair are negatively correlated: variance 20,000 * 0.1 * 0.9.
        let chi: f64 = seen.iter().map(|&n| (f64::from(n) - 2_000.0).powi(2) / 1_818.2).sum();
        assert!((99.0 - 56.0..99.0 + 56.0).contains(&chi), "places: {chi}");
        let mean = 20_000.0 / 190.0;
        let pairs = pairs.iter().enumerate().flat_map(|(low, row)| &row[low + 1..]);
        let chi: f64 = pairs.map(|&n| (f64::from(n) - mean).powi(2) / mean).sum();
        assert!((189.0 - 78.0..189.0 + 78.0).contains(&chi), "pairs: {chi}");
    }

    /// The degrees that the draws give have the distribution of the table: mean within four deviations.
    #[test]
    #[cfg_attr(miri, ignore = "slow there, and no unsafe code in it")]
    fn degrees_of_repairs_have_the_mean_of_the_table() {
        for count in [100, 256] {
            let soliton = RobustSoliton::new(count, 100, 500);
            let table: Vec<u64> = soliton.cumulative().collect();
            let total = *table.last().unwrap() as f64;
            let tail = |degree: usize| 1.0 - table[degree] as f64 / total;
            let mean = 1.0 + (0..table.len()).map(tail).sum::<f64>();
            let square = 1.0 + (0..table.len()).map(|before| tail(before) * (2.0 * before as f64 + 3.0)).sum::<f64>();
            let draws = 20_000u16;
            let sum: usize = (0..draws).map(|key| LT.neighbours(id(0, count, key)).unwrap().len()).sum();
            let got = sum as f64 / f64::from(draws);
            let variance = (square - mean * mean) / f64::from(draws);
            assert!((got - mean).powi(2) < 16.0 * variance, "n={count}: {got}, expected {mean}, variance {variance}");
        }
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        for code in [
            Code::SemiRandomLt { degree: 0 },
            Code::Lt { c_milli: 0, delta_milli: 500 },
            Code::Lt { c_milli: 1_001, delta_milli: 500 },
            Code::Lt { c_milli: 100, delta_milli: 0 },
            Code::Lt { c_milli: 100, delta_milli: 1_001 },
        ] {
            assert_eq!(code.check(id(0, 10, 0)), Err(crate::SpanError::CodeParameter { code }));
            // No parameter makes a walk panic or run past the span.
            assert!(code.neighbours(id(0, 10, 0)).unwrap().all(|place| place < 10));
            assert_eq!(code.row(id(0, 10, 0)).len(), 10);
        }
        assert_eq!(vec![LT.check(id(0, 10, 65_535)), LT.check(id(0, 65_535, 0))], [Ok(()); 2]);
    }
}
