//! The lowest gap always closes: from any state of the decoder, repairs of the lowest span are accepted and
//! decode it.
//! All contents are zeros: every combination of them is consistent, and only the coefficients decide.

use crate::setup;
use proptest::prelude::*;
use tidewire_codec::{Code, Decoder, Limits, Reception, RepairId, SourceId};

const SYMBOL: [u8; 8] = [0; 8];

/// A symbol that fills the matrix: `(kind, where, length)`. The last two are parts of 65,536 of the range
/// that is possible.
type Filling = Vec<(u8, u16, u16)>;

/// A decoder whose matrix may hold at least a whole span of rows, as that of the transport may.
fn limits() -> impl Strategy<Value = Limits> {
    (2..40u16, 3..10u32, 0..300usize).prop_map(|(max_span, log, more_rows)| Limits {
        slot_len: SYMBOL.len(),
        capacity: 1 << log,
        max_span,
        max_rows: usize::from(max_span) + more_rows,
    })
}

fn filling(steps: core::ops::Range<usize>) -> impl Strategy<Value = Filling> {
    prop::collection::vec((0..16u8, any::<u16>(), any::<u16>()), steps)
}

/// `part` of 65,536 of the numbers below `bound`.
fn below(bound: u64, part: u16) -> u64 {
    (bound * u64::from(part)) >> 16
}

/// Receives a source symbol (one step in 16) or a repair somewhere between edge and limit. Refusals are
/// allowed here.
fn fill(decoder: &mut Decoder, limits: Limits, (kind, place, length): (u8, u16, u16), key: u16) {
    let (edge, capacity) = (decoder.edge().0, decoder.capacity() as u64);
    if kind == 0 {
        decoder.receive_source(SourceId(edge + below(capacity, place)), &SYMBOL).expect("a source needs no room");
        return;
    }
    // Half of the repairs have the greatest length: such spans overlap, and many rows share their columns.
    let longest = capacity.min(limits.max_span.into());
    let count = if kind < 8 { longest } else { 1 + below(longest, length) };
    let first = SourceId(edge + below(capacity - count + 1, place));
    let _ = decoder.receive_repair(Code::Rlc, RepairId { first, count: count as u16, key }, &SYMBOL);
}

/// The sender's repairs while the lowest gap waits: each over the newest span, one for each symbol, or one
/// for two in `skips` of 16 cases. All symbols are lost. At the end, rows and columns are full, and each row
/// mentions most of the columns.
fn sweep(decoder: &mut Decoder, limits: Limits, skips: u16, key: &mut impl FnMut() -> u16) {
    let count = limits.max_span.min(decoder.capacity() as u16);
    let mut end = decoder.edge().plus(2 * u64::from(count));
    while end <= decoder.limit() {
        let (first, key) = (SourceId(end.0 - u64::from(count)), key());
        let _ = decoder.receive_repair(Code::Rlc, RepairId { first, count, key }, &SYMBOL);
        end = end.plus(1 + u64::from(key % 16 < skips));
    }
}

proptest! {
    #![proptest_config(setup::cases(400))]
    /// Every repair of the lowest span is accepted. As many as the span lacks decode it, except that one in
    /// 256 is redundant. So all spans close one after the other, whatever fills the matrix meanwhile.
    #[test]
    fn repairs_of_the_lowest_span_close_it_whatever_the_state(
        limits in limits(),
        skips in 1..16u16,
        state in filling(0..100),
        meanwhile in filling(1..40),
        span in 1..40u16,
    ) {
        let mut decoder = Decoder::new(limits);
        let mut keys = 0..u16::MAX;
        let mut key = || keys.next().expect("enough keys");
        sweep(&mut decoder, limits, skips, &mut key);
        for step in state {
            fill(&mut decoder, limits, step, key());
        }
        let mut meanwhile = meanwhile.into_iter().cycle();
        let end = decoder.end();
        while decoder.edge() < end {
            let first = decoder.edge();
            let count = span.min(limits.max_span).min(end.since(first) as u16);
            let lacking = decoder.undecoded_in(first..first.plus(count.into()));
            let mut repairs = 0;
            while decoder.edge() < first.plus(count.into()) {
                let operations = decoder.row_operations();
                let result = decoder.receive_repair(Code::Rlc, RepairId { first, count, key: key() }, &SYMBOL);
                prop_assert!(result.is_ok(), "{count} from {first:?}, {lacking} lacking: {result:?}");
                let operations = decoder.row_operations() - operations;
                prop_assert!(operations <= limits.max_rows as u64 + 1, "{operations} row operations");
                repairs += u64::from(result != Ok(Reception::Redundant));
                prop_assert!(repairs <= lacking, "{repairs} repairs, {lacking} lacking");
                // Only repairs of later symbols: one inside the span would be preferred to one over the whole
                // span.
                let (kind, place, length) = meanwhile.next().expect("it cycles");
                if decoder.edge() == first && below(decoder.capacity() as u64, place) >= u64::from(count) {
                    fill(&mut decoder, limits, (kind.max(1), place, length), key());
                }
            }
        }
    }
}
