//! Tests of the controller `share` with scripted acknowledgements. Whole flows are in `sim/tests/many`.

use super::compete::Left;
use super::tuning::{LATE, MARK_GAIN, OVERFLOWS, QUEUED, STANDING, VAIN_LOOKS, VAIN_TIME};
use super::*;
use crate::path::{RateSample, Totals};

const RTT: Duration = Duration::from_millis(60);

/// A path of one flow that serves `rate` bytes per second after a fluid queue.
struct Path {
    share: Share,
    now: Time,
    /// Bytes sent and arrived, and bytes that the queue holds.
    sent: f64,
    arrived: f64,
    queue: f64,
    packet: u64,
    /// Delay of a packet of this number without a queue.
    delay: fn(u64) -> Duration,
    /// Packets of each eight that are lost.
    lost: u64,
}

impl Path {
    fn new() -> Self {
        let mut share = Share::default();
        share.on_handshake(RTT);
        let now = Time::from_millis(1_000);
        Self { share, now, sent: 0.0, arrived: 0.0, queue: 0.0, packet: 0, delay: |_| RTT / 2, lost: 0 }
    }

    /// Sends for `time` over a path that serves `rate`, with an acknowledgement each sixteenth of a round
    /// trip. Acknowledgements are of what left just now: the loop without its delay.
    fn run(&mut self, time: Duration, rate: f64) {
        let step = RTT / 16;
        for _ in 0..time.as_micros() / step.as_micros() {
            let pace = (self.share.budget().pacing as f64).min(1e9);
            let bytes = pace * step.as_secs_f64();
            let arrives = 1.0 - self.lost as f64 / 8.0;
            self.sent += bytes;
            self.arrived += bytes * arrives;
            self.queue = (self.queue + bytes - rate * step.as_secs_f64()).max(0.0);
            let delay = Duration::from_secs_f64(self.queue / rate) + (self.delay)(self.packet) - RTT / 2;
            self.now += step;
            self.packet += 8;
            let sent = self.sent as u64;
            let served = (pace.min(rate)) as u64;
            (0..8).for_each(|n| self.share.on_fate(self.packet - 8 + n, n < self.lost));
            self.share.on_ack(&AckSample {
                now: self.now + delay,
                bytes: bytes as u64,
                in_flight: 0,
                newest: self.packet,
                left: self.now,
                next: self.packet + 128,
                rtt: Some(RTT + delay),
                one_way: Some(RTT / 2 + delay),
                newest_bytes: 1_500,
                app_limited: false,
                totals: Totals { sent, passed: sent, acked: self.arrived as u64 },
                smoothed: RTT + delay,
                min_rtt: RTT,
                rate: Some(RateSample { acked: (served as f64 * arrives) as u64, passed: served, app_limited: false }),
                dispersion: None,
            });
        }
    }

    /// The same until something is so, for a second at most.
    fn run_until(&mut self, rate: f64, is_so: impl Fn(&Share) -> bool) {
        for _ in 0..1_000_000 / (RTT / 16).as_micros() {
            if is_so(&self.share) {
                return;
            }
            self.run(RTT / 16, rate);
        }
        panic!("{:?}", self.share);
    }
}

/// An acknowledgement of one packet that left and arrived at this time on our clock.
fn sample(now: Time) -> AckSample {
    AckSample {
        now,
        bytes: 1_500,
        in_flight: 0,
        newest: 100,
        left: now,
        next: 200,
        rtt: Some(RTT),
        one_way: Some(RTT / 2),
        newest_bytes: 1_500,
        app_limited: false,
        totals: Totals { sent: 1_500, passed: 1_500, acked: 1_500 },
        smoothed: RTT,
        min_rtt: RTT,
        rate: None,
        dispersion: None,
    }
}

#[test]
fn finds_the_rate_and_keeps_the_queue_at_its_target() {
    for rate in [3_125_000.0, 125_000_000.0] {
        let mut path = Path::new();
        path.run(Duration::from_secs(10), rate);
        let (found, target) = (path.share.cruise.rate, path.share.cruise.target());
        assert!((0.9..1.1).contains(&(found / rate)), "{found} of {rate}");
        assert!(path.queue / rate <= 3.0 * target + 0.001, "{} of {target}", path.queue / rate);
    }
}

