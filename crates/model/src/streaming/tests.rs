//! Compares the closed forms with summation, with brute force over loss patterns, and with the catalogue's
//! values.

use super::*;

fn code(e: f64, l: u32) -> Streaming {
    Streaming::new(e, l.into()).unwrap()
}

fn close(got: f64, expected: f64, relative: f64) {
    assert!((got - expected).abs() <= relative * expected.abs().max(1e-30), "{got} instead of {expected}");
}

/// Loss rate and spacing, from light load to 90 % of capacity.
const CELLS: [(f64, u32); 8] = [(0.01, 2), (0.01, 50), (0.02, 40), (0.1, 2), (0.1, 5), (0.1, 9), (0.2, 4), (0.3, 3)];

/// `P(S = s)` for all s, by advancing the distribution of the deficit group by group, without any formula of
/// the paper.
fn brute_busy(e: f64, l: u32, groups: usize) -> Vec<f64> {
    let binomials = |n: u32| {
        let mut row = vec![1.0];
        for _ in 0..n {
            let mut next = vec![0.0; row.len() + 1];
            for (k, p) in row.iter().enumerate() {
                next[k] += p * (1.0 - e);
                next[k + 1] += p * e;
            }
            row = next;
        }
        row
    };
    let (sources, all) = (binomials(l - 1), binomials(l));
    let mut law = vec![sources[0]];
    let mut deficits = vec![0.0; l as usize];
    for (lost, p) in sources.iter().enumerate().skip(1) {
        deficits[lost - 1] += p * (1.0 - e);
        deficits[lost] += p * e;
    }
    for _ in 1..=groups {
        law.push(deficits[0]);
        deficits[0] = 0.0;
        let mut next = vec![0.0; deficits.len() + all.len() - 2];
        for (deficit, p) in deficits.iter().enumerate().skip(1) {
            for (lost, step) in all.iter().enumerate() {
                next[deficit + lost - 1] += p * step;
            }
        }
        while next.last().is_some_and(|p| *p < 1e-30) {
            next.pop();
        }
        next.resize(next.len().max(1), 0.0);
        deficits = next;
    }
    law
}

#[test]
fn the_law_of_the_busy_period_is_that_of_the_queue() {
    for (e, l) in CELLS {
        let law = brute_busy(e, l, 60);
        for (s, expected) in (0u32..).zip(&law) {
            // Deficits with a probability below 1e-30 are omitted.
            assert!((code(e, l).busy(s) - expected).abs() < 1e-11 * expected + 1e-26);
        }
        let beyond = 1.0 - law.iter().take(41).sum::<f64>();
        assert!((code(e, l).failure(40).unwrap() - beyond).abs() < 1e-12);
    }
}

#[test]
fn moments_are_the_sums_of_their_series() {
    for (e, l) in CELLS {
        let code = code(e, l);
        let (mut sums, mut cycle) = ([0.0; 4], 0.0);
        for s in 0..40_000 {
            let (p, s) = (code.busy(s), f64::from(s));
            if p < 1e-40 {
                break;
            }
            for (power, sum) in (0..).zip(&mut sums) {
                *sum += p * s.powi(power);
            }
            cycle += p * s.max(1.0);
        }
        let closed = [1.0, code.mean_busy(), code.second_moment(), code.third_moment()];
        sums.into_iter().zip(closed).for_each(|(sum, closed)| close(closed, sum, 1e-9));
        close(code.mean_cycle(), cycle, 1e-9);
        close((0..3).map(|s| code.cycle(s)).sum(), (0..3).map(|s| code.busy(s)).sum(), 1e-12);
    }
}

#[test]
fn failure_keeps_its_digits_where_it_is_tiny() {
    let code = code(0.01, 20);
    let tail: f64 = (101..400).rev().map(|s| code.busy(s)).sum();
    assert!(tail < 1e-30);
    close(code.failure(100).unwrap(), tail, 1e-9);
    let ratio = code.failure(101).unwrap() / code.failure(100).unwrap();
    assert!((ratio / code.tail_ratio() - 1.0).abs() < 0.02, "{ratio} {}", code.tail_ratio());
}

#[test]
fn tanners_passage_convolves() {
    // From r pending losses to none are r passages by one.
    for (e, l) in CELLS {
        let one = |k| passage(e, l, 1, k).unwrap();
        for k in 2..30 {
            close(passage(e, l, 2, k).unwrap(), (1..k).map(|first| one(first) * one(k - first)).sum(), 1e-11);
        }
        assert_eq!([passage(e, l, 0, 0), passage(e, l, 0, 3), passage(e, l, 4, 3)], [Ok(1.0), Ok(0.0), Ok(0.0)]);
    }
}

