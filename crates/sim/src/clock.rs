//! The clock of an end: how it differs from the virtual time.
//!
//! [`crate::pair::Pair`] keeps the virtual time, and translates it wherever an endpoint is told the time
//! or tells it. So a protocol that compares times of both ends fails in the simulator as it would on two
//! machines. Invariant: an end that asks to be woken at some time is woken at the first moment at which
//! its clock shows that time.

use core::time::Duration;

use tidewire_proto::Time;

/// A clock. The default shows the virtual time itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// What it shows when the virtual time is 0.
    pub ahead: Duration,
    /// By how many millionths of the virtual time it runs too fast; negative if it is too slow.
    pub drift_ppm: i32,
}

impl Clock {
    /// What the clock shows at the virtual time `at`.
    pub fn local(&self, at: Time) -> Time {
        let drift = i128::from(at.0) * i128::from(self.drift_ppm);
        time(i128::from(at.0) + drift.div_euclid(MILLION) + self.ahead.as_nanos() as i128)
    }

    /// The first virtual time at which the clock shows at least `local`.
    pub fn moment(&self, local: Time) -> Time {
        if local == Time::NEVER {
            return local;
        }
        let since = (i128::from(local.0) - self.ahead.as_nanos() as i128).max(0);
        let mut at = time(since * MILLION / (MILLION + i128::from(self.drift_ppm)));
        // Rounding is wrong by a few nanoseconds at most.
        while at > Time::ZERO && self.local(Time(at.0 - 1)) >= local {
            at.0 -= 1;
        }
        while self.local(at) < local {
            at.0 += 1;
        }
        at
    }
}

fn time(nanos: i128) -> Time {
    Time(nanos.clamp(0, i128::from(u64::MAX)) as u64)
}

const MILLION: i128 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_first_at_which_the_clock_shows_the_time() {
        for (ahead_ms, drift_ppm) in [(0, 0), (7_500, 0), (7_500, 200), (0, -200), (3, -1), (1, 999_999)] {
            let clock = Clock { ahead: Duration::from_millis(ahead_ms), drift_ppm };
            for n in 0..20_000 {
                let local = Time(7_499_990_000 + n * 617 + n * n * 1_003);
                let at = clock.moment(local);
                assert!(clock.local(at) >= local, "{clock:?} {local:?}");
                assert!(at == Time::ZERO || clock.local(Time(at.0 - 1)) < local, "{clock:?} {local:?}");
            }
            assert_eq!(clock.moment(Time::NEVER), Time::NEVER);
        }
        let drifting = Clock { ahead: Duration::from_secs(5), drift_ppm: -200 };
        assert_eq!(drifting.local(Time::from_millis(60_000)), Time::from_millis(64_988));
        assert_eq!(Clock::default().local(Time(77)), Time(77));
    }
}