/// Late packets hold up those behind them, so at a high rate nothing shows the least delay. The rest was
/// taken for a queue, and the flow had a seventh of this path.
#[test]
fn a_delay_that_varies_and_does_not_fall_in_slow_phases_is_no_queue() {
    let mut path = Path::new();
    path.run(Duration::from_secs(2), 3_125_000.0);
    path.delay = |number| RTT / 2 + Duration::from_millis(13 + number / 8 % 7);
    path.run(Duration::from_secs(20), 3_125_000.0);
    assert!(path.share.cruise.rate >= 0.85 * 3_125_000.0, "{}", path.share.cruise.rate);
    assert!(path.queue / 3_125_000.0 <= 0.01, "{}", path.queue / 3_125_000.0);
}

#[test]
fn a_delay_that_falls_in_startup_is_the_paths() {
    let mut startup = Startup::default();
    let mut left = Time::from_millis(1_000);
    let mut take = |startup: &mut Startup, gap: Duration, delay: u64| {
        left += gap;
        startup.on_delay(Duration::from_millis(delay), &AckSample { left, ..sample(left) });
    };
    [0, 4, 9, 15, 22].iter().for_each(|delay| take(&mut startup, RTT / 16, *delay));
    assert_eq!(startup.fell, Duration::ZERO);
    // The sender was idle, and its queue drained.
    take(&mut startup, RTT, 2);
    assert_eq!(startup.fell, Duration::ZERO);
    [8, 3, 7].iter().for_each(|delay| take(&mut startup, RTT / 16, *delay));
    assert_eq!(startup.fell, Duration::from_millis(5));
}

#[test]
fn more_capacity_is_found_and_less_is_accepted() {
    let mut path = Path::new();
    path.run(Duration::from_secs(5), 1_250_000.0);
    path.run(Duration::from_secs(5), 5_000_000.0);
    assert!(path.share.cruise.rate > 4_500_000.0, "{}", path.share.cruise.rate);
    path.run(Duration::from_secs(3), 1_250_000.0);
    assert!(path.share.cruise.rate < 1_400_000.0, "{}", path.share.cruise.rate);
}

/// A client whose address changed without its knowledge got no FEEDBACK for two round trips, so its window
/// was full for one of them. The burst after the stop left a queue of two targets, and the mean rate of the
/// epoch, 50 kB/s, was taken for the service of the bottleneck.
#[test]
fn a_stop_without_feedback_is_no_slow_service() {
    let rate = 3_125_000.0;
    let mut share = Share { phase: Phase::Cruise, ..Share::default() };
    share.cruise.begin(rate);
    let window = (2.0 * rate * RTT.as_secs_f64()) as u64;
    let mut ack = |number: u64, bytes: u64, left: u64, queue: u64| {
        let passed = window + 1_500 * (number - 350);
        share.on_ack(&AckSample {
            now: Time::from_millis(left) + RTT,
            bytes,
            newest: number,
            next: 351,
            one_way: Some(RTT / 2 + Duration::from_millis(queue)),
            totals: Totals { sent: passed, passed, acked: passed },
            ..sample(Time::from_millis(left))
        });
    };
    ack(350, window, 1_060, 0);
    (351..355).for_each(|number| ack(number, 1_500, 1_180, 4));
    let after = share.cruise.rate / rate;
    assert!((0.9..1.1).contains(&after), "{after}");
}

#[test]
fn congestion_marks_lower_the_rate_once_a_round_trip() {
    let mut path = Path::new();
    path.run(Duration::from_secs(5), 3_125_000.0);
    let before = path.share.cruise.rate;
    path.share.on_ecn(path.now, path.now - RTT);
    // Marks on packets sent before the rate fell belong to the same congestion.
    path.share.on_ecn(path.now, path.now - RTT);
    path.run(RTT / 16, 3_125_000.0);
    let after = path.share.cruise.rate / before;
    assert!((MARK_GAIN - 0.01..MARK_GAIN + 0.05).contains(&after), "{after}");
    // Packets that were too long lowered nothing.
    path.share.on_mtu_fell();
    assert_eq!(path.share.cruise.rate / before, after);
}

