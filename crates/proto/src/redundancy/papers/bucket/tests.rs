use super::*;
use crate::redundancy::{Report, context as any_context};

fn policy(text: &str) -> Bucket {
    Bucket::new(BucketBlocks::parse(text).expect(text))
}

/// A context in which nothing waits and the window has room for `room` packets.
fn context(report: &Report, room: u64) -> CodingContext<'_> {
    let mut cx = any_context(report, 0.0, 1.0, false);
    cx.limits.code = tidewire_codec::Code::Rlc16;
    (cx.sent, cx.path.room) = (SourceId(0), room);
    cx
}

/// `symbols` symbols are ready: the last one is followed by none.
fn ready(policy: &mut Bucket, cx: &mut CodingContext<'_>, symbols: u64) {
    for left in (0..symbols).rev() {
        cx.sent = cx.sent.next();
        cx.flow.backlog = left > 0;
        policy.on_source_sent(cx);
    }
}

/// The combinations that are due: first symbol, count, and key.
fn due(policy: &mut Bucket, cx: &CodingContext<'_>) -> Vec<(u64, u16, u16)> {
    let next = || match policy.next(cx) {
        Some(Repair::Coded { first, count, row: Some(row), on_feedback: false }) => Some((first.0, count, row.key)),
        None => None,
        other => panic!("{other:?}"),
    };
    core::iter::from_fn(next).collect()
}

/// The sizes of the blocks in `due`.
fn sizes(due: &[(u64, u16, u16)]) -> Vec<u16> {
    due.iter().filter(|(_, _, key)| *key == 0).map(|(_, count, _)| *count).collect()
}

fn settle(policy: &mut Bucket, first: u64, arrived: bool) {
    let repair = RepairInFlight { packet: 0, first: SourceId(first), count: 1, key: 0, on_feedback: false };
    policy.on_repair_settled(&repair, arrived);
}

#[test]
fn a_block_is_what_is_ready_and_the_window_and_the_cap_allow() {
    let report = Report::default();
    let mut policy = policy("15,1");
    policy.bucket = 15;
    // The paper's example (section 3.3): b = 10, unack = 4 and w = 7 packets are six waiting and room for
    // three. As printed, its rule takes six.
    for (ready_now, room, expected) in
        [(6, 3, vec![3, 3]), (6, 20, vec![6]), (1, 20, vec![1]), (40, 100, vec![15, 15, 10]), (3, 1, vec![1, 1, 1])]
    {
        let mut cx = CodingContext { sent: policy.filling, ..context(&report, room) };
        ready(&mut policy, &mut cx, ready_now);
        assert_eq!(sizes(&due(&mut policy, &cx)), expected, "{ready_now} {room}");
    }
}

#[test]
fn gamma_times_k_combinations_leave_and_the_fraction_is_carried() {
    let report = Report::default();
    let mut policy = policy("15,1.25");
    policy.bucket = 15;
    let mut cx = context(&report, 100);
    // 1.25, 1.25, 1.25 and 1.25, then 18.75 and 6.25.
    let counts: Vec<_> = [1, 1, 1, 1, 15, 5]
        .map(|symbols| {
            ready(&mut policy, &mut cx, symbols);
            due(&mut policy, &cx).len()
        })
        .into();
    assert_eq!(counts, [1, 1, 1, 2, 18, 7]);
}

#[test]
fn the_bucket_begins_at_1_grows_with_what_arrives_is_halved_once_and_reset() {
    let report = Report::default();
    let mut policy = policy("15,1.25");
    let mut cx = context(&report, 100);
    ready(&mut policy, &mut cx, 3);
    assert_eq!(sizes(&due(&mut policy, &cx)), [1, 1, 1]);
    (0..20).for_each(|_| settle(&mut policy, 0, true));
    assert_eq!(policy.bucket, 15);
    ready(&mut policy, &mut cx, 30);
    let sent = due(&mut policy, &cx);
    assert_eq!(sizes(&sent), [15, 15]);
    // 18 or 19 combinations of 15: three or four may be lost.
    let spare = sent.iter().filter(|(first, ..)| *first == 3).count() - 15;
    (0..spare).for_each(|_| settle(&mut policy, 3, false));
    assert_eq!(policy.bucket, 15);
    settle(&mut policy, 3, false);
    assert_eq!(policy.bucket, 7);
    // The other block was under way at that time.
    (0..9).for_each(|_| settle(&mut policy, 18, false));
    assert_eq!(policy.bucket, 7);
    cx.path.is_silent = true;
    due(&mut policy, &cx);
    assert_eq!(policy.bucket, 1);
}

#[test]
fn where_the_path_is_the_limit_an_unfinished_block_waits_a_moment() {
    let report = Report::default();
    let mut policy = policy("15,1");
    policy.bucket = 15;
    let mut cx = context(&report, 100);
    (cx.path.saturated, cx.flow.last) = (true, cx.now);
    ready(&mut policy, &mut cx, 3);
    assert_eq!((due(&mut policy, &cx), policy.poll_timeout(&cx)), (Vec::new(), Some(cx.now + GRACE)));
    ready(&mut policy, &mut cx, 2);
    cx.now += GRACE;
    assert_eq!(sizes(&due(&mut policy, &cx)), [5]);
    assert_eq!(policy.poll_timeout(&cx), None);
}

#[test]
fn the_fixed_form_fills_its_blocks_with_symbols_that_do_not_exist_yet() {
    let report = Report::default();
    let mut policy = policy("4,1.25,fixed");
    let mut cx = context(&report, 1);
    cx.flow.credit = 100;
    ready(&mut policy, &mut cx, 6);
    let sent = due(&mut policy, &cx);
    assert_eq!((sizes(&sent), sent.len()), (vec![4, 4], 10));
    assert_eq!(policy.filling, SourceId(8));
    // Before the lane added the empty symbols, a symbol came that takes the place of one.
    ready(&mut policy, &mut CodingContext { sent: SourceId(6), ..cx }, 1);
    assert_eq!((due(&mut policy, &cx), policy.filling), (Vec::new(), SourceId(8)));
    // The peer accepts one more symbol, so the block stays short.
    (cx.sent, cx.flow.credit) = (SourceId(8), 1);
    ready(&mut policy, &mut cx, 2);
    assert_eq!(sizes(&due(&mut policy, &cx)), [2]);
}

#[test]
fn symbols_that_were_given_up_before_they_were_sent_are_in_no_block() {
    let report = Report::default();
    let mut policy = policy("15,1");
    let mut cx = context(&report, 100);
    (cx.sent, cx.base) = (SourceId(500), SourceId(500));
    ready(&mut policy, &mut cx, 1);
    assert_eq!(due(&mut policy, &cx), [(500, 1, 0)]);
}

#[test]
fn texts_survive_and_others_are_refused() {
    for text in ["15,1.25", "1,1", "64,1.5,fixed"] {
        let blocks = BucketBlocks::parse(text).expect(text);
        assert_eq!(blocks.to_string(), format!("bucket:{text}"));
    }
    for bad in ["", "15", "0,1", "65,1", "15,0.9", "15,1.6", "15,nan", "15,1,variable", "15,1,fixed,fixed"] {
        assert_eq!(BucketBlocks::parse(bad), None, "{bad}");
    }
}
