//! Tests of NewReno and CUBIC against the formulas of their RFCs, on a scripted path.

use super::*;
use crate::Time;

const RTT: Duration = Duration::from_millis(100);

/// A path with one fixed RTT that acknowledges everything the window allows, sixteen times per round trip.
struct Driver<C> {
    control: C,
    now: Time,
    packet: u64,
    rtt: Duration,
}

impl<C: RateController> Driver<C> {
    fn new(control: C, rtt: Duration) -> Self {
        Self { control, now: Time::from_millis(1_000), packet: 0, rtt }
    }

    fn packets(&self) -> f64 {
        self.control.budget().window as f64 / PACKET as f64
    }

    /// One round trip in which the sender uses `share` of the window.
    fn round(&mut self, share: f64) {
        let used = (self.control.budget().window as f64 * share) as u64;
        let per_round = (used / PACKET).max(16);
        for _ in 0..16 {
            self.now += self.rtt / 16;
            self.packet += per_round / 16;
            self.control.on_ack(&AckSample {
                now: self.now,
                bytes: used / 16,
                in_flight: used - used / 16,
                newest: self.packet,
                left: self.now - self.rtt,
                next: self.packet + per_round,
                rtt: Some(self.rtt),
                one_way: None,
                newest_bytes: 0,
                app_limited: false,
                totals: Default::default(),
                smoothed: self.rtt,
                min_rtt: self.rtt,
                rate: None,
                dispersion: None,
            });
        }
    }

    fn lose(&mut self, persistent: bool) {
        // Sent at most one round trip ago, and after the last loss.
        let sent = self.now - self.rtt / 32;
        self.control.on_loss(&LossSample { now: self.now, bytes: PACKET, sent, persistent });
    }

    /// Doubles the window in slow start until it holds at least this many packets, then loses one.
    fn grow_and_lose(&mut self, packets: f64) {
        while self.packets() < packets {
            self.round(1.0);
        }
        self.lose(false);
    }
}

#[test]
fn slow_start_doubles_the_window_that_is_used() {
    let mut driver = Driver::new(NewReno::default(), RTT);
    assert_eq!(driver.packets(), 10.0);
    driver.round(1.0);
    assert!((19.0..=20.0).contains(&driver.packets()), "{}", driver.packets());
    let before = driver.packets();
    driver.round(0.3);
    assert_eq!(driver.packets(), before, "a sender that has nothing to send earns no window");
}

#[test]
fn slow_start_ends_with_the_growth_of_the_round_trip() {
    let mut driver = Driver::new(NewReno::default(), RTT);
    (0..3).for_each(|_| driver.round(1.0));
    // The queue adds an eighth of the round trip. Five rounds at a quarter of the growth follow (RFC 9406
    // section 4.2).
    driver.rtt = RTT + RTT / 8;
    let mut growth = Vec::new();
    for _ in 0..8 {
        let before = driver.packets();
        driver.round(1.0);
        growth.push(driver.packets() / before);
    }
    assert!(growth[1..5].iter().all(|growth| (1.2..1.3).contains(growth)), "{growth:?}");
    assert!(growth[6..].iter().all(|growth| *growth < 1.03), "{growth:?}");
}

#[test]
fn newreno_halves_once_a_round_trip_and_grows_by_a_packet() {
    let mut driver = Driver::new(NewReno::default(), RTT);
    driver.grow_and_lose(100.0);
    let before = driver.packets();
    driver.lose(false);
    driver.control.on_ecn(driver.now, driver.now - RTT);
    assert_eq!(driver.packets(), before, "one congestion is answered once");
    // The window does not grow until a packet sent after the fall is acknowledged.
    driver.round(1.0);
    assert_eq!(driver.packets(), before);
    for _ in 0..10 {
        driver.round(1.0);
    }
    assert!((driver.packets() - before - 10.0).abs() < 0.5, "{} after {before}", driver.packets());
    driver.control.on_ecn(driver.now, driver.now);
    assert!((driver.packets() - (before + 10.0) / 2.0).abs() < 0.5, "a mark halves too");
}