/// A path became narrower, so all full packets were lost. The sender lowered its rate and paused before it
/// knew why. Its test at the lower rate lost nothing, so a tenth of the rate was taken for the bottleneck's.
#[test]
fn a_narrowing_that_is_known_late_gives_the_rate_back() {
    const RATE: f64 = 3_125_000.0;
    let stages: [fn(&Share) -> bool; 3] = [
        |share| share.cruise.rate < RATE / 4.0,
        |share| share.phase == Phase::Pause,
        |share| share.phase == Phase::Cruise && share.medium.tests_after_pause(),
    ];
    for late in 1..=stages.len() {
        let mut path = Path::new();
        path.run(Duration::from_secs(5), RATE);
        path.lost = 7;
        stages[..late].iter().for_each(|is_so| path.run_until(RATE, is_so));
        path.lost = 0;
        path.share.on_mtu_fell();
        path.run(RTT / 16, RATE);
        assert_eq!((path.share.phase, path.share.medium.test_rate()), (Phase::Cruise, None), "{late}");
        assert!(path.share.cruise.rate >= 0.95 * RATE, "{late}: {}", path.share.cruise.rate);
    }
}

/// What the loss of each packet of number `every` leads to, if a test at a lower rate loses those of `tested`
/// and finds a queue of `queue`.
fn judged(every: u64, tested: Option<u64>, queue: Duration) -> Option<Verdict> {
    let mut medium = Medium::default();
    // A medium that loses nothing is known.
    (0..50).for_each(|number| medium.on_fate(number, false));
    medium.begin();
    (50..600).for_each(|number| medium.on_fate(number, false));
    let now = Time::from_millis(1_000);
    let sent = Sent { now, rate: 2e6, arrived: 1.8e6, next: 1_000, app_limited: false, queue: Duration::ZERO };
    let mut number = 600;
    while medium.test_rate().is_none() && number < 1_000 {
        medium.on_fate(number, number % every == 0);
        number += 1;
        if number % 32 == 0 {
            medium.end_epoch(Sent { next: number, ..sent }, false, false);
        }
    }
    assert!(medium.test_rate().is_some_and(|rate| rate < sent.arrived), "one in {every}");
    for number in number..number + 600 {
        medium.on_queue(number, queue, false);
        medium.on_fate(number, tested.is_some_and(|tested| number % tested == 0));
        if let Some(verdict) = medium.verdict(now + Duration::from_millis(300)) {
            return Some(verdict);
        }
    }
    None
}

#[test]
fn a_test_tells_a_medium_from_a_bottleneck_and_a_queue_of_others_voids_it() {
    for every in [5, 10, 20] {
        let medium = judged(every, Some(every), Duration::ZERO);
        assert!(matches!(medium, Some(Verdict::Medium { rate }) if rate == 2e6), "{every}: {medium:?}");
        let bottleneck = judged(every, None, Duration::ZERO);
        assert!(matches!(bottleneck, Some(Verdict::Bottleneck { arrived }) if arrived == 1.8e6), "{every}");
        let voided = judged(every, Some(every), 2 * STANDING);
        assert!(matches!(voided, Some(Verdict::Bottleneck { .. })), "{every}: {voided:?}");
    }
}

/// What a test finds after this number of pauses in a row, if half of its packets are lost, and half find
/// this queue.
fn judged_after(pauses: u32, queue: Duration) -> Option<Verdict> {
    let mut medium = Medium::default();
    let now = Time::from_millis(1_000);
    let sent = Sent { now, rate: 2e6, arrived: 1e6, next: 0, app_limited: false, queue };
    medium.begin_again(0.5, sent, 5e5, pauses - 1);
    (0..100).find_map(|number| {
        medium.on_queue(number, if number % 2 == 0 { Duration::ZERO } else { queue }, false);
        medium.on_fate(number, number % 2 == 0);
        medium.verdict(now + Duration::from_millis(300))
    })
}

/// Fifty flows that began 0.2 s apart dropped up to 70 %: each had tested its losses while the others overran
/// the path.
#[test]
fn half_of_loss_beside_others_is_believed_after_a_second_pause() {
    let others = 4 * QUEUED;
    assert!(matches!(judged_after(1, others), Some(Verdict::Bottleneck { .. })));
    assert!(matches!(judged_after(2, others), Some(Verdict::Medium { .. })));
    assert!(matches!(judged_after(1, Duration::ZERO), Some(Verdict::Medium { .. })));
}

/// What a medium is known to lose that a test after a pause confirmed to lose a third, after 128 more packets
/// in epochs with this mean queue. One in `every` is lost, in runs of `run`.
fn known_after(every: u64, run: u64, queue: Duration) -> f64 {
    let mut medium = Medium::default();
    let now = Time::from_millis(1_000);
    let sent = Sent { now, rate: 2e6, arrived: 1.5e6, next: 0, app_limited: false, queue };
    medium.begin_again(0.33, sent, 5e5, 0);
    let first = (0..600)
        .find(|number| {
            medium.on_fate(*number, number % 3 == 0);
            medium.verdict(now + Duration::from_millis(300)).is_some()
        })
        .expect("a verdict");
    for number in 0..128 {
        medium.on_fate(first + 1 + number, (number / run).is_multiple_of(every));
        if number % 32 == 31 {
            medium.end_epoch(sent, false, false);
        }
    }
    medium.loss()
}

