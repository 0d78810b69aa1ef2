//! Sender and receiver by hand-written sequences of segments and acknowledgements.

use core::time::Duration;

use tidewire_proto::Time;

use super::*;

const RTT: Duration = Duration::from_millis(40);
const WINDOW: u64 = 1 << 20;

/// A sender whose acknowledgements the test writes. Segments are counted from 0.
struct Bench {
    sender: Sender,
    now: Time,
}

impl Bench {
    fn new(source: Source) -> Self {
        Self::with(SenderConfig::default(), source)
    }

    fn with(config: SenderConfig, source: Source) -> Self {
        let config = SenderConfig { handshake: Some(RTT), ..config };
        Self { sender: Sender::new(config, source, WINDOW, Time::ZERO), now: Time::ZERO }
    }

    fn at(&mut self, ms: u64) -> &mut Self {
        self.now = Time::from_millis(ms);
        self
    }

    /// Wakes the sender, and returns the numbers of the segments that it sends.
    fn sent(&mut self) -> Vec<u64> {
        self.sender.handle_timeout(self.now);
        let sender = &mut self.sender;
        core::iter::from_fn(|| sender.poll_transmit(self.now))
            .map(|segment| segment.start / u64::from(SEGMENT_BYTES))
            .collect()
    }

    /// An acknowledgement of all segments before `next`, caused by a segment that was sent at `echo_ms`.
    fn ack(&mut self, next: u64, echo_ms: u64) -> Vec<u64> {
        self.ack_with(next, echo_ms, false)
    }

    fn ack_with(&mut self, next: u64, echo_ms: u64, echoes_mark: bool) -> Vec<u64> {
        let next = next * u64::from(SEGMENT_BYTES);
        let ack = Ack { next, window: WINDOW, echo: Time::from_millis(echo_ms), echoes_mark };
        self.sender.handle_ack(self.now, &ack);
        self.sent()
    }

    fn state(&self) -> (State, u32, u32) {
        (self.sender.state(), self.sender.window().segments, self.sender.flight())
    }
}

fn numbers(from: u64, to: u64) -> Vec<u64> {
    (from..to).collect()
}

#[test]
fn slow_start_doubles_the_window_each_round_trip() {
    let mut bench = Bench::new(Source::Bulk);
    assert_eq!(bench.sent(), numbers(0, 10));
    for number in (2..=10).step_by(2) {
        assert_eq!(bench.at(40).ack(number, 0), numbers(6 + 2 * number, 10 + 2 * number));
    }
    assert_eq!(bench.state(), (State::Open, 20, 20));
}

/// RFC 3042, RFC 5681 section 3.2 and RFC 6937: two new segments, then the lost one, then one new segment for
/// two duplicate ACKs.
#[test]
fn a_single_loss_costs_half_of_the_window() {
    let mut bench = Bench::new(Source::Bulk);
    bench.sent();
    bench.at(40);
    let table: [(State, &[u64]); 9] = [
        (State::Disorder, &[10]),
        (State::Disorder, &[11]),
        (State::Recovery, &[0]),
        (State::Recovery, &[]),
        (State::Recovery, &[12]),
        (State::Recovery, &[]),
        (State::Recovery, &[13]),
        (State::Recovery, &[]),
        // The flight has come down to half.
        (State::Recovery, &[]),
    ];
    for (duplicate, (state, sent)) in table.iter().enumerate() {
        assert_eq!((bench.ack(0, 0), bench.state().0), (sent.to_vec(), *state), "{duplicate}");
    }
    assert_eq!(bench.sender.window().threshold, 5);
    // Segment 0 arrived again. 0 to 11 had been sent when the recovery began.
    assert_eq!(bench.at(80).ack(12, 40), [14, 15, 16]);
    assert_eq!(bench.state().0, State::Recovery, "held until something above is acknowledged");
    assert_eq!(bench.ack(13, 40), [17]);
    assert_eq!(bench.state(), (State::Open, 5, 5));
    assert_eq!((bench.sender.stats().repeated, bench.sender.stats().recoveries), (1, 1));
}

/// RFC 6582 section 3.2: a partial ACK means that the next segment is lost too.
#[test]
fn two_losses_in_one_window_are_one_recovery() {
    let mut bench = Bench::new(Source::Bulk);
    bench.sent();
    bench.at(40);
    let sent: Vec<u64> = (0..8).flat_map(|_| bench.ack(0, 0)).collect();
    assert!(sent.contains(&0) && !sent.contains(&4), "{sent:?}");
    assert_eq!(bench.at(80).ack(4, 40)[0], 4);
    assert_eq!(bench.state().0, State::Recovery);
    bench.at(120).ack(12, 80);
    bench.ack(13, 80);
    assert_eq!((bench.state().0, bench.state().1), (State::Open, 5));
    assert_eq!((bench.sender.stats().repeated, bench.sender.stats().recoveries), (2, 1));
}

