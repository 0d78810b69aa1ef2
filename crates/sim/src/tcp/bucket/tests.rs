use std::collections::VecDeque;

use core::time::Duration;
use proptest::prelude::*;
use tidewire_proto::Time;

use super::super::{Sender, SenderConfig, Source};
use super::*;

/// Packets of one byte, so that numbers are packets.
fn offer(window: u64, buffered: u64, unacked: u64) -> Offer {
    Offer { window, buffered, unacked, packet: 1 }
}

#[test]
fn the_printed_rule_exceeds_the_window_where_the_right_one_does_not() {
    let (printed, right) = (Rule::Printed, Rule::Right);
    // Ten packets in the buffer, four of them in flight, a window of seven: room for three.
    assert_eq!((printed.size(offer(7, 10, 4), 15), right.size(offer(7, 10, 4), 15)), (Some(6), Some(3)));
    // Where the window holds the whole buffer, and where it is smaller than what is left, both agree.
    assert_eq!((printed.size(offer(20, 10, 4), 15), right.size(offer(20, 10, 4), 15)), (Some(6), Some(6)));
    assert_eq!((printed.size(offer(9, 100, 4), 15), right.size(offer(9, 100, 4), 15)), (Some(5), Some(5)));
    // A window that shrank below what is in flight, and nothing to send.
    assert_eq!((printed.size(offer(3, 100, 4), 15), right.size(offer(3, 100, 4), 15)), (None, None));
    assert_eq!((printed.size(offer(9, 4, 4), 15), right.size(offer(9, 4, 4), 15)), (None, None));
    // The cap, and less than a packet.
    assert_eq!(right.size(offer(100, 100, 0), 15), Some(15));
    assert_eq!(right.size(Offer { packet: 50, ..offer(100, 20, 0) }, 15), Some(1));
    // A fixed bucket is as large as ever.
    assert_eq!(Rule::Fixed.size(offer(3, 100, 4), 15), Some(15));
}

proptest! {
    #[test]
    fn the_right_rule_takes_no_more_than_there_is_and_than_has_room(
        window in 0..200u64, buffered in 0..200u64, unacked in 0..200u64, cap in 1..=255u16,
    ) {
        match Rule::Right.size(offer(window, buffered, unacked), cap) {
            None => prop_assert!(window <= unacked || buffered <= unacked),
            Some(size) => {
                let most = (window - unacked).min(buffered - unacked);
                prop_assert_eq!(u64::from(size), most.min(cap.into()));
            }
        }
    }
}

/// A flow over a path of 10 ms each way that loses the combinations that a rule names.
struct Path {
    now: Time,
    coder: Coder,
    decoder: Decoder,
    forward: VecDeque<(Time, Combination)>,
    back: VecDeque<(Time, DegreeAck)>,
    /// Every combination that was sent: bucket, size, whether it is a repeat.
    sent: Vec<(Time, u64, u16, bool)>,
}

const ONE_WAY: Duration = Duration::from_millis(10);

impl Path {
    fn new(coding: Coding, source: Source) -> Self {
        let config = SenderConfig { segment_bytes: 100, handshake: Some(2 * ONE_WAY), ..SenderConfig::default() };
        let sender = Sender::new(config, source, 1 << 20, Time::ZERO);
        let (coder, decoder) = (Coder::new(sender, coding, 7), Decoder::new(coding.confirms, 7));
        let (forward, back) = (VecDeque::new(), VecDeque::new());
        Self { now: Time::ZERO, coder, decoder, forward, back, sent: Vec::new() }
    }