#[test]
fn what_is_not_lost_at_any_rate_the_medium_does_not_take() {
    let (own, others) = (Duration::ZERO, 4 * QUEUED);
    assert!((0.3..0.45).contains(&known_after(3, 1, others)), "{}", known_after(3, 1, others));
    assert!(known_after(20, 1, others) < known_after(20, 1, own), "{}", known_after(20, 1, others));
    assert!(known_after(20, 1, own) < 0.2, "{}", known_after(20, 1, own));
    // Few runs of losses do not show how much a medium loses.
    assert!(known_after(6, 10, others) > 0.3, "{}", known_after(6, 10, others));
}

#[test]
fn one_long_run_of_losses_overruns_nothing_and_many_short_ones_do() {
    let overrun = |run: u64| {
        let mut medium = Medium::default();
        (0..16).for_each(|number| medium.on_fate(number, false));
        for number in 16..128 {
            let lost = if run == 0 { number % 2 == 0 } else { (40..40 + run).contains(&number) };
            medium.on_fate(number, lost);
        }
        medium.is_overrun(false)
    };
    assert!(overrun(0));
    assert!(!overrun(70));
}

/// An application whose data would be late has no pause for a third of loss.
#[test]
fn an_application_that_needs_less_is_overrun_later() {
    let mut medium = Medium::default();
    (0..256).for_each(|number| medium.on_fate(number, number % 3 == 0));
    assert!(!medium.is_overrun(true));
    (256..512).for_each(|number| medium.on_fate(number, number % 8 != 0));
    assert!(medium.is_overrun(true));
}

/// Epochs of a round trip with this rate and mean queue in milliseconds, until the sender is pressed or the
/// time is over. Returns how long that took.
fn until_pressed(pressed: &mut Pressed, now: &mut Time, rate: f64, queue: f64, seconds: u64) -> Option<Duration> {
    let cruise = Cruise::default();
    let began = *now;
    while now.since(began) < Duration::from_secs(seconds) {
        *now += RTT;
        if pressed.is_due(*now, rate, queue / 1e3, |rate| cruise.target_at(rate)) {
            return Some(now.since(began));
        }
    }
    None
}

/// TCP left a fortieth of a link of 25 Mbit/s whose queue was half a round trip: it emptied that queue now
/// and then, so no queue stood.
#[test]
fn a_sender_with_little_left_is_pressed_if_the_queue_is_not_its_own() {
    let (mut pressed, mut now) = (Pressed::default(), Time::from_millis(1_000));
    assert_eq!(until_pressed(&mut pressed, &mut now, 3e6, 2.0, 5), None);
    // A queue of its target is what flows of its kind keep.
    assert_eq!(until_pressed(&mut pressed, &mut now, 2e5, 8.0, 5), None);
    let lasted = until_pressed(&mut pressed, &mut now, 2e5, 25.0, 10);
    assert!(lasted.is_some_and(|lasted| lasted < Duration::from_secs(7)), "{lasted:?}");
    // It never had more.
    assert_eq!(until_pressed(&mut Pressed::default(), &mut now, 2e5, 25.0, 60), None);
}

/// A flow that began after CUBIC settled at 80 kbit/s, where its target was as long as the queue of CUBIC.
#[test]
fn a_starved_sender_is_pressed_although_the_queue_is_as_long_as_its_target() {
    let (cruise, settled) = (Cruise::default(), 1e4);
    let queue = cruise.target_at(settled) * 1e3;
    let (mut pressed, mut now) = (Pressed::default(), Time::from_millis(1_000));
    assert_eq!(until_pressed(&mut pressed, &mut now, 1e6, 2.0, 5), None);
    assert!(until_pressed(&mut pressed, &mut now, settled, queue, 10).is_some());
    // A flow that had little before, and one beside fewer than fifteen others.
    assert_eq!(until_pressed(&mut Pressed::default(), &mut now, settled, queue, 60), None);
    let (mut pressed, fair) = (Pressed::default(), 1e6 / 14.0);
    assert_eq!(until_pressed(&mut pressed, &mut now, 1e6, 2.0, 5), None);
    assert_eq!(until_pressed(&mut pressed, &mut now, fair, cruise.target_at(fair) * 1e3, 60), None);
}

