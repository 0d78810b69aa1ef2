//! Holds the plans to exact integers, the recurrence to the sums that the paper prints, and the corrected
//! form to what it promises.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const FORMS: [(Form, Rounding); 4] = [
    (Form::Printed, Rounding::Up),
    (Form::Printed, Rounding::Down),
    (Form::Corrected, Rounding::Up),
    (Form::Corrected, Rounding::Down),
];

fn block(symbols: u16, loss: f64) -> Block {
    Block::new(symbols, loss, 0.0).unwrap()
}

/// An unsigned integer of any size, 32 bits a limb, the lowest first.
#[derive(Clone, PartialEq, Eq)]
struct Wide(Vec<u32>);

impl Wide {
    fn times(&self, factor: u32) -> Self {
        let mut carry = 0;
        let mut limbs = Vec::with_capacity(self.0.len() + 1);
        for &limb in &self.0 {
            carry += u64::from(limb) * u64::from(factor);
            limbs.push(carry as u32);
            carry >>= 32;
        }
        limbs.push(carry as u32);
        Self(limbs).trimmed()
    }

    fn plus(&self, other: &Self) -> Self {
        let len = self.0.len().max(other.0.len());
        let limb = |of: &Self, at: usize| u64::from(of.0.get(at).copied().unwrap_or(0));
        let mut carry = 0;
        let mut limbs: Vec<u32> = Vec::with_capacity(len + 1);
        for at in 0..len {
            carry += limb(self, at) + limb(other, at);
            limbs.push(carry as u32);
            carry >>= 32;
        }
        limbs.push(carry as u32);
        Self(limbs).trimmed()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn is_above(&self, other: &Self) -> bool {
        let (a, b) = (self.0.iter().rev(), other.0.iter().rev());
        (self.0.len(), a.collect::<Vec<_>>()) > (other.0.len(), b.collect::<Vec<_>>())
    }
}

/// The least k with `P(k) > threshold_percent / 100`, by inclusion-exclusion in exact integers: among the
/// `n^k` sequences of draws, `sum over j of (-1)^j C(q, j) (n - j)^k` choose all of q given symbols.
/// Positive and negative terms are summed apart.
fn exact_samples(n: u32, q: u32, threshold_percent: u32) -> u32 {
    // Row q of Pascal's triangle; the middle of row 26 has eight digits.
    let mut choose: Vec<u32> = vec![1];
    for _ in 0..q {
        let next = (0..=choose.len())
            .map(|j| choose.get(j).copied().unwrap_or(0) + j.checked_sub(1).map_or(0, |before| choose[before]));
        choose = next.collect();
    }
    let mut powers: Vec<Wide> = (0..=q).map(|_| Wide(vec![1])).collect();
    for k in 0.. {
        let (mut above, mut below) = (Wide(vec![]), powers[0].times(threshold_percent));
        for (j, (power, &choose)) in powers.iter().zip(&choose).enumerate() {
            let term = power.times(choose).times(100);
            let side = if j % 2 == 0 { &mut above } else { &mut below };
            *side = side.plus(&term);
        }
        if above.is_above(&below) {
            return k;
        }
        powers = (0..).zip(&powers).map(|(j, power)| power.times(n - j)).collect();
    }
    unreachable!("the probability tends to 1")
}

/// n, loss in percent, D_h, q, and k with N_pro at T = 0.5, 0.9 and 0.99, for the printed form rounded up.
type Cell = (u16, u32, u32, u16, [(u32, u32); 3]);

/// Computed outside this project.
const TABLE: [Cell; 8] = [
    (100, 2, 50, 2, [(123, 3), (296, 7), (527, 11)]),
    (100, 4, 25, 4, [(184, 8), (364, 16), (596, 25)]),
    (100, 6, 17, 6, [(222, 14), (404, 26), (637, 40)]),
    (100, 8, 13, 8, [(249, 21), (432, 37), (665, 56)]),
    (100, 10, 10, 10, [(270, 30), (454, 51), (687, 77)]),
    (256, 2, 50, 6, [(567, 12), (1_036, 22), (1_634, 34)]),
    (256, 6, 17, 16, [(809, 51), (1_285, 81), (1_884, 118)]),
    (256, 10, 10, 26, [(931, 104), (1_409, 157), (2_008, 224)]),
];

const THRESHOLDS: [u32; 3] = [50, 90, 99];

fn rate(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}

#[test]
fn plans_match_the_reference() {
    for (n, percent, degree, lost, columns) in TABLE {
        for (threshold, (samples, repairs)) in THRESHOLDS.into_iter().zip(columns) {
            let plan = block(n, rate(percent)).plan(rate(threshold), Form::Printed, Rounding::Up);
            assert_eq!(plan, Ok(Plan { degree, lost, samples, repairs }), "n={n} p={percent} % T={threshold} %");
        }
    }
}

/// Cells beside the reference, with all numbers recomputed in integers: `n` symbols, loss and deviation in
/// percent.
#[test]
fn plans_match_exact_integers() {
    let cells = [
        (100u32, 6u32, 0u32),
        (100, 1, 0),
        (100, 7, 2),
        (64, 5, 1),
        (256, 3, 3),
        (200, 12, 4),
        (33, 50, 0),
        (2, 40, 20),
    ];
    for (n, loss, deviation) in cells {
        let q = (n * loss).div_ceil(100);
        for threshold in THRESHOLDS {
            let samples = exact_samples(n, q, threshold);
            for (form, rounding) in FORMS {
                let rate_percent = loss + deviation;
                let mut degree = match rounding {
                    Rounding::Up => 100u32.div_ceil(rate_percent),
                    Rounding::Down => 100 / rate_percent,
                };
                if form == Form::Corrected {
                    degree = degree.min(n / 2).max(1);
                }
                let repairs = (100 * samples).div_ceil(degree * (100 - loss));
                let expected = Plan { degree, lost: q as u16, samples, repairs };
                let block = Block::new(n as u16, rate(loss), rate(deviation)).unwrap();
                let plan = block.plan(rate(threshold), form, rounding);
                assert_eq!(plan, Ok(expected), "n={n} p={loss} % delta={deviation} % T={threshold} % {form:?}");
            }
        }
    }
}

/// The table of docs/sphinx.md: symbols, loss and deviation in percent.
const DOCUMENTED: [(u16, u32, u32); 16] = [
    (100, 1, 0),
    (100, 2, 0),
    (100, 4, 0),
    (100, 6, 0),
    (100, 6, 2),
    (100, 8, 0),
    (100, 10, 0),
    (256, 1, 0),
    (256, 2, 0),
    (256, 4, 0),
    (256, 6, 0),
    (256, 6, 2),
    (256, 8, 0),
    (256, 10, 0),
    (1_024, 6, 0),
    (4_096, 6, 0),
];

/// The columns of that table.
const HEAD: &str = "n,p_avg,delta,D_h print,D_h corr,q,k (T = 0.5),N print,N corr,\
    k (T = 0.9),N print,N corr,k (T = 0.99),N print,N corr\n";

#[test]
fn the_table_of_the_documentation_is_current() {
    let mut table = HEAD.to_owned();
    for (n, loss, deviation) in DOCUMENTED {
        let block = Block::new(n, rate(loss), rate(deviation)).unwrap();
        let plans = |form| THRESHOLDS.map(|threshold| block.plan(rate(threshold), form, Rounding::Up).unwrap());
        let (printed, corrected) = (plans(Form::Printed), plans(Form::Corrected));
        let [degree, limited] = [printed, corrected].map(|plans| plans[0].degree);
        let row = format!("{n},{loss} %,{deviation} %,{degree},{limited},{}", block.lost());
        let cells = printed
            .iter()
            .zip(corrected)
            .map(|(printed, corrected)| format!(",{},{},{}", printed.samples, printed.repairs, corrected.repairs));
        table += &format!("{row}{}\n", cells.collect::<String>());
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/data/sphinx-repairs.csv");
    assert_eq!(std::fs::read_to_string(file).unwrap(), table, "{file} is old");
}

#[test]
fn coverage_counts_the_sequences_of_draws() {
    // All sequences of up to seven draws from five symbols.
    for q in 1..=5u32 {
        for k in 0..=7u32 {
            let covers = |sequence: u32| {
                let drawn: u32 = (0..k).map(|at| 1 << (sequence / 5u32.pow(at) % 5)).fold(0, |set, one| set | one);
                drawn & ((1 << q) - 1) == (1 << q) - 1
            };
            let count = (0..5u32.pow(k)).filter(|&sequence| covers(sequence)).count();
            let expected = count as f64 / f64::from(5u32.pow(k));
            assert!((block(5, f64::from(q) / 5.0 - 0.01).coverage(k) - expected).abs() < 1e-15, "q={q} k={k}");
        }
    }
}

/// The sum (4) as printed, with Stirling numbers of the second kind in exact integers.
#[test]
fn coverage_is_the_printed_sum_over_2_and_3() {
    for (n, percent, most) in [(10, 30, 24), (20, 10, 24), (12, 50, 20), (7, 100, 24)] {
        let block = Block::new(n, rate(percent).min(MAX_LOSS), 0.0).unwrap();
        let q = u32::from(block.lost());
        for k in 0..=most {
            let (mut sum, mut product) = (0.0, 0.0);
            for l in 0..=k {
                let surjections: u128 = (1..=u128::from(q)).product::<u128>() * stirling(l, q);
                let all_chosen = surjections as f64 / f64::from(q).powi(l as i32);
                if l >= q {
                    assert!((block.all_chosen(l) - all_chosen).abs() < 1e-13, "(3) at l={l} q={q}");
                }
                sum += block.among_lost(k, l) * all_chosen;
                product += block.among_lost(k, l) * block.all_chosen(l);
            }
            assert!((block.coverage(k) - sum).abs() < 1e-13, "(4) at n={n} q={q} k={k}");
            assert!((product - sum).abs() < 1e-13);
        }
        assert_eq!(block.among_lost(3, 4), 0.0);
    }
}

/// Stirling number of the second kind by its recurrence.
fn stirling(l: u32, q: u32) -> u128 {
    let mut row = vec![1u128];
    for _ in 0..l {
        let next = (0..=row.len()).map(|j| {
            let stays = row.get(j).map_or(0, |&parts| parts * j as u128);
            stays + j.checked_sub(1).map_or(0, |before| row[before])
        });
        row = next.collect();
    }
    row.get(q as usize).copied().unwrap_or(0)
}

/// Inclusion-exclusion in floating point. It has its digits where the probability is at least some 0.3,
/// because there the terms fall from the first on.
fn inclusion_exclusion(n: f64, q: f64, k: f64) -> f64 {
    let (mut sum, mut choose, mut j) = (1.0, 1.0, 0.0);
    while j < q {
        choose *= -(q - j) / (j + 1.0);
        j += 1.0;
        let term = choose * (k * (-j / n).ln_1p()).exp();
        sum += term;
        if term.abs() < 1e-18 {
            break;
        }
    }
    sum
}

#[test]
fn the_longest_block_has_the_same_plan_by_inclusion_exclusion() {
    for percent in [1, 6, 30, 90] {
        let block = block(MAX_SYMBOLS, rate(percent));
        for threshold in [0.5, 0.9, 0.99, 0.999_999] {
            let samples = block.samples(threshold).unwrap();
            let exact = |k: u32| inclusion_exclusion(4_096.0, block.lost().into(), k.into());
            assert!(exact(samples) > threshold && exact(samples - 1) <= threshold, "p={percent} % T={threshold}");
            let (got, expected) = (block.coverage(samples), exact(samples));
            assert!((got - expected).abs() < 1e-11 && ((1.0 - got) / (1.0 - expected) - 1.0).abs() < 1e-9, "{got}");
        }
    }
}

#[test]
fn the_printed_form_repeats_one_repair_at_low_loss_and_the_corrected_form_does_not() {
    let low = block(100, 0.01);
    let plan = |form| low.plan(0.9, form, Rounding::Up).unwrap();
    let (printed, corrected) = (plan(Form::Printed), plan(Form::Corrected));
    assert_eq!((printed.degree, printed.repairs), (100, 3));
    assert_eq!((corrected.degree, corrected.repairs), (50, 5));
    assert!(low.repairs_coincide(printed.degree) && !low.repairs_coincide(corrected.degree));
    let distinct = |plan: Plan| drawn(100, plan).into_iter().collect::<BTreeSet<_>>().len();
    assert_eq!((distinct(printed), distinct(corrected)), (1, 5));
    // Just above 1/n the printed repairs omit a symbol each, and the corrected form is unchanged.
    assert_eq!(block(100, 0.010_2).degree(Form::Printed, Rounding::Up), Ok(99));
    assert_eq!(block(100, 0.010_2).degree(Form::Corrected, Rounding::Up), Ok(50));
}

/// The source symbols that each repair of a plan mixes, drawn without replacement by a fixed sequence.
fn drawn(symbols: u16, plan: Plan) -> Vec<BTreeSet<u16>> {
    let mut state = 1u64;
    let mut repair = || {
        let mut chosen = BTreeSet::new();
        while chosen.len() < (plan.degree as usize).min(symbols.into()) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            chosen.insert(((state >> 33) % u64::from(symbols)) as u16);
        }
        chosen
    };
    (0..plan.repairs).map(|_| repair()).collect()
}

#[test]
fn a_path_without_loss_needs_no_repair() {
    let idle = block(100, 0.0);
    let plan = idle.plan(0.9, Form::Corrected, Rounding::Up);
    assert_eq!(plan, Ok(Plan { degree: 50, lost: 0, samples: 0, repairs: 0 }));
    assert_eq!(idle.plan(0.9, Form::Printed, Rounding::Up), Err(OutOfRange::Lossless));
    assert_eq!((idle.coverage(0), idle.coverage(7), idle.among_lost(5, 0)), (1.0, 1.0, 1.0));
    // A deviation alone sets the printed degree.
    assert_eq!(Block::new(100, 0.0, 0.04).unwrap().degree(Form::Printed, Rounding::Up), Ok(25));
}

#[test]
fn rates_that_are_whole_in_decimal_round_as_in_decimal() {
    // In binary 100 * 0.07 is above 7, and 1 / (0.1 + 0.2) is below 10/3.
    assert_eq!(block(100, 0.07).lost(), 7);
    let third = Block::new(100, 0.03, 0.02).unwrap();
    assert_eq!([Rounding::Up, Rounding::Down].map(|rounding| third.degree(Form::Printed, rounding)), [Ok(20); 2]);
    assert_eq!(block(100, 0.070_001).lost(), 8);
}

#[test]
fn numbers_out_of_range_are_named_with_their_limit() {
    assert_eq!(Block::new(0, 0.1, 0.0), Err(OutOfRange::Symbols(0)));
    assert_eq!(Block::new(4_097, 0.1, 0.0), Err(OutOfRange::Symbols(4_097)));
    for loss in [-0.1, 0.991, f64::INFINITY] {
        assert_eq!(Block::new(10, loss, 0.0), Err(OutOfRange::Loss(loss)));
    }
    assert!(matches!(Block::new(10, f64::NAN, 0.0), Err(OutOfRange::Loss(_))));
    for deviation in [-0.1, 0.91] {
        assert_eq!(Block::new(10, 0.1, deviation), Err(OutOfRange::Deviation { deviation, loss: 0.1 }));
    }
    assert!(matches!(Block::new(10, 0.1, f64::NAN), Err(OutOfRange::Deviation { .. })));
    for threshold in [0.0, 1.0, -1.0] {
        assert_eq!(block(10, 0.1).samples(threshold), Err(OutOfRange::Threshold(threshold)));
    }
    assert!(matches!(block(10, 0.1).samples(f64::NAN), Err(OutOfRange::Threshold(_))));
    for (error, limit) in [
        (OutOfRange::Symbols(4_097), "at most 4096"),
        (OutOfRange::Loss(1.0), "at most 0.99"),
        (OutOfRange::Deviation { deviation: 0.8, loss: 0.5 }, "at most 0.5"),
        (OutOfRange::Threshold(0.0), "at least 0.001"),
    ] {
        assert!(error.to_string().contains(limit), "{error}");
    }
}

fn cases() -> ProptestConfig {
    let few = tidewire_testing::few_seeds();
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if few { 40 } else { 400 }) }
}

