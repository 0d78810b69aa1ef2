//! Variation of the one-way delay from us to the peer, from the arrivals that FEEDBACK reports.
//!
//! A round trip also contains the way back: its queue, and the moments at which the peer sends FEEDBACK. The
//! one-way delay contains only the way of our packets. The path gives [`OneWay`] each newest packet that a
//! FEEDBACK newly acknowledges, and hands the result to the rate controller.
//!
//! The clocks of the two ends differ by an unknown constant, so only differences of delays mean something.
//! They also drift apart, by up to [`MAX_SKEW`], which would look like a queue that grows for ever: by 12
//! ms in a minute.
//!
//! **How the drift is found.** Let the peer's clock be ahead of ours by C, and let a packet need F to the
//! peer and its FEEDBACK B back. The arrival less the time of sending is C + F. The round trip, which no
//! drift touches, is F + B. Their difference is C - B, without F: what our packets meet cannot look like
//! drift, however slowly their queue grows. B is never negative, so C lies on or above all these points,
//! and touches those of the shortest ways back. As in Moon, Skelly and Towsley ("Estimation and removal of
//! clock skew from network delay measurements", 1999) the line that lies above all points and nearest to
//! them has the slope of C. It is an edge of their convex hull: the one above the mean time of the points.
//! The points are the greatest C - B of each of the last [`WINDOWS`] windows, at least [`LEAST_SPAN`]
//! apart. Until then no drift is removed.
//!
//! **How far it errs.** If the least ways back of the windows differ by e, no point lies more than e below
//! the line of C. Then the slope errs by at most e over half of the span: 1 ms within a minute is 33 ppm.
//! A way back that becomes longer by q for good looks like a clock that slows down while the windows
//! remember the change. In all, the one-way delay then grows by at most about q, and never faster than
//! [`MAX_SKEW`] plus the drift. So it errs by no more than a controller errs that sees only round trips,
//! which grow by q at once.
//!
//! **Clocks that jump.** C lies between the greatest C - B and the least C + F, which are a round trip apart.
//! Where a new packet contradicts that, the peer's clock has jumped (its machine slept). The delay then
//! moves on by what the round trip says, and so it does after [`SILENCE`].

use core::time::Duration;

use crate::Time;
use crate::wire::{TIME_MODULUS, TIME_UNIT, time_units, units_between};

/// The first delay that is reported: 2^31 us, so that no later one is negative.
const FIRST: i64 = (1 << 31) * 1_000;
/// The greatest drift of two clocks: 100 ppm for each, the tolerance of Ethernet's clocks (IEEE 802.3).
const MAX_SKEW: f64 = 200e-6;
/// Each window gives one point. Chosen: long enough for several short ways back, even of sparse FEEDBACK.
const WINDOW: Duration = Duration::from_secs(5);
/// Windows kept: a minute of traffic. Chosen: the error falls with the span, and a longer way back counts as
/// drift for as long.
const WINDOWS: usize = 12;
/// Points that span less time than this say nothing about the drift. Chosen: the slope then errs by at most
/// 67 ppm if the least ways back differ by 1 ms.
const LEAST_SPAN: Duration = Duration::from_secs(30);
/// After so long without a packet the measurement starts again: half of what the times on the wire can tell
/// apart, 134 s, in which the clocks may have drifted by 27 ms.
const SILENCE: Duration = Duration::from_nanos(TIME_MODULUS as u64 / 2 * TIME_UNIT);
/// Error of a measured time in nanoseconds, whatever the clocks: the granularity of timers (RFC 9002
/// section 6.1.2).
const INEXACT: f64 = 1e6;

/// What one packet says. Times are in nanoseconds, and all have the same unknown constant.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Time,
    /// Arrival less sending: C + F.
    forward: i64,
    /// The same less the round trip: C - B.
    ahead: i64,
}

/// The latest packet.
#[derive(Clone, Copy, Debug)]
struct Latest {
    sent: Time,
    arrival: u32,
    forward: i64,
    round: i64,
}

/// One-way delay of one path; see the module.
#[derive(Clone, Debug)]
pub(crate) struct OneWay {
    latest: Option<Latest>,
    skew: Skew,
    /// The delay of a packet with `forward` 0 before any drift was removed.
    base: i64,
    /// Drift removed, in nanoseconds.
    removed: f64,
}

impl Default for OneWay {
    fn default() -> Self {
        Self { latest: None, skew: Skew::default(), base: FIRST, removed: 0.0 }
    }
}

