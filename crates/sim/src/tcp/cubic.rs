//! CUBIC (RFC 9438) as `net/ipv4/tcp_cubic.c` computes it, without HyStart.
//!
//! A [`Sender`](super::Sender) made with [`Cubic`] asks it as it asks Reno. After a reduction the window
//! follows a cubic curve of the time since then: quickly back to where the loss was, slowly there, and
//! faster and faster beyond. Invariant: over round trips longer than the pause between two readings of the
//! curve, the window grows no less than that of Reno with the same reduction would.
//!
//! HyStart (on by default in Linux) ends slow start when the round trip grows. Without it slow start ends by
//! a loss.

use core::time::Duration;

use tidewire_proto::Time;

use super::control::{Control, Moment, Window};

/// `beta`, 717/1024: RFC 9438 section 4.6 has 0.7.
const KEPT: f64 = 717.0 / 1_024.0;
/// C of RFC 9438 section 5.1 in segments for a second cubed (`bic_scale` 41: 41 * 10 / 1,024).
const SCALE: f64 = 410.0 / 1_024.0;
/// The window grows by at most one segment for two acknowledged (`bictcp_update`).
const FASTEST: u32 = 2;
/// The same before the first loss: at least one for twenty.
const FIRST: u32 = 20;
/// Above the curve: hardly at all.
const RESTS: u32 = 100;
/// The curve is read at most every 1/32 s while the window stays.
const PAUSE: Duration = Duration::from_nanos(31_250_000);

/// Where the curve began.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Time,
    /// Seconds until the window is back at `origin` (K).
    back: f64,
    /// The window of the last loss (W_max).
    origin: f64,
    /// The window that Reno would have, and segments acknowledged since it grew.
    reno: u32,
    acked: u32,
}

/// The last reading of the curve.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Time,
    window: u32,
    /// Acknowledged segments for which the window grows by one.
    every: u32,
}

/// The state of CUBIC; see the module.
#[derive(Clone, Debug, Default)]
pub struct Cubic {
    /// The window before the last loss; 0 before the first.
    largest: u32,
    epoch: Option<Epoch>,
    reading: Option<Reading>,
}

impl Control for Cubic {
    fn reduced(&mut self, window: &Window) -> u32 {
        self.epoch = None;
        let segments = f64::from(window.segments);
        // Fast convergence (RFC 9438 section 4.7): a flow that lost before it was back makes room.
        let is_less = window.segments < self.largest;
        self.largest = if is_less { (segments * (1.0 + KEPT) / 2.0) as u32 } else { window.segments };
        ((segments * KEPT) as u32).max(2)
    }

    fn on_acked(&mut self, window: &mut Window, acked: u32, moment: Moment) {
        let left = window.slow_start(acked);
        if left > 0 {
            let every = self.every(window.segments, left, moment);
            window.avoid_congestion(every, left);
        }
    }

    fn timed_out(&mut self) {
        *self = Self::default();
    }
}

impl Cubic {
    /// Acknowledged segments for which a window of `segments` grows by one (`bictcp_update`).
    fn every(&mut self, segments: u32, acked: u32, moment: Moment) -> u32 {
        let largest = self.largest;
        let epoch = self.epoch.get_or_insert_with(|| {
            let missing = f64::from(largest.saturating_sub(segments));
            let origin = f64::from(largest.max(segments));
            Epoch { start: moment.now, back: (missing / SCALE).cbrt(), origin, reno: segments, acked: 0 }
        });
        epoch.acked = epoch.acked.saturating_add(acked);
        if let Some(reading) = self.reading
            && reading.window == segments
            && moment.now.since(reading.at) <= PAUSE
        {
            return reading.every;
        }
        let age = moment.now.since(epoch.start) + moment.least_rtt.unwrap_or_default();
        let target = epoch.origin + SCALE * (age.as_secs_f64() - epoch.back).powi(3);
        let window = f64::from(segments);
        let most = RESTS.saturating_mul(segments);
        let mut every = if target > window { (window / (target - window)).min(f64::from(most)) as u32 } else { most };
        if largest == 0 {
            every = every.min(FIRST);
        }
        every = every.min(epoch.as_reno(segments)).max(FASTEST);
        self.reading = Some(Reading { at: moment.now, window: segments, every });
        every
    }
}

impl Epoch {
    /// The rate of growth that keeps up with Reno (RFC 9438 section 4.3): it grows by one for each
    /// (1 + beta) / (3 (1 - beta)) windows of acknowledged segments.
    fn as_reno(&mut self, segments: u32) -> u32 {
        let step = ((f64::from(segments) * (1.0 + KEPT) / (3.0 * (1.0 - KEPT))) as u32).max(1);
        while self.acked > step {
            self.acked -= step;
            self.reno += 1;
        }
        match self.reno.checked_sub(segments) {
            None | Some(0) => u32::MAX,
            Some(behind) => segments / behind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_back_after_the_cube_root_of_what_was_lost() {
        let mut cubic = Cubic::default();
        let mut window = Window::new(1_000);
        window.threshold = cubic.reduced(&window);
        window.segments = window.threshold;
        assert_eq!(window.segments, 700);
        // K = cbrt(300 / 0.4) = 9.08 s at a round trip of 100 ms.
        let mut at = Time::ZERO;
        let mut seen = Vec::new();
        for round in 0..150 {
            at = Time::from_millis(100 * round);
            for _ in 0..window.segments / 2 {
                let least_rtt = Some(Duration::from_millis(100));
                cubic.on_acked(&mut window, 2, Moment { now: at, least_rtt });
            }
            seen.push(window.segments);
        }
        assert!(seen[20] > 800 && (980..=1_000).contains(&seen[88]), "{seen:?}");
        assert!(seen[149] > 1_050, "{} at {at:?}", seen[149]);
        // Fast convergence: a loss below 1,000 counts as one at 85 % of it.
        window.segments = 900;
        assert_eq!((cubic.reduced(&window), cubic.largest), (630, 765));
    }

    #[test]
    fn a_small_window_grows_no_slower_than_that_of_reno() {
        let mut cubic = Cubic::default();
        let mut window = Window::new(10);
        window.threshold = cubic.reduced(&window);
        window.segments = window.threshold;
        assert_eq!(window.segments, 7);
        for round in 0..100 {
            for _ in 0..window.segments {
                let (now, least_rtt) = (Time::from_millis(40 * round), Some(Duration::from_millis(40)));
                cubic.on_acked(&mut window, 1, Moment { now, least_rtt });
            }
        }
        // One segment for 1.9 windows: 53 in 100 round trips. The curve reaches 13 in these 4 s.
        assert!((50..=62).contains(&window.segments), "{window:?}");
    }
}