/// Reference values at e = 0.1, from computations outside this project: l, exact mean, P(D = 0), p50, p90,
/// p99, p999.
const REFERENCE: [(u32, f64, f64, [f64; 4]); 8] = [
    (2, 0.142_361, 0.889, [0.0, 1.0, 3.0, 5.0]),
    (3, 0.412_069, 0.821, [0.0, 1.0, 7.0, 14.0]),
    (4, 1.058_070, 0.744, [0.0, 3.0, 15.0, 33.0]),
    (5, 2.603_948, 0.655, [0.0, 8.0, 36.0, 72.0]),
    (6, 6.495_176, 0.555, [0.0, 20.0, 80.0, 158.0]),
    (7, 17.527_940, 0.441, [2.0, 53.0, 197.0, 377.0]),
    (8, 57.582_165, 0.312, [10.0, 171.0, 586.0, 1_099.0]),
    (9, 326.038_216, 0.165, [80.0, 941.0, 3_009.0, 5_539.0]),
];

#[test]
fn mean_and_quantiles_match_the_reference() {
    for (l, mean, zero, quantiles) in REFERENCE {
        let code = code(0.1, l);
        assert!((code.mean_delay() - mean).abs() < 6e-7, "l={l}: {}", code.mean_delay());
        assert!((code.no_delay() - zero).abs() < 6e-4);
        let got = [0.5, 0.9, 0.99, 0.999].map(|q| code.quantile(q).unwrap());
        assert_eq!(got, quantiles, "l={l}");
    }
}

#[test]
fn the_distribution_has_the_mean_and_is_the_one_that_late_and_quantile_walk() {
    for (e, l) in CELLS {
        let code = code(e, l);
        // Sums until the rest is below 1e-13. Near capacity that would take too long.
        let slots = (30.0 / -code.tail_ratio().ln()) as u32 * l;
        let (mut later, mut mean) = (1.0, 0.0);
        for slot in 0..slots.min(3_000) {
            let exact = code.delay(slot).unwrap();
            later -= exact;
            mean += exact * f64::from(slot);
            if slot < 40 || slot % 97 == 1 {
                assert!((code.late(slot.into()).unwrap() - later).abs() < 1e-12, "{e} {l} {slot}");
                if exact > 1e-9 {
                    assert_eq!(code.quantile(1.0 - later - exact / 2.0), Some(slot.into()));
                }
            }
        }
        if slots < 3_000 {
            close(code.mean_delay(), mean, 1e-9);
        }
    }
}

#[test]
fn table_one_both_ways() {
    // e, then the paper's value and the correct value for l e = 0.5 .. 0.9 (catalogue).
    let table = [
        (0.02, [0.67, 1.93, 7.11, 41.74, 769.58], [0.619, 1.766, 6.580, 39.391, 745.771]),
        (0.1, [3.13, 8.87, 32.56, 190.96, 3_525.0], [2.867, 8.112, 30.111, 180.167, 3_415.667]),
    ];
    for (e, printed, right) in table {
        for (x, (printed, right)) in [0.5, 0.6, 0.7, 0.8, 0.9].into_iter().zip(printed.into_iter().zip(right)) {
            let code = Streaming::new(e, x / e).unwrap();
            let as_printed = printed::operations(&code);
            assert!(as_printed >= printed && as_printed < printed + 0.02, "{e} {x}: {as_printed}");
            assert!((code.operations() - right).abs() < 6e-4, "{e} {x}: {}", code.operations());
        }
    }
}

#[test]
fn theorem_two_as_printed_is_no_bound() {
    for l in 2..=9 {
        let code = code(0.1, l);
        assert!(printed::mean_delay_bound(&code) < code.mean_delay());
        // At l = 2 the bound equals the mean.
        assert!(code.mean_delay() < code.mean_delay_bound() * (1.0 + 1e-12));
        close(printed::mean_delay_bound(&code) * f64::from(l), code.mean_delay_bound() * f64::from(l - 1), 1e-12);
    }
}

/// Number of delivered source symbols and probability, for every loss pattern of `groups` groups and a tail.
fn patterns(e: f64, l: u32, groups: u32, tail: u32) -> Vec<(u32, f64)> {
    let packets = groups * l + tail;
    let outcome = |pattern: u32| {
        let lost = |n: u32| pattern >> n & 1 == 1;
        let (mut deficit, mut sent, mut delivered) = (0, 0, 0);
        for n in 0..packets {
            let is_repair = n >= groups * l || n % l == l - 1;
            match (is_repair, lost(n)) {
                (true, false) if deficit > 0 => deficit -= 1,
                (true, _) => {}
                (false, lost) => {
                    sent += 1;
                    deficit += u32::from(lost);
                }
            }
            if deficit == 0 {
                delivered = sent;
            }
        }
        let ones = pattern.count_ones() as i32;
        (delivered, e.powi(ones) * (1.0 - e).powi(packets as i32 - ones))
    };
    (0..1 << packets).map(outcome).collect()
}

