//! Compares the model with the closed forms at independent losses, and with the Markov chain advanced slot by
//! slot.

use super::super::streaming::Streaming;
use super::*;

/// `P(D > slots)` by brute force: advances the distribution of channel and deficit until it is stationary,
/// then on from there for each symbol.
struct Chain {
    mean: f64,
    late: Vec<f64>,
}

fn chain(loss: f64, burst: f64, length: u32, slots: usize, deficits: usize) -> Chain {
    let (after_arrival, after_loss) = (loss / (1.0 - loss) / burst, 1.0 - 1.0 / burst);
    // One slot of a distribution over (deficit, channel). A lost repair changes the channel only.
    let step = |law: &[[f64; 2]], repair: bool| {
        let mut next = vec![[0.0; 2]; law.len()];
        for (deficit, [good, bad]) in law.iter().enumerate() {
            let arrives = good * (1.0 - after_arrival) + bad * (1.0 - after_loss);
            let lost = good * after_arrival + bad * after_loss;
            let (down, up) = if repair { (deficit.saturating_sub(1), deficit) } else { (deficit, deficit + 1) };
            next[down][0] += arrives;
            next[up.min(law.len() - 1)][1] += lost;
        }
        next
    };
    let group = |law: Vec<[f64; 2]>| {
        let law = (1..length).fold(law, |law, _| step(&law, false));
        step(&law, true)
    };
    let mut law = vec![[0.0; 2]; deficits];
    law[0] = [1.0 - loss, loss];
    for _ in 0..1_500 {
        law = group(law);
    }
    let mut late = vec![0.0; slots];
    let mut mean = 0.0;
    for j in 1..length {
        let mut waiting = (0..j).fold(law.clone(), |law, _| step(&law, false));
        waiting[0] = [0.0; 2];
        for wait in 1..100_000 {
            let left: f64 = waiting.iter().flatten().sum();
            mean += left / f64::from(length - 1);
            if let Some(late) = late.get_mut(wait as usize - 1) {
                *late += left / f64::from(length - 1);
            }
            if left < 1e-14 {
                break;
            }
            waiting = step(&waiting, (j + wait) % length == 0);
            waiting[0] = [0.0; 2];
        }
    }
    Chain { mean, late }
}

#[test]
fn delay_is_that_of_the_chain() {
    for (loss, burst, length, deficits) in
        [(0.1, 4.0, 4, 160), (0.05, 2.0, 8, 120), (0.02, 8.0, 3, 160), (0.3, 1.0, 2, 60), (0.1, 1.6, 5, 160)]
    {
        let code = Gilbert::new(loss, burst, length).unwrap();
        let brute = chain(loss, burst, length, 400, deficits);
        assert!((code.mean_delay() / brute.mean - 1.0).abs() < 1e-9, "{} {}", code.mean_delay(), brute.mean);
        assert!((code.no_delay() - (1.0 - brute.late[0])).abs() < 1e-10);
        for (slots, expected) in brute.late.iter().enumerate().filter(|(slots, _)| slots % 5 < 2) {
            let got = code.late(slots as f64).unwrap();
            assert!((got - expected).abs() < 1e-9, "{loss} {burst} {length}: {slots} slots: {got} {expected}");
        }
        for q in [0.5, 0.9, 0.99] {
            let expected = brute.late.iter().position(|late| *late <= 1.0 - q);
            assert_eq!(code.quantile(q), expected.map(|slots| slots as f64), "{loss} {burst} {length} {q}");
        }
    }
}

