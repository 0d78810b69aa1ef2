//! Tests of RCDP's blocks: a table of losses, codes and forms.

use core::ops::Range;

use tidewire_codec::Code;

use super::*;
use crate::redundancy::{InFlight, Report, context as any_context};

const COUNT: u16 = 20;

/// Blocks of twenty symbols, and what is known of them.
struct Sender {
    rcdp: Rcdp,
    report: Report,
    base: u64,
    settled: u64,
    sent: u64,
    code: Code,
    loss: f64,
    flying: Vec<RepairInFlight>,
}

impl Sender {
    fn new(basic: bool) -> Self {
        let (rcdp, report, flying) = (Rcdp::new(RcdpBlocks { symbols: COUNT, basic }), Report::default(), Vec::new());
        Self { rcdp, report, base: 0, settled: 0, sent: 0, code: Code::Rlc, loss: 0.0, flying }
    }

    fn context(&self) -> CodingContext<'_> {
        let mut cx = any_context(&self.report, self.loss, 1.0, true);
        (cx.base, cx.settled, cx.sent) = (SourceId(self.base), SourceId(self.settled), SourceId(self.sent));
        (cx.in_flight, cx.limits.code, cx.flow.backlog) = (InFlight::of(&self.flying), self.code, true);
        cx
    }

    /// Calls the policy with the present context.
    fn ask<R>(&mut self, ask: impl FnOnce(&mut Rcdp, &CodingContext<'_>) -> R) -> R {
        let mut rcdp = core::mem::replace(&mut self.rcdp, Rcdp::new(RcdpBlocks { symbols: 1, basic: false }));
        let result = ask(&mut rcdp, &self.context());
        self.rcdp = rcdp;
        result
    }

    /// Sends source symbols.
    fn sources(&mut self, count: u16) {
        for _ in 0..count {
            self.sent += 1;
            self.ask(|rcdp, cx| rcdp.on_source_sent(cx));
        }
    }

    /// The fates of the next source symbols: the places of `lost` are lost.
    fn settle(&mut self, places: Range<u64>, lost: &[u64]) {
        for place in places {
            self.rcdp.on_source_settled(SourceId(self.settled), !lost.contains(&place));
            self.settled += 1;
        }
    }

    /// The fates of all repairs in flight.
    fn settle_repairs(&mut self, arrived: bool) {
        core::mem::take(&mut self.flying).iter().for_each(|repair| self.rcdp.on_repair_settled(repair, arrived));
    }

    /// The next repair, which stays in flight.
    fn next(&mut self) -> Option<Repair> {
        let repair = self.ask(|rcdp, cx| rcdp.next(cx))?;
        let packet = self.flying.len() as u64;
        self.flying.push(match repair {
            Repair::Resend(first) => RepairInFlight { packet, first, count: 1, key: 0, on_feedback: true },
            Repair::Coded { first, count, row, on_feedback } => {
                RepairInFlight { packet, first, count, key: row.expect("a row").key, on_feedback }
            }
        });
        Some(repair)
    }

    /// The repairs until the policy wants none: first symbol of the block, key, and whether it is an answer.
    fn repairs(&mut self) -> Vec<(u64, u16, bool)> {
        let repairs = core::iter::from_fn(|| self.next()).take(1_000);
        repairs
            .map(|repair| match repair {
                Repair::Coded { first, row: Some(row), on_feedback, .. } => (first.0, row.key, on_feedback),
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

fn answers(first: u64, keys: Range<u16>) -> Vec<(u64, u16, bool)> {
    keys.map(|key| (first, key, true)).collect()
}

#[test]
fn the_expected_losses_follow_a_block_and_fractions_are_carried_to_the_next() {
    for (loss, max_overhead, blocks) in
        [(0.0, 0.5, [0; 4]), (0.04, 0.5, [0, 1, 1, 1]), (0.2, 0.5, [5; 4]), (0.2, 0.1, [2; 4]), (0.9, 1.0, [20; 4])]
    {
        let mut sender = Sender { loss, ..Sender::new(false) };
        for repairs in blocks {
            let first = sender.sent;
            for _ in 0..COUNT {
                assert_eq!(sender.repairs(), []);
                sender.sent += 1;
                sender.ask(|rcdp, cx| {
                    let mut cx = *cx;
                    cx.limits.max_overhead = max_overhead;
                    rcdp.on_source_sent(&cx);
                });
            }
            let closed = sender.rcdp.poll_closed().expect("a full block");
            assert_eq!((closed.first.0, closed.count, closed.repairs), (first, COUNT, repairs), "{loss}");
            assert_eq!(sender.repairs(), (0..repairs).map(|key| (first, key, false)).collect::<Vec<_>>(), "{loss}");
        }
    }
}

#[test]
fn a_block_is_answered_as_soon_as_its_packets_in_flight_are_too_few() {
    let mut sender = Sender { loss: 0.1, ..Sender::new(false) };
    sender.sources(COUNT);
    assert_eq!(sender.repairs(), [(0, 0, false), (0, 1, false)]);
    // Two losses, for which two repairs are in flight.
    sender.settle(0..10, &[3, 4]);
    assert_eq!(sender.repairs(), []);
    // A third loss: the block lacks 12 symbols, 11 packets are in flight, and 12 / 0.9 are sent for it.
    sender.settle(10..11, &[10]);
    assert_eq!(sender.repairs(), answers(0, 2..5));
    sender.settle(11..20, &[]);
    assert_eq!(sender.repairs(), []);
    // All five repairs are lost. The block lacks three symbols: 3 / 0.9 follow.
    sender.settle_repairs(false);
    assert_eq!(sender.repairs(), answers(0, 5..9));
    sender.settle_repairs(true);
    assert!(sender.rcdp.open.is_empty());
    assert_eq!(sender.repairs(), []);
}

#[test]
fn the_lowest_block_is_answered_first_and_new_sources_wait_for_neither() {
    let mut sender = Sender::new(false);
    sender.sources(2 * COUNT + 5);
    assert_eq!(sender.repairs(), []);
    sender.settle(0..20, &[0, 1, 2]);
    sender.settle(0..20, &[7]);
    assert_eq!(sender.repairs(), [answers(0, 0..3), answers(20, 0..1)].concat());
    sender.settle_repairs(true);
    assert!(sender.rcdp.open.is_empty(), "{:?}", sender.rcdp);
}

#[test]
fn a_report_ends_a_block_whatever_the_sender_knows() {
    for basic in [false, true] {
        let mut sender = Sender::new(basic);
        sender.sources(COUNT);
        sender.settle(0..20, &[0, 1, 2]);
        sender.report = Report { edge: SourceId(20), end: SourceId(20), serial: 1, ..Report::default() };
        assert_eq!((sender.next(), sender.rcdp.open.is_empty()), (None, true));
    }
}

/// The repair of a dense code was dependent, or a repair that was asked for never left.
#[test]
fn a_block_that_stays_undecoded_is_answered_again() {
    let mut sender = Sender::new(false);
    sender.sources(COUNT);
    sender.settle(0..20, &[6]);
    assert_eq!(sender.repairs(), answers(0, 0..1));
    sender.flying.clear();
    assert_eq!(sender.repairs(), []);
    let undecoded = vec![SourceId(6)..SourceId(7)];
    sender.report =
        Report { edge: SourceId(6), end: SourceId(20), deficit: 1, undecoded, serial: 1, ..Report::default() };
    assert_eq!(sender.repairs(), answers(0, 1..2));
}

#[test]
fn the_basic_form_fills_every_slot_until_the_block_is_reported() {
    let mut sender = Sender::new(true);
    for block in 0..3 {
        assert_eq!(sender.next(), None);
        sender.sources(COUNT - 1);
        assert_eq!(sender.next(), None, "the block is not full");
        sender.sources(1);
        let repairs = sender.repairs();
        assert_eq!(repairs.len(), 1_000);
        assert!((0..).zip(&repairs).all(|(key, &repair)| repair == (20 * block, key, false)));
        // The sender knows that all arrived, and waits for the report.
        sender.settle(0..20, &[]);
        sender.settle_repairs(true);
        assert!(sender.next().is_some());
        sender.base = sender.sent;
    }
}

#[test]
fn no_key_is_used_twice_and_after_the_last_one_lost_symbols_are_sent_again() {
    for (basic, code, keys) in [(true, Code::Rlc, MOST_KEYS), (true, Code::Cauchy, 236), (false, Code::Cauchy, 236)] {
        let mut sender = Sender { code, ..Sender::new(basic) };
        sender.sources(COUNT);
        sender.settle(0..20, &[2, 5]);
        let mut next_key = 0;
        let resent = loop {
            match sender.next() {
                Some(Repair::Coded { row: Some(row), .. }) => {
                    assert_eq!(row.key, next_key, "{code:?}");
                    next_key += 1;
                    // A context looks at all repairs in flight: with all 65,536 of them this test takes
                    // seconds.
                    if sender.flying.len() == 1_000 {
                        sender.settle_repairs(false);
                    }
                }
                Some(Repair::Resend(id)) => break id,
                // The overlapped form waits for the fates of the answers.
                None => sender.settle_repairs(false),
                Some(other) => panic!("{other:?}"),
            }
        };
        assert_eq!((next_key, resent), (keys, SourceId(2)), "{code:?}");
        assert_eq!(sender.next(), Some(Repair::Resend(SourceId(5))), "{code:?}");
        assert_eq!(sender.next(), None, "{code:?}: both are under way");
    }
}

#[test]
fn a_block_that_the_application_leaves_unfinished_is_closed() {
    let mut sender = Sender { loss: 0.5, ..Sender::new(false) };
    sender.sources(3);
    sender.ask(|rcdp, cx| {
        let mut cx = *cx;
        cx.flow.backlog = false;
        let at = rcdp.poll_timeout(&cx).expect("three symbols wait");
        assert_eq!(at, cx.flow.last + cx.path.rtt / IDLE);
        assert_eq!(rcdp.next(&cx), None);
        cx.now = at;
        assert!(rcdp.next(&cx).is_some());
        assert_eq!(rcdp.poll_closed().map(|closed| (closed.first.0, closed.count)), Some((0, 3)));
        assert_eq!(rcdp.poll_timeout(&cx), None);
    });
}

#[test]
fn a_peer_that_takes_shorter_spans_gets_shorter_blocks() {
    let mut sender = Sender::new(false);
    sender.sent = 7;
    sender.ask(|rcdp, cx| {
        let mut cx = *cx;
        cx.limits.max_span = 7;
        rcdp.on_source_sent(&cx);
    });
    assert_eq!(sender.rcdp.poll_closed().map(|closed| closed.count), Some(7));
}