#[test]
fn the_end_of_a_stream_is_that_of_all_loss_patterns() {
    for (e, l, groups, tail) in [(0.1, 3, 4, 0), (0.1, 3, 4, 3), (0.2, 4, 4, 2), (0.3, 2, 7, 1), (0.15, 5, 3, 0)] {
        let all = patterns(e, l, groups, tail);
        let packets = f64::from(groups * l + tail);
        let ending = code(e, l).ending(groups, tail).unwrap();
        let mean: f64 = all.iter().map(|(delivered, p)| f64::from(*delivered) * p).sum::<f64>() / packets;
        close(ending.mean_goodput(), mean, 1e-9);
        let whole = (l - 1) * groups;
        let missing = all.iter().filter(|(delivered, _)| *delivered < whole).map(|(_, p)| p).sum();
        close(ending.incomplete(), missing, 1e-9);
        for delivered in 0..=whole {
            let rate = (f64::from(delivered) + 0.5) / packets;
            let more = all.iter().filter(|(d, _)| *d > delivered).map(|(_, p)| p).sum::<f64>();
            assert!((ending.goodput_exceeds(rate) - more).abs() < 1e-9, "{e} {l} {delivered}");
        }
    }
}

#[test]
fn theorem_three_holds_but_not_the_bound_in_its_proof() {
    let code = code(0.1, 9);
    let rate = |lost: f64| code.rate() * (1.0 - lost / 1_000.0);
    let ending = code.ending(1_000, 0).unwrap();
    assert!(ending.goodput_exceeds(rate(20.0)) < printed::goodput_bound(&code, 20).unwrap() - 0.3);
    let short = code.ending(100, 0).unwrap().goodput_exceeds(0.8);
    assert!(short < ending.goodput_exceeds(0.8) && ending.goodput_exceeds(0.8) > 0.7, "{short}");
    let tailed = code.ending(1_000, 60).unwrap();
    assert!(tailed.incomplete() < ending.incomplete() / 2.0 && tailed.mean_goodput() < ending.mean_goodput() + 0.1);
}

#[test]
fn what_is_out_of_the_model_is_refused_by_name() {
    use OutOfModel::{Loss, Spacing, Unstable};
    assert_eq!(Streaming::new(1.0, 5.0), Err(Loss(1.0)));
    assert_eq!(Streaming::new(-0.1, 5.0), Err(Loss(-0.1)));
    assert_eq!(Streaming::new(0.1, 1.0), Err(Spacing(1.0)));
    assert_eq!(Streaming::new(1e-6, 4_097.0), Err(Spacing(4_097.0)));
    assert_eq!(Streaming::new(0.1, 10.0), Err(Unstable(1.0)));
    assert!(Streaming::new(f64::NAN, 5.0).is_err() && Streaming::new(0.1, f64::NAN).is_err());
    assert!(Streaming::new(f64::INFINITY, 5.0).is_err() && Streaming::new(0.1, f64::INFINITY).is_err());
    let code = code(0.1, 5);
    assert_eq!([code.quantile(1.0), code.quantile(-0.1), code.quantile(f64::NAN)], [None; 3]);
    assert_eq!((code.late(f64::NAN), code.late(-1.0), code.late(f64::INFINITY)), (None, Some(1.0), None));
    assert_eq!((code.failure(MAX_GROUPS + 1), code.delay(u32::MAX - 1)), (None, None));
    assert!(code.ending(0, 0).is_none() && code.ending(u32::MAX, 0).is_none() && code.ending(10, 51).is_none());
}

#[test]
fn every_argument_ends_with_sound_numbers() {
    // The limits: no loss, tiny loss, nearly unstable, widest and narrowest.
    for (e, l) in
        [(0.0, 5.0), (1e-300, 9.0), (0.099_999_999, 10.0), (2.4e-4, 4_096.0), (0.9, 1.1), (0.999_999, 1.000_000_5)]
    {
        let code = Streaming::new(e, l).unwrap();
        let numbers =
            [code.mean_delay(), code.mean_delay_bound(), code.no_delay(), code.tail_ratio(), code.operations()];
        assert!(numbers.iter().all(|n| n.is_finite() && *n >= 0.0), "{e} {l}: {numbers:?}");
        for q in [0.0, 0.5, 0.99, 0.999_999_999_999] {
            assert!(code.quantile(q).is_none_or(|delay| delay.is_finite() && delay >= 0.0), "{e} {l} {q}");
        }
        assert!((0.0..=1.0).contains(&code.late(10.0).unwrap()) && code.failure(MAX_GROUPS).unwrap() <= 1.0);
    }
    let code = Streaming::new(0.0, 5.0).unwrap();
    assert_eq!(
        (code.mean_delay(), code.no_delay(), code.quantile(0.999), code.late(0.0)),
        (0.0, 1.0, Some(0.0), Some(0.0))
    );
}