#[test]
fn persistent_congestion_leaves_two_packets_and_slow_start_to_half() {
    let mut driver = Driver::new(NewReno::default(), RTT);
    driver.grow_and_lose(100.0);
    let half = driver.packets();
    (0..2).for_each(|_| driver.round(1.0));
    driver.lose(true);
    assert_eq!(driver.packets(), 2.0);
    driver.round(1.0);
    assert!(driver.packets() > 3.5);
    (0..5).for_each(|_| driver.round(1.0));
    // The window fell to half of its size, and slow start ends there.
    assert!((driver.packets() - half / 2.0).abs() < 5.0, "{}, once {half}", driver.packets());
}

/// RFC 9438 section 4.2: K = cbrt(W_max (1 - beta) / C) and W(t) = C (t - K)^3 + W_max.
#[test]
fn cubic_follows_its_curve() {
    let mut driver = Driver::new(Cubic::default(), RTT);
    driver.grow_and_lose(400.0);
    let max = driver.packets() / BETA;
    let k = (max * (1.0 - BETA) / 0.4).cbrt();
    // At 640 packets K is 7.83 s.
    assert!((max - 640.0).abs() < 20.0 && (k - 7.83).abs() < 0.1, "{max} {k}");
    driver.round(1.0);
    let began = driver.now;
    for round in 1..=120 {
        driver.round(1.0);
        let t = driver.now.since(began).as_secs_f64();
        let expected = 0.4 * (t - k).powi(3) + max;
        let window = driver.packets();
        assert!((window / expected - 1.0).abs() < 0.02, "round {round}: {window} instead of {expected}");
    }
    assert!(driver.packets() > max, "convex by now");
}

/// RFC 9438 section 4.3: while Reno's window is larger, CUBIC uses it. That window grows by 0.53 packets per
/// round trip.
#[test]
fn cubic_is_no_slower_than_reno_on_short_paths() {
    let rtt = Duration::from_millis(10);
    let mut driver = Driver::new(Cubic::default(), rtt);
    driver.grow_and_lose(30.0);
    driver.round(1.0);
    let before = driver.packets();
    for _ in 0..20 {
        driver.round(1.0);
    }
    let per_round = (driver.packets() - before) / 20.0;
    assert!((per_round - 9.0 / 17.0).abs() < 0.05, "{per_round} packets a round trip");
    // Beyond the old window it grows as fast as Reno itself.
    while driver.packets() < before / BETA + 1.0 {
        driver.round(1.0);
    }
    let before = driver.packets();
    (0..10).for_each(|_| driver.round(1.0));
    assert!((driver.packets() - before - 10.0).abs() < 1.0, "{} after {before}", driver.packets());
}

/// RFC 9438 section 4.7: congestion before the window is back sets the next plateau lower, at 0.85 of the
/// window.
#[test]
fn cubic_leaves_room_when_it_did_not_come_back() {
    let mut driver = Driver::new(Cubic::default(), RTT);
    driver.grow_and_lose(400.0);
    (0..5).for_each(|_| driver.round(1.0));
    let before = driver.packets();
    driver.lose(false);
    assert!((driver.control.max - before * (1.0 + BETA) / 2.0).abs() < 0.1);
    assert!((driver.packets() - before * BETA).abs() < 0.1);
}

#[test]
fn cubic_does_not_grow_by_the_time_it_was_idle() {
    let mut driver = Driver::new(Cubic::default(), RTT);
    driver.grow_and_lose(400.0);
    (0..5).for_each(|_| driver.round(1.0));
    let before = driver.packets();
    (0..200).for_each(|_| driver.round(0.2));
    assert_eq!(driver.packets(), before);
    driver.round(1.0);
    assert!(driver.packets() < before * 1.1, "{} after {before}", driver.packets());
}

const BETA: f64 = 0.7;