#[test]
fn a_long_queue_that_overflows_again_and_again_presses() {
    let (mut pressed, mut now) = (Pressed::default(), Time::from_millis(1_000));
    for overflow in 0..OVERFLOWS {
        assert_eq!(until_pressed(&mut pressed, &mut now, 1e6, 25.0, 6), None, "{overflow}");
        // Losses of one overflow.
        [0.025, 0.024].iter().for_each(|queue| pressed.on_loss(now, *queue));
    }
    assert!(until_pressed(&mut pressed, &mut now, 1e6, 25.0, 1).is_some());
    // The medium loses packets.
    pressed.on_loss(now, 0.01);
    assert_eq!(until_pressed(&mut pressed, &mut now, 1e6, 25.0, 1), None);
    // They are forgotten.
    let mut pressed = Pressed::default();
    for _ in 0..4 {
        assert_eq!(until_pressed(&mut pressed, &mut now, 1e6, 25.0, 1 + LATE.as_secs()), None);
        pressed.on_loss(now, 0.025);
    }
}

/// Fifty flows on 25 Mbit/s competed with each other for as long as they ran.
#[test]
fn a_competition_with_a_thin_window_is_not_repeated_soon() {
    let (mut pressed, mut now) = (Pressed::default(), Time::from_millis(1_000));
    let mut waits = Vec::new();
    for _ in 0..3 {
        pressed.begin();
        assert_eq!(until_pressed(&mut pressed, &mut now, 3e6, 2.0, 10), None);
        pressed.left(now, Left::Thin);
        let began = now;
        while until_pressed(&mut pressed, &mut now, 1e6, 25.0, 1).is_none() {
            pressed.on_loss(now, 0.025);
        }
        waits.push(now.since(began).as_secs());
    }
    assert!(waits.iter().zip([30, 60, 120]).all(|(waited, least)| (least..least + 2).contains(waited)), "{waits:?}");
}

/// One of fifty flows took the others for TCP, and had a sixth of the link.
#[test]
fn a_competition_beside_a_queue_that_never_overflows_is_left() {
    let mut now = Time::from_millis(1_000);
    let mut compete = Compete::begin(100 * PACKET, now);
    for _ in 0..VAIN_LOOKS {
        assert_eq!(compete.leaves(now), None);
        compete.look(Duration::from_millis(10), RTT);
        now += VAIN_TIME / VAIN_LOOKS + RTT;
    }
    assert_eq!(compete.leaves(now), Some(Left::Vain));
    compete.on_loss(&LossSample { now, bytes: 1_500, sent: now, persistent: false }, RTT);
    assert_eq!(compete.leaves(now), None);
    // So many flows share the path that the window stays small.
    let mut compete = Compete::begin(20 * PACKET, now);
    let mut falls = 0;
    while compete.leaves(now).is_none() {
        now += RTT;
        compete.on_loss(&LossSample { now, bytes: 1_500, sent: now, persistent: false }, RTT);
        falls += 1;
    }
    // 14, 9.8, 6.9, 4.8 and 3.4 packets.
    assert_eq!((falls, compete.leaves(now)), (5, Some(Left::Thin)));
}

/// The brake took what passed in a slow phase for the service of the path. It lowered the pace, took that for
/// the service again, and left a fifth of the link free for a second.
#[test]
fn without_a_queue_the_brake_does_not_take_its_own_pace_for_the_service() {
    let (rate, now) = (3_125_000.0, Time::from_millis(1_000));
    let mut cruise = Cruise::default();
    cruise.begin(rate);
    // Half of the pipe is full, and a third of the rate passed in the last round trip.
    let (passed, in_pipe) = ((rate / 3.0) as u64, (rate * RTT.as_secs_f64() / 2.0) as u64);
    let ack = AckSample {
        in_flight: in_pipe,
        left: now - RTT / 2,
        totals: Totals { sent: 1_000_000 + in_pipe, passed: 1_000_000, acked: 1_000_000 },
        rate: Some(RateSample { acked: passed, passed, app_limited: false }),
        ..sample(now)
    };
    cruise.on_ack(&ack, Duration::ZERO, false);
    assert!(cruise.pace() >= 0.8 * rate, "{}", cruise.pace() / rate);
    // A queue shows that no more is served.
    cruise.on_ack(&ack, Duration::from_millis(3), false);
    assert!(cruise.pace() <= 0.3 * rate, "{}", cruise.pace() / rate);
}