impl OneWay {
    /// Takes a packet that left at `sent`, which a FEEDBACK that came `now` acknowledges. The packet
    /// arrived at `arrival` on the peer's clock, in units of the wire, and the peer waited for
    /// `peer_delay` from then on. Packets come in the order of sending. Returns the packet's one-way delay
    /// above a constant.
    pub(super) fn on_sample(&mut self, now: Time, sent: Time, arrival: u32, peer_delay: Duration) -> Duration {
        let whole = now.since(sent);
        // A peer cannot have waited for longer than the round trip took.
        let round = nanos(whole.saturating_sub(peer_delay));
        let mut forward = 0;
        if let Some(latest) = self.latest {
            let passed = sent.since(latest.sent);
            forward = latest.forward.saturating_add(change(&latest, passed, arrival));
            let point = Point { at: now, forward, ahead: forward.saturating_sub(round) };
            if passed > SILENCE || self.skew.contradicts(&point) {
                self.base = self.delay(latest.forward).saturating_add(round.saturating_sub(latest.round));
                (forward, self.removed) = (0, 0.0);
                self.skew.forget();
            } else {
                self.removed += self.skew.slope * nanos(passed) as f64;
            }
        }
        self.latest = Some(Latest { sent, arrival, forward, round });
        self.skew.take(Point { at: now, forward, ahead: forward.saturating_sub(round) });
        Duration::from_nanos(self.delay(forward).max(0).unsigned_abs())
    }

    fn delay(&self, forward: i64) -> i64 {
        self.base.saturating_add(forward).saturating_sub(self.removed as i64)
    }
}

/// How much longer than `latest` a packet was on its way, in nanoseconds. It left `passed` later and
/// arrived at `arrival`.
fn change(latest: &Latest, passed: Duration, arrival: u32) -> i64 {
    let passed = nanos(passed).unsigned_abs();
    // The unit that the packet would arrive in with the same delay. The change is far below the 134 s that
    // can be told apart, whatever time passed.
    let expected = latest.arrival.wrapping_add(time_units(Time(passed)));
    i64::from(units_between(expected, arrival)) * TIME_UNIT as i64 - (passed % TIME_UNIT) as i64
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The extremes of one window of time.
#[derive(Clone, Copy, Debug)]
struct Window {
    began: Time,
    /// The greatest C - B, and when it was seen.
    ahead: i64,
    at: Time,
    /// The least C + F.
    forward: i64,
}

/// The drift of the peer's clock against ours.
#[derive(Clone, Debug, Default)]
struct Skew {
    /// Windows that had packets, oldest first.
    windows: [Option<Window>; WINDOWS],
    /// By how much faster the peer's clock runs than ours.
    slope: f64,
}

impl Skew {
    fn known(&self) -> impl DoubleEndedIterator<Item = &Window> {
        self.windows.iter().flatten()
    }

    /// Whether the peer's clock must have jumped.
    fn contradicts(&self, point: &Point) -> bool {
        self.known().any(|window| {
            let slack = INEXACT + MAX_SKEW * nanos(point.at.since(window.began)) as f64;
            let over = |more: i64, less: i64| more.saturating_sub(less) as f64 > slack;
            over(point.ahead, window.forward) || over(window.ahead, point.forward)
        })
    }

    /// Forgets all points, but not the slope: the clocks are still the same.
    fn forget(&mut self) {
        self.windows = [None; WINDOWS];
    }

    fn take(&mut self, point: Point) {
        let fresh = Window { began: point.at, ahead: point.ahead, at: point.at, forward: point.forward };
        match self.windows.iter_mut().flatten().next_back() {
            Some(window) if point.at.since(window.began) < WINDOW => {
                if point.ahead >= window.ahead {
                    (window.ahead, window.at) = (point.ahead, point.at);
                }
                window.forward = window.forward.min(point.forward);
            }
            _ => {
                self.slope = self.estimate().unwrap_or(self.slope);
                let free = self.windows.iter().position(Option::is_none).unwrap_or_else(|| {
                    self.windows.rotate_left(1);
                    WINDOWS - 1
                });
                self.windows[free] = Some(fresh);
            }
        }
    }

    /// The slope of the hull's edge above the mean time. Among all lines through one point before the mean
    /// and one after it, that edge is the highest there.
    fn estimate(&self) -> Option<f64> {
        let (first, last) = (self.known().next()?, self.known().next_back()?);
        if last.at.since(first.at) < LEAST_SPAN {
            return None;
        }
        let seconds = |window: &Window| window.at.since(first.at).as_secs_f64();
        let (sum, count) = self.known().fold((0.0, 0.0), |(sum, count), window| (sum + seconds(window), count + 1.0));
        let mean: f64 = sum / count;
        let mut highest = (f64::NEG_INFINITY, 0.0);
        for before in self.known().filter(|window| seconds(window) <= mean) {
            for after in self.known().filter(|window| seconds(window) > mean) {
                let rise = after.ahead.saturating_sub(before.ahead) as f64;
                let slope = rise / (seconds(after) - seconds(before));
                let above = before.ahead.saturating_sub(first.ahead) as f64 + slope * (mean - seconds(before));
                // A point that lies at the mean time itself begins its edge: the steepest of its lines.
                if (above, slope) > highest {
                    highest = (above, slope);
                }
            }
        }
        // From nanoseconds in a second to a share.
        Some((highest.1 / 1e9).clamp(-MAX_SKEW, MAX_SKEW))
    }
}

#[cfg(test)]
mod tests;