    /// Runs until nothing happens any more, or until `until`.
    fn run(&mut self, until: Time, loses: impl Fn(usize) -> bool) {
        loop {
            while let Some(packet) = self.coder.poll_transmit(self.now) {
                if !loses(self.sent.len()) {
                    self.forward.push_back((self.now + ONE_WAY, packet.clone()));
                }
                self.sent.push((self.now, packet.bucket, packet.size, packet.is_repeat));
            }
            let timer = if self.coder.is_done() { None } else { self.coder.poll_timeout() };
            let moving = [self.forward.front().map(|next| next.0), self.back.front().map(|next| next.0)];
            let Some(next) = moving.into_iter().flatten().chain(timer).min().filter(|&next| next <= until) else {
                return;
            };
            self.now = self.now.max(next);
            while let Some(packet) = due(&mut self.forward, self.now) {
                self.decoder.handle(packet);
            }
            while let Some(ack) = self.decoder.poll_transmit() {
                self.back.push_back((self.now + ONE_WAY, ack));
            }
            while let Some(ack) = due(&mut self.back, self.now) {
                self.coder.handle_ack(self.now, &ack);
            }
            self.coder.handle_timeout(self.now);
        }
    }

    /// Checks that `bytes` bytes came, and that they were the right ones.
    fn check(&self, bytes: u64) {
        assert_eq!((self.decoder.delivered(), self.decoder.errors()), (bytes, &[][..]));
    }
}

/// The next that has arrived.
fn due<T>(queue: &mut VecDeque<(Time, T)>, now: Time) -> Option<T> {
    queue.front().is_some_and(|next| next.0 <= now).then(|| queue.pop_front())?.map(|next| next.1)
}

fn coding(rule: Rule, cap: u16, gamma: f64) -> Coding {
    Coding { rule, cap, gamma, confirms: Confirms::Degrees }
}

/// 250 bytes each 5 ms for two seconds.
fn records() -> Source {
    Source::Records { bytes: 250, every: Duration::from_millis(5) }
}

const TWO_SECONDS: Time = Time::from_millis(2_000);

#[test]
fn the_variable_bucket_has_no_empty_packet_and_the_fixed_one_has() {
    for cap in [1, 4, 15, 64] {
        let mut variable = Path::new(coding(Rule::Right, cap, 1.25), records());
        variable.run(TWO_SECONDS, |n| n % 10 == 3);
        let mut fixed = Path::new(coding(Rule::Fixed, cap, 1.25), records());
        fixed.run(TWO_SECONDS, |n| n % 10 == 3);
        assert_eq!((variable.coder.stats().empty, variable.decoder.stats().empty), (0, 0), "{cap}");
        // Three segments, of which the last is short, fill no bucket but that of one.
        let (sent, decoded) = (fixed.coder.stats().empty, fixed.decoder.stats().empty);
        assert!((cap > 1) == (sent > 400) && decoded <= sent, "{cap}: {sent}, {decoded}");
        assert!(variable.decoder.errors().is_empty() && fixed.decoder.errors().is_empty());
        assert!(variable.decoder.delivered() > 95_000 && fixed.decoder.delivered() > 95_000, "{cap}");
    }
}

#[test]
fn gamma_combinations_leave_per_symbol_and_the_fraction_is_carried() {
    for gamma in [1.0, 1.1, 1.25, 1.5] {
        let mut path = Path::new(coding(Rule::Right, 15, gamma), Source::Bytes(100_000));
        path.run(TWO_SECONDS, |_| false);
        path.check(100_000);
        let stats = path.coder.stats();
        let symbols: u64 = stats.sizes.iter().enumerate().map(|(size, count)| size as u64 * count).sum();
        assert_eq!((symbols, stats.combinations), (1_000, (1_000.0 * gamma) as u64));
        // What was not needed was neither acknowledged nor taken for a duplicate.
        assert_eq!((path.decoder.stats().acks, path.coder.tcp_stats().recoveries), (1_000, 0));
    }
}

#[test]
fn the_first_bucket_has_one_symbol_and_later_ones_follow_the_window() {
    let mut path = Path::new(coding(Rule::Right, 15, 1.0), Source::Bytes(100_000));
    path.run(Time::from_millis(19), |_| false);
    // The first window of ten segments, before any acknowledgement.
    assert!(path.sent.len() == 10 && path.sent.iter().all(|sent| sent.2 == 1), "{:?}", path.sent);
    path.run(TWO_SECONDS, |_| false);
    let largest = path.sent.iter().map(|sent| sent.2).max();
    assert!(largest > Some(1) && largest <= Some(15), "{largest:?}");
}

