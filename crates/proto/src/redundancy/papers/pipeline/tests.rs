use core::time::Duration;

use super::*;
use crate::redundancy::{Report, context as any_context};

fn policy(text: &str) -> Pipeline {
    Pipeline::new(PipelineBlocks::parse(text).expect(text))
}

/// All combinations that are due, as first symbol and length.
fn due(policy: &mut Pipeline, cx: &CodingContext<'_>) -> Vec<(u64, u16)> {
    let next = || match policy.next(cx) {
        Some(Repair::Coded { first, count, row: None, on_feedback: false }) => Some((first.0, count)),
        None => None,
        other => panic!("{other:?}"),
    };
    core::iter::from_fn(next).collect()
}

/// What leaves after each of the symbols in `ids`, while more are waiting.
fn sent(policy: &mut Pipeline, ids: core::ops::Range<u64>, rate: f64) -> Vec<Vec<(u64, u16)>> {
    let report = Report::default();
    let mut cx = any_context(&report, rate, 1.0, true);
    cx.flow.backlog = true;
    ids.map(|id| {
        cx.sent = SourceId(id + 1);
        policy.on_source_sent(&cx);
        due(policy, &cx)
    })
    .collect()
}

#[test]
fn each_symbol_leaves_at_once_as_a_combination_of_its_generation_so_far() {
    let mut policy = policy("4,1.25");
    assert!(policy.withholds_sources());
    let twice = |span| vec![span, span];
    // One in four leaves twice, and the generation is closed with four.
    assert_eq!(
        sent(&mut policy, 0..6, 0.0),
        [vec![(0, 1)], vec![(0, 2)], vec![(0, 3)], twice((0, 4)), vec![(4, 1)], vec![(4, 2)]]
    );
}

#[test]
fn the_systematic_form_leaves_the_further_combinations() {
    let mut policy = policy("8,1.5,systematic");
    assert!(!policy.withholds_sources());
    assert_eq!(sent(&mut policy, 0..4, 0.0), [vec![], vec![(0, 2)], vec![], vec![(0, 4)]]);
}

#[test]
fn the_fraction_is_carried_over_generations() {
    // 1.05 of 16 are 0.8 in each generation: 20 in 400 symbols.
    let mut policy = policy("16,1.05");
    let leaves: usize = sent(&mut policy, 0..400, 0.0).iter().map(Vec::len).sum();
    assert_eq!(leaves, 420);
}

#[test]
fn each_ratio_follows_its_formula_and_the_cap() {
    // At 20 % loss: 1.25, 1.65 and 2.65. The cap is 1.5.
    for (ratio, expected) in [("min", 1_250), ("combo", 1_500), ("combo-printed", 2_650), ("1.75", 1_750)] {
        let mut policy = policy(&format!("64,{ratio}"));
        let leaves: usize = sent(&mut policy, 0..1_000, 0.2).iter().map(Vec::len).sum();
        assert!(leaves.abs_diff(expected) <= 1, "{ratio}: {leaves}");
    }
    for (ratio, expected) in [("min", 1_000), ("combo", 1_400), ("combo-printed", 2_400)] {
        let leaves: usize = sent(&mut policy(&format!("64,{ratio}")), 0..1_000, 0.0).iter().map(Vec::len).sum();
        assert!(leaves.abs_diff(expected) <= 1, "{ratio}: {leaves}");
    }
}

#[test]
fn the_planners_share_is_sent() {
    let report = Report::default();
    let planned = crate::redundancy::Planned { share: 0.1, ..crate::redundancy::Planned::NONE };
    let mut cx = CodingContext { planned: &planned, ..any_context(&report, 0.1, 1.0, true) };
    let mut policy = policy("64,adaptive");
    let mut leaves = 0;
    for id in 0..1_000 {
        cx.sent = SourceId(id + 1);
        policy.on_source_sent(&cx);
        leaves += due(&mut policy, &cx).len();
    }
    assert_eq!(leaves, 1_100);
}

#[test]
fn a_pause_closes_the_generation_and_rounds_its_debt_up_which_later_generations_owe_less() {
    let report = Report::default();
    let mut cx = any_context(&report, 0.0, 1.0, false);
    let mut policy = policy("16,1.25");
    let mut extra = Vec::new();
    for id in 0..9 {
        cx.sent = SourceId(id + 1);
        cx.flow.last = cx.now;
        policy.on_source_sent(&cx);
        assert_eq!(due(&mut policy, &cx), [(id, 1)], "it leaves at once, and its generation was closed");
        let wakes = policy.poll_timeout(&cx);
        cx.now += Duration::from_micros(7_499);
        assert_eq!(due(&mut policy, &cx), []);
        cx.now += Duration::from_micros(1);
        assert!(wakes.is_none_or(|at| at == cx.now), "an eighth of 60 ms");
        let closing = due(&mut policy, &cx);
        assert_eq!(wakes.is_some(), !closing.is_empty());
        assert_eq!(policy.poll_timeout(&cx), None);
        extra.push(closing.len());
    }
    assert_eq!(extra, [1, 0, 0, 0, 1, 0, 0, 0, 1]);
}

#[test]
fn what_the_peer_has_is_not_combined_again() {
    let report = Report::default();
    let mut cx = any_context(&report, 0.0, 1.0, false);
    let mut policy = policy("16,2");
    (cx.sent, cx.base) = (SourceId(3), SourceId(2));
    (1..=3).for_each(|sent| policy.on_source_sent(&CodingContext { sent: SourceId(sent), ..cx }));
    assert_eq!(due(&mut policy, &cx), [(2, 1); 6]);
    policy.on_source_sent(&CodingContext { sent: SourceId(4), ..cx });
    (cx.sent, cx.base) = (SourceId(4), SourceId(4));
    assert_eq!((due(&mut policy, &cx), policy.poll_timeout(&cx)), (Vec::new(), None));
}
