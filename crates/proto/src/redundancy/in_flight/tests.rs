//! Every question is answered as a walk over the list would answer it, and costs no walk.

use tidewire_codec::SplitMix64;

use super::*;

const COUNT: u64 = 20_000;

fn filled() -> InFlight {
    let mut list = InFlight::default();
    for packet in 0..COUNT {
        let repair = RepairInFlight { packet, first: SourceId(packet), count: 1, key: 0, on_feedback: packet % 2 == 0 };
        list.push(repair, SourceId(packet));
    }
    list
}

#[test]
fn each_repair_is_settled_once_in_any_order() {
    let mut list = filled();
    // 7 and the count have no common factor, so every number occurs once.
    for packet in (0..COUNT).map(|n| n * 7 % COUNT) {
        assert_eq!(list.settle(packet).map(|repair| repair.first), Some(SourceId(packet)));
        assert_eq!(list.settle(packet), None);
    }
    assert!(list.repairs.is_empty() && !list.has_proactive());
    assert_eq!(list.tally.sum_from(SourceId(0)), Counts::default());
}

/// Counts the entries that removals move. A list that closed each gap at once moved half of the entries for
/// each settled repair.
#[test]
fn issue_13_settling_repairs_does_not_move_the_others_each_time() {
    let mut list = filled();
    let mut moved = 0;
    for packet in 0..COUNT {
        let before = list.repairs.len();
        list.settle(packet);
        let after = list.repairs.len();
        moved += if after < before { after as u64 } else { 0 };
    }
    assert!(moved <= COUNT, "{moved} entries moved to settle {COUNT}");
}

/// What a walk over the list says about a span: repairs within it, singles within it, and those that help.
fn walked(list: &InFlight, span: &Range<SourceId>) -> ([Flying; 3], Option<SourceId>) {
    let (mut counts, mut end) = ([Flying::default(); 3], None);
    for repair in list.iter() {
        let (is_inside, is_single) = (span.contains(&repair.first), repair.count == 1);
        let is_helping = (repair.first <= span.start && span.start < repair.end()) || (is_single && is_inside);
        for (count, _) in counts.iter_mut().zip([is_inside, is_inside && is_single, is_helping]).filter(|(_, is)| *is) {
            let counter = if repair.on_feedback { &mut count.answers } else { &mut count.proactive };
            *counter += 1;
        }
        if is_helping && !repair.on_feedback {
            end = end.max(Some(repair.end()));
        }
    }
    (counts, end)
}

/// A window that moves up in steps, with gaps at its base and above, and repairs that settle in any order.
#[test]
fn every_question_is_answered_as_a_walk_would() {
    for seed in 0..8 {
        let mut random = SplitMix64::new(seed);
        let (mut list, mut flying) = (InFlight::default(), Vec::new());
        if seed % 2 == 0 {
            list.keep_ends();
        }
        let (mut base, mut sent) = (0, 1);
        for packet in 0..3_000 {
            sent += random.below(if packet % 500 == 0 { 900 } else { 4 });
            // The base stays behind for a while, and then follows.
            base = if packet % 700 < 400 { base } else { base + random.below(sent - base) };
            let first = base + random.below(sent - base);
            let longest = if random.below(3) == 0 { 1 } else { 200.min(sent - first) };
            let count = 1 + random.below(longest) as u16;
            let on_feedback = random.below(2) == 0;
            list.push(RepairInFlight { packet, first: SourceId(first), count, key: 0, on_feedback }, SourceId(base));
            flying.push(packet);
            while flying.len() as u64 > random.below(400) {
                let settled = flying.swap_remove(random.below(flying.len() as u64) as usize);
                assert!(list.settle(settled).is_some());
            }
            let start = base + random.below(sent - base);
            let span = SourceId(start)..SourceId(start + 1 + random.below(300));
            let (expected, end) = walked(&list, &span);
            let got = [list.within(span.clone()), list.singles(span.clone()), list.helping(span.clone())];
            assert_eq!(got, expected, "seed {seed}, packet {packet}, {span:?}");
            assert_eq!(list.has_single(span.start), list.iter().any(|it| it.count == 1 && it.first == span.start));
            assert_eq!(list.has_proactive(), list.iter().any(|it| !it.on_feedback));
            if seed % 2 == 0 {
                assert_eq!(list.newest_end(span.clone()), end, "seed {seed}, packet {packet}, {span:?}");
            }
        }
    }
}

/// A generation that straddles the base is asked about by all of its symbols.
#[test]
fn repairs_of_a_span_that_begins_below_the_base_count_while_it_ends_above() {
    let mut list = InFlight::default();
    for packet in 0..4_000 {
        let first = packet / 2 * 2;
        let repair = RepairInFlight { packet, first: SourceId(first), count: LONGEST_SPAN, key: 0, on_feedback: false };
        list.push(repair, SourceId((first + 1).saturating_sub(LONGEST_SPAN.into())));
    }
    let base = 3_998 + 1 - u64::from(LONGEST_SPAN);
    let lowest = SourceId(base + 1 - u64::from(LONGEST_SPAN));
    assert_eq!(list.within(lowest..SourceId(4_000)).all(), 4_000 - lowest.0 / 2 * 2);
    let few = list.tally.memory();
    assert!(few <= 2 * 4_096 * size_of::<Counts>(), "{few} bytes for 2,048 symbols");
}

#[test]
fn a_question_costs_one_look_whatever_is_in_flight() {
    let list = filled();
    let before = list.looks();
    list.helping(SourceId(5)..SourceId(200));
    list.within(SourceId(0)..SourceId(COUNT));
    assert_eq!(list.looks() - before, 2);
    assert_eq!(list.iter().count() as u64, COUNT);
    assert_eq!(list.looks() - before, 2 + COUNT, "a walk is counted");
}