proptest! {
    #![proptest_config(cases())]

    /// More loss, more deviation and a higher threshold never need fewer repairs.
    #[test]
    fn repairs_grow_with_loss_deviation_and_threshold(
        symbols in 1..=1_024u16, low in 0.0..0.5, more in 0.0..0.3, deviation in 0.001..0.2, threshold in 0.01..0.9,
    ) {
        for (form, rounding) in FORMS {
            let plan = |loss, deviation, threshold| {
                Block::new(symbols, loss, deviation).unwrap().plan(threshold, form, rounding).unwrap()
            };
            let base = plan(low, deviation, threshold);
            prop_assert!(base.repairs <= plan(low + more, deviation, threshold).repairs);
            prop_assert!(base.repairs <= plan(low, deviation + more / 2.0, threshold).repairs);
            prop_assert!(base.repairs <= plan(low, deviation, threshold + 0.09).repairs);
            prop_assert!(base.degree >= plan(low + more, deviation, threshold).degree);
        }
    }

    /// Whatever the numbers, the corrected form has a plan, and its repairs can differ.
    #[test]
    fn the_corrected_form_always_has_a_plan(
        symbols in 1..=MAX_SYMBOLS, loss in prop_oneof![Just(0.0), 1e-12..1e-2, 0.0..=MAX_LOSS],
        deviation in 0.0..=1.0, threshold in prop_oneof![Just(MIN_THRESHOLD), Just(MAX_THRESHOLD), 0.01..0.99],
    ) {
        let block = Block::new(symbols, loss, deviation * (1.0 - loss)).unwrap();
        for rounding in [Rounding::Up, Rounding::Down] {
            let plan = block.plan(threshold, Form::Corrected, rounding).unwrap();
            prop_assert!((1..=u32::from(symbols)).contains(&plan.degree));
            prop_assert!(symbols == 1 || !block.repairs_coincide(plan.degree));
            prop_assert_eq!(plan.repairs == 0, plan.lost == 0);
            prop_assert!(plan.samples >= plan.lost.into());
            let reached = block.coverage(plan.samples);
            prop_assert!((0.0..=1.0).contains(&reached) && reached > threshold, "{} for {}", reached, threshold);
            if plan.samples > 0 {
                prop_assert!(block.coverage(plan.samples - 1) <= threshold);
            }
        }
    }

    #[test]
    fn probabilities_are_between_0_and_1_and_grow_with_the_draws(
        symbols in 1..=MAX_SYMBOLS, loss in 0.0..=MAX_LOSS, draws in 0..20_000u32,
    ) {
        let block = Block::new(symbols, loss, 0.0).unwrap();
        let (before, after) = (block.coverage(draws), block.coverage(draws + 1));
        prop_assert!((0.0..=1.0).contains(&before) && before <= after + 1e-15, "{} {}", before, after);
        prop_assert!((0.0..=1.0).contains(&block.all_chosen(draws)));
        let among = block.among_lost(draws, (f64::from(draws) * loss) as u32);
        prop_assert!((0.0..=1.0).contains(&among), "{}", among);
    }
}