#[test]
fn independent_losses_are_the_closed_forms() {
    for (loss, length) in [(0.1, 2), (0.1, 5), (0.1, 9), (0.02, 40), (0.011, 90), (0.3, 3), (0.001, 500)] {
        let (code, closed) =
            (Gilbert::new(loss, 1.0 / (1.0 - loss), length).unwrap(), Streaming::new(loss, length.into()).unwrap());
        let near = |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 1e-9, "{got} {expected}");
        near(code.mean_delay(), closed.mean_delay());
        near(code.mean_cycle(), closed.mean_cycle());
        near(code.no_delay(), closed.no_delay());
        for slots in [0.0, 1.0, 3.0, 17.0, 100.0, 500.0, 3_000.0, 20_000.0] {
            let (got, expected) = (code.late(slots).unwrap(), closed.late(slots).unwrap());
            assert!((got - expected).abs() < 1e-9, "{loss} {length} {slots}: {got} {expected}");
        }
        for q in [0.5, 0.9, 0.99, 0.999] {
            // Where the tail is so flat that 1e-9 is some slots, the result may differ by some slots.
            let got = code.quantile(q).unwrap();
            let near = |expected: f64| (got - expected).abs() <= 1e-5 * expected;
            assert!(closed.quantile(q).is_none_or(near), "{loss} {length} {q}: {got}");
        }
    }
}

#[test]
fn real_spacing_lies_between_whole_ones() {
    let at = |spacing| late(0.1, 4.0, spacing, 60.0);
    assert!(at(4.0) < at(4.3) && at(4.3) < at(4.9) && at(4.9) < at(5.0) && at(10.5) == 1.0);
    assert_eq!((late(0.1, 4.0, f64::NAN, 60.0), late(0.1, 4.0, -3.0, 60.0)), (1.0, 1.0));
}

#[test]
fn what_is_out_of_the_model_is_refused_by_name() {
    use OutOfModel::{Burst, Loss, Spacing, Unstable};
    assert_eq!(Gilbert::new(1.0, 2.0, 5), Err(Loss(1.0)));
    assert_eq!(Gilbert::new(0.1, 2.0, 1), Err(Spacing(1.0)));
    assert_eq!(Gilbert::new(0.1, 2.0, 10), Err(Unstable(1.0)));
    assert_eq!(Gilbert::new(0.1, 0.9, 5), Err(Burst(0.9)));
    assert_eq!(Gilbert::new(0.1, 1e9, 5), Err(Burst(1e9)));
    assert!(Gilbert::new(f64::NAN, 2.0, 5).is_err() && Gilbert::new(0.1, f64::NAN, 5).is_err());
    let code = Gilbert::new(0.1, 4.0, 5).unwrap();
    assert_eq!([code.quantile(1.0), code.quantile(f64::NAN), code.late(f64::NAN), code.late(1e9)], [None; 4]);
    assert_eq!(code.late(-1.0), Some(1.0));
}

#[test]
fn every_argument_ends_with_sound_numbers() {
    for (loss, burst, length) in
        [(0.0, 1.0, 5), (1e-300, 5.0, 9), (0.099_999, 30.0, 10), (2.4e-4, 1e4, 4_096), (0.499, 1e4, 2), (1e-9, 1.0, 2)]
    {
        let code = Gilbert::new(loss, burst, length).unwrap();
        let numbers = [code.mean_delay(), code.mean_cycle(), code.no_delay()];
        assert!(numbers.iter().all(|n| n.is_finite() && *n >= 0.0), "{loss} {burst} {length}: {numbers:?}");
        assert!((0.0..=1.0).contains(&code.late(1_000.0).unwrap()));
        assert!(code.quantile(0.9).is_none_or(f64::is_finite));
    }
}

#[test]
fn what_policies_ask_is_as_good_as_they_need() {
    for (loss, burst) in [(0.002, 1.1), (0.02, 1.1), (0.1, 1.2), (0.1, 4.0), (0.2, 8.0)] {
        for spacing in [3, 4, 8, 20] {
            for slots in [0.0, 1.0, 5.5, 20.0, 80.0, 300.0, 1_200.0, 5_000.0] {
                let Some(fine) = Gilbert::new(loss, burst, spacing).ok().and_then(|code| code.late(slots)) else {
                    continue;
                };
                let quick = late(loss, burst, spacing.into(), slots);
                assert!((quick - fine).abs() < 1e-6, "{loss} {burst} {spacing} {slots}: {quick} {fine}");
            }
        }
    }
}
