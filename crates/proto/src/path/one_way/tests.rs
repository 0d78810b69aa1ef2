use super::*;

/// A path between two clocks, with one packet and its FEEDBACK each 100 ms.
struct Path {
    one_way: OneWay,
    /// By how much the peer's clock is ahead at the start, and by how many ppm it runs faster.
    offset: u64,
    ppm: i64,
    random: u64,
}

impl Path {
    fn new(offset: u64, ppm: i64) -> Self {
        Self { one_way: OneWay::default(), offset, ppm, random: 1 }
    }

    /// Up to `most` microseconds.
    fn noise(&mut self, most: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % (most + 1)
    }

    /// Sends one packet at `ms`, with these delays in microseconds. Returns the delay above the first one, in
    /// microseconds.
    fn send(&mut self, ms: u64, forward: u64, back: u64) -> i64 {
        let sent = Time::from_millis(ms);
        let came = sent + Duration::from_micros(forward);
        let clock = came.0.saturating_add_signed(came.0 as i64 / 1_000_000 * self.ppm);
        let arrival = time_units(Time(clock) + Duration::from_micros(self.offset));
        // The peer waits for 5 ms, and says so.
        let delay = Duration::from_millis(5);
        let now = came + delay + Duration::from_micros(back);
        let found = self.one_way.on_sample(now, sent, arrival, delay);
        found.as_micros() as i64 - FIRST / 1_000
    }

    /// Sends packets in the seconds `from .. to`, with up to 3 ms of jitter either way besides these delays.
    /// Returns the least delay of the last ten seconds.
    fn run(&mut self, seconds: core::ops::Range<u64>, delays: impl Fn(f64) -> (f64, f64)) -> i64 {
        let mut least = i64::MAX;
        for ms in (seconds.start * 1_000..seconds.end * 1_000).step_by(100) {
            let (forward, back) = delays(ms as f64 / 1e3);
            let (forward, back) = (forward as u64 + self.noise(3_000), back as u64 + self.noise(3_000));
            let found = self.send(ms, forward, back);
            if ms + 10_000 >= seconds.end * 1_000 {
                least = least.min(found);
            }
        }
        least
    }
}

fn steady(_: f64) -> (f64, f64) {
    (20_000.0, 20_000.0)
}

#[test]
fn differences_are_exact_on_any_pair_of_clocks_and_after_the_time_wraps_around() {
    for offset in [0, 5_000_000, (1 << 28) - 1_000, 400_000_000] {
        for over in [0_i64, 3_200, -1_600, 900_000] {
            let mut path = Path::new(offset, 0);
            assert_eq!(path.send(0, 20_000, 20_000), 0);
            for second in 1..600 {
                let found = path.send(second * 1_000, 20_000, 20_000);
                assert!(found.abs() <= 16, "{found} at {second} s");
            }
            let found = path.send(600_000, 20_000_u64.saturating_add_signed(over), 20_000);
            assert!((found - over).abs() <= 16, "{found} of {over}, offset {offset}");
        }
    }
}

#[test]
fn a_drift_is_removed_within_a_minute() {
    for ppm in [-200, -100, -7, 0, 30, 200] {
        let mut path = Path::new(3_000_000, ppm);
        let mut least = vec![path.run(0..60, steady)];
        assert!(least[0].abs() < 45 * ppm.abs() + 3_200, "{least:?} at {ppm} ppm");
        least.extend((6..60).map(|ten| path.run(ten * 10..ten * 10 + 10, steady)));
        // From one controller's memory to the next, and in all within nine minutes.
        assert!(least.windows(2).all(|pair| pair[0].abs_diff(pair[1]) < 300), "{least:?} at {ppm} ppm");
        let range = least.iter().max().unwrap() - least.iter().min().unwrap();
        assert!(range < 1_000, "{range} us at {ppm} ppm");
    }
}

/// Even a queue that grows as slowly as a clock drifts.
#[test]
fn what_our_packets_meet_never_looks_like_a_drift() {
    for ppm in [-200, 0, 60] {
        let mut path = Path::new(0, ppm);
        let before = path.run(0..120, steady);
        // A longer route.
        let longer = path.run(120..420, |_| (35_000.0, 20_000.0));
        assert!((longer - before - 15_000).abs() < 1_000, "{before} to {longer} at {ppm} ppm");
        // A queue that grows by 6 ms in a minute for five minutes, and then stands.
        let grown = path.run(420..720, |at| (35_000.0 + 100.0 * (at - 420.0), 20_000.0));
        assert!((grown - longer - 29_000).abs() < 2_000, "{longer} to {grown} at {ppm} ppm");
        let stands = path.run(720..1_000, |_| (65_000.0, 20_000.0));
        assert!((stands - longer - 30_000).abs() < 2_000, "{longer} to {stands} at {ppm} ppm");
        let drained = path.run(1_000..1_100, steady);
        assert!((drained - before).abs() < 2_000, "{before} to {drained} at {ppm} ppm");
    }
}

#[test]
fn a_longer_way_back_counts_at_most_as_it_does_in_a_round_trip() {
    for change in [10_000.0, 40_000.0, -10_000.0] {
        for over in [0.1, 60.0, 300.0] {
            let mut path = Path::new(0, 50);
            let before = path.run(0..120, steady);
            let (mut last, mut errors) = (before, Vec::new());
            for ten in 12..60 {
                let to = |at: f64| (20_000.0, 20_000.0 + change * ((at - 120.0) / over).clamp(0.0, 1.0));
                let found = path.run(ten * 10..ten * 10 + 10, to);
                assert!(found.abs_diff(last) < 3_100, "{last} to {found}: faster than both clocks drift");
                errors.push(found - before);
                last = found;
            }
            let most = *errors.iter().max_by_key(|error| error.abs()).expect("some");
            assert!(most.abs() as f64 <= change.abs() + 1_000.0, "{errors:?} for {change} over {over} s");
            // It drifts no longer.
            assert!(errors[40..].iter().all(|error| error.abs_diff(errors[47]) < 500), "{errors:?}");
        }
    }
}

#[test]
fn after_a_long_silence_and_a_jump_of_the_clock_the_delay_moves_as_the_round_trip_does() {
    for (pause, jump) in [(150, 0), (150, 33_000_000), (1, 20_000_000), (1, 150_000_000), (100_000, 0)] {
        let mut path = Path::new(500_000_000, -50);
        let before = path.run(0..100, steady);
        path.offset -= jump;
        // The queue that the round trip shows is the packets', as far as anyone can tell.
        let least = path.run(100 + pause..140 + pause, |_| (32_000.0, 20_000.0));
        assert!((least - before - 12_000).abs() < 6_000, "{before} to {least} after {pause} s and {jump} us");
        let then = path.run(140 + pause..240 + pause, steady);
        assert!((then - least + 12_000).abs() < 1_500, "{least} to {then} after {pause} s and {jump} us");
    }
}

#[test]
fn no_report_makes_it_fail() {
    let mut path = Path::new(0, 0);
    let mut now = Time::ZERO;
    for _ in 0..100_000 {
        now += Duration::from_micros(path.noise(100_000));
        let back = Duration::from_micros(path.noise(1_000_000));
        let arrival = path.noise(u64::from(TIME_MODULUS) - 1) as u32;
        let delay = if path.noise(9) == 0 { Duration::MAX } else { Duration::from_micros(path.noise(2_000_000)) };
        path.one_way.on_sample(now + back, now, arrival, delay);
        assert!(path.one_way.skew.slope.abs() <= MAX_SKEW);
    }
}