#[test]
fn a_lost_repeat_is_found_by_the_timer_only() {
    let mut bench = Bench::new(Source::Bulk);
    bench.sent();
    bench.at(40);
    for _ in 0..9 {
        bench.ack(0, 0);
    }
    // The repeat was lost; five new segments cause more duplicate ACKs.
    for _ in 0..5 {
        assert!(!bench.at(80).ack(0, 0).contains(&0));
    }
    // The timer began with the repeat.
    assert_eq!(bench.at(279).sent(), []);
    assert_eq!(bench.at(280).sent(), [0]);
    assert_eq!((bench.state(), bench.sender.stats().timeouts), ((State::Loss, 1, 1), 1));
}

/// RFC 6298 section 5: the timeout is 240 ms at a round trip of 40 ms, and doubles.
#[test]
fn timeouts_back_off_until_progress() {
    let mut bench = Bench::new(Source::Bulk);
    bench.sent();
    for at in [240, 720, 1_680, 3_600] {
        assert_eq!(bench.sender.poll_timeout(), Some(Time::from_millis(at)));
        assert_eq!(bench.at(at - 1).sent(), []);
        assert_eq!(bench.at(at).sent(), [0]);
    }
    assert_eq!(bench.state(), (State::Loss, 1, 1));
    // Halved once. The first progress asks with new data (F-RTO), and the timeout is the usual one again.
    assert_eq!(bench.sender.window().threshold, 5);
    assert_eq!(bench.at(3_640).ack(1, 3_600), [10, 11]);
    assert_eq!(bench.sender.poll_timeout(), Some(Time::from_millis(3_640 + 240)));
    // The new data arrives, the old is missing: the loss was real.
    assert_eq!(bench.at(3_680).ack(1, 3_600), [1]);
    assert_eq!(bench.ack(1, 3_600), [2]);
    assert_eq!(bench.sender.stats().undone, 0);
}

/// RFC 5682: all segments were late. The ACK of one that was sent once shows it.
#[test]
fn a_needless_timeout_is_undone() {
    for (frto, undone) in [(true, 1), (false, 0)] {
        let mut bench = Bench::with(SenderConfig { frto, ..SenderConfig::default() }, Source::Bulk);
        bench.sent();
        assert_eq!(bench.at(240).sent(), [0]);
        // Without stamps to tell, as the repeat's is echoed.
        bench.at(250).ack(1, 240);
        bench.ack(2, 240);
        assert_eq!(bench.sender.stats().undone, undone, "{frto}");
        assert_eq!(bench.state().0 == State::Open, frto);
        assert_eq!(bench.sender.window().segments >= 10, frto, "{:?}", bench.sender.window());
    }
    // RFC 3522: a stamp from before the repeat shows it as well.
    let mut bench = Bench::with(SenderConfig { frto: false, ..SenderConfig::default() }, Source::Bulk);
    bench.sent();
    bench.at(240).sent();
    bench.at(250).ack(1, 0);
    assert_eq!((bench.sender.stats().undone, bench.sender.window().segments >= 10), (1, true));
}

#[test]
fn a_mark_halves_the_window_once_and_is_confirmed() {
    let mut bench = Bench::with(SenderConfig { marks: true, ..SenderConfig::default() }, Source::Bulk);
    bench.sent();
    bench.at(40);
    for number in 1..=10 {
        bench.ack_with(number, 0, true);
    }
    assert_eq!((bench.state().0, bench.sender.stats().marks), (State::Reduced, 1));
    assert_eq!(bench.sender.window().threshold, 5);
    let next = bench.sender.board.next;
    let segments = core::iter::from_fn(|| bench.sender.poll_transmit(bench.now)).count();
    assert_eq!(segments, 0, "everything that the window allows is sent");
    bench.at(80).ack(next / u64::from(SEGMENT_BYTES), 40);
    assert_eq!(bench.state(), (State::Open, 6, 6), "this round trip adds one again");
    assert_eq!(bench.sender.stats().repeated, 0);
}

/// RFC 5681 section 4.1, as Linux does it: half for each timeout, down to the first window.
#[test]
fn an_idle_sender_begins_with_the_first_window() {
    let every = Duration::from_secs(1);
    let mut bench = Bench::new(Source::Records { bytes: 40 * u64::from(SEGMENT_BYTES), every });
    bench.sent();
    let mut acked = 0;
    for ms in [40, 80, 120] {
        acked = bench.sender.board.next / u64::from(SEGMENT_BYTES);
        bench.at(ms).ack(acked, ms - 40);
    }
    assert_eq!((acked, bench.state().1), (40, 40));
    assert_eq!(bench.sender.poll_timeout(), Some(Time::from_millis(1_000)));
    assert_eq!(bench.at(1_000).sent().len(), 10);
    assert_eq!(bench.sender.window().threshold, 0x7fff_ffff);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let every = Duration::from_millis(10);
    let mut bench = Bench::new(Source::Records { bytes: 1_000, every });
    for ms in (0..2_000).step_by(10) {
        assert_eq!(bench.at(ms).sent().len(), 1);
        if ms >= 40 {
            let next = (ms - 40) / 10 * 1_000 + 1_000;
            let now = bench.now;
            bench.sender.handle_ack(now, &Ack { next, window: WINDOW, echo: now - RTT, echoes_mark: false });
        }
    }
    assert_eq!(bench.state(), (State::Open, 10, 4));
}