#[test]
fn redundant_combinations_hide_losses_from_tcp() {
    let mut hidden = Path::new(coding(Rule::Right, 15, 1.5), Source::Bytes(100_000));
    // One of ten is lost, never two of a pair; the first ones are single.
    hidden.run(TWO_SECONDS, |n| n > 40 && n % 10 == 3);
    hidden.check(100_000);
    let mut seen = Path::new(coding(Rule::Right, 15, 1.0), Source::Bytes(100_000));
    seen.run(Time::from_millis(60_000), |n| n > 40 && n % 10 == 3);
    seen.check(100_000);
    let events = |path: &Path| path.coder.tcp_stats().recoveries + path.coder.tcp_stats().timeouts;
    assert!(events(&seen) > 10 && 4 * events(&hidden) < events(&seen), "{} {}", events(&hidden), events(&seen));
}

#[test]
fn three_duplicates_make_the_sender_repeat_and_shrink_the_bucket() {
    // After the window has grown, a whole bucket loses two of its combinations. Half of that window is
    // more than the usual cap of 15, so only a larger cap shows that buckets follow it.
    let mut path = Path::new(coding(Rule::Right, MOST_SYMBOLS, 1.0), Source::Bytes(300_000));
    path.run(Time::from_millis(60_000), |n| n == 200 || n == 201);
    path.check(300_000);
    let (tcp, stats) = (path.coder.tcp_stats(), path.coder.stats());
    assert_eq!((tcp.recoveries, tcp.timeouts, stats.repeats), (1, 0, 2));
    let first = path.sent.iter().position(|sent| sent.3).unwrap();
    // Without the loss, buckets at this place are larger: its window goes on growing.
    let mut lossless = Path::new(coding(Rule::Right, MOST_SYMBOLS, 1.0), Source::Bytes(300_000));
    lossless.run(Time::from_millis(60_000), |_| false);
    let largest = |path: &Path| path.sent[first..first + 300].iter().filter(|sent| !sent.3).map(|sent| sent.2).max();
    assert!(largest(&path) < largest(&lossless), "{:?} {:?}", largest(&path), largest(&lossless));
}

#[test]
fn a_timeout_begins_again_with_small_buckets() {
    // All is lost for a while. The cap is above the window, so that the buckets show it.
    let mut path = Path::new(coding(Rule::Right, MOST_SYMBOLS, 1.25), Source::Bytes(300_000));
    path.run(Time::from_millis(60_000), |n| (200..400).contains(&n));
    path.check(300_000);
    assert!(path.coder.tcp_stats().timeouts > 0);
    let silent = path.sent.windows(2).position(|pair| pair[1].0.since(pair[0].0) > Duration::from_millis(150)).unwrap();
    let largest = path.sent[silent - 20..silent].iter().map(|sent| sent.2).max();
    let next = path.sent[silent + 1..].iter().find(|sent| !sent.3).map(|sent| sent.2);
    assert!(next < largest, "{next:?} after {largest:?}");
}

#[test]
fn the_printed_rule_sends_beyond_the_window() {
    let source = || Source::Records { bytes: 3_000, every: Duration::from_millis(7) };
    let beyond = |rule| {
        let mut path = Path::new(coding(rule, 15, 1.0), source());
        path.run(TWO_SECONDS, |n| n % 50 == 20);
        assert!(path.decoder.errors().is_empty());
        path.coder.stats().beyond
    };
    let (printed, right) = (beyond(Rule::Printed), beyond(Rule::Right));
    assert!(right == 0 && printed > 100, "{right} {printed}");
}

#[test]
fn where_buckets_are_confirmed_their_parts_are_not() {
    let whole = Coding { confirms: Confirms::Buckets, ..coding(Rule::Right, 15, 1.0) };
    let mut path = Path::new(whole, Source::Bytes(100_000));
    path.run(TWO_SECONDS, |_| false);
    path.check(100_000);
    let buckets: u64 = path.coder.stats().sizes.iter().sum();
    assert_eq!(path.decoder.stats().acks, buckets);
    let mut lossy = Path::new(whole, Source::Bytes(100_000));
    lossy.run(Time::from_millis(60_000), |n| n % 20 == 7);
    lossy.check(100_000);
}