#[test]
fn nothing_is_sent_beyond_the_receivers_window() {
    let mut sender = Sender::new(SenderConfig::default(), Source::Bulk, 5 * 1_448 + 700, Time::ZERO);
    assert_eq!(core::iter::from_fn(|| sender.poll_transmit(Time::ZERO)).count(), 5);
    sender.handle_ack(Time::ZERO, &Ack { next: 0, window: 7 * 1_448, echo: Time::ZERO, echoes_mark: false });
    assert_eq!(core::iter::from_fn(|| sender.poll_transmit(Time::ZERO)).count(), 2);
}

fn segment(number: u64, stamp_ms: u64) -> Segment {
    let (start, bytes) = (number * 1_448, 1_448);
    Segment {
        start,
        bytes,
        digest: content(start, start + 1_448),
        stamp: Time::from_millis(stamp_ms),
        supports_marks: false,
        marked: false,
        reduced: false,
    }
}

/// Hands segment `number` to the receiver at `ms`. Returns what the ACKs acknowledge and echo.
fn arrive(receiver: &mut Receiver, ms: u64, number: u64, stamp_ms: u64) -> Vec<(u64, u64)> {
    receiver.handle_segment(Time::from_millis(ms), &segment(number, stamp_ms));
    core::iter::from_fn(|| receiver.poll_transmit()).map(|ack| (ack.next / 1_448, ack.echo.0 / 1_000_000)).collect()
}

#[test]
fn every_second_segment_or_40_ms_make_an_ack_after_16_quick_ones() {
    let mut receiver = Receiver::new(WINDOW);
    for number in 0..16 {
        assert_eq!(arrive(&mut receiver, number, number, number), [(number + 1, number)]);
    }
    assert_eq!(arrive(&mut receiver, 20, 16, 16), []);
    assert_eq!(arrive(&mut receiver, 21, 17, 17), [(18, 16)], "the first stamp is echoed");
    assert_eq!(arrive(&mut receiver, 30, 18, 18), []);
    assert_eq!(receiver.poll_timeout(), Some(Time::from_millis(70)));
    receiver.handle_timeout(Time::from_millis(69));
    assert_eq!(receiver.poll_transmit(), None);
    receiver.handle_timeout(Time::from_millis(70));
    assert_eq!(receiver.poll_transmit().map(|ack| ack.next), Some(19 * 1_448));
    assert_eq!(receiver.poll_timeout(), None);
    // After a silence each ACK is quick again.
    assert_eq!(arrive(&mut receiver, 400, 19, 400).len(), 1);
}

#[test]
fn gaps_and_repeats_are_acknowledged_at_once_and_each_byte_counts_once() {
    let mut receiver = Receiver::new(WINDOW);
    for number in 0..16 {
        arrive(&mut receiver, 0, number, 0);
    }
    let early = [18, 20, 18, 17].map(|number| arrive(&mut receiver, 1, number, 5));
    assert!(early.iter().all(|acks| acks[..] == [(16, 0)]), "{early:?}");
    assert_eq!(receiver.window(), 65_536 + 16 * 1_448, "what came early makes no room");
    assert_eq!(arrive(&mut receiver, 2, 16, 9), [(19, 9)], "a gap remains");
    assert_eq!(arrive(&mut receiver, 3, 3, 10), [(19, 9)]);
    assert_eq!(arrive(&mut receiver, 4, 19, 11), [(21, 11)]);
    let stats = receiver.stats();
    assert_eq!((stats.bytes, stats.digest), (21 * 1_448, content(0, 21 * 1_448)));
    assert_eq!((stats.repeated, stats.early, stats.refused), (2, 3, 0));
    let mut wrong = segment(21, 0);
    wrong.start -= 1;
    receiver.handle_segment(Time::from_millis(5), &wrong);
    assert_eq!(receiver.stats().refused, 1);
}

#[test]
fn a_mark_is_echoed_until_it_is_confirmed() {
    let mut receiver = Receiver::new(WINDOW);
    let mut echoes = Vec::new();
    for (number, (marked, reduced)) in
        [(false, false), (true, false), (false, false), (false, true)].into_iter().enumerate()
    {
        receiver.handle_segment(Time::ZERO, &Segment { marked, reduced, ..segment(number as u64, 0) });
        echoes.extend(receiver.poll_transmit().map(|ack| ack.echoes_mark));
    }
    assert_eq!(echoes, [false, true, true, false]);
}
