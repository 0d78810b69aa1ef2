//! How the window grows and shrinks: what Linux calls a congestion control (`struct tcp_congestion_ops`).
//!
//! [`Sender`](super::Sender) decides when the window may grow and when it must shrink, and asks a
//! [`Control`] how far. Invariant: the window counts segments and is at least 1.

use core::fmt;
use core::time::Duration;

use tidewire_proto::Time;

/// `TCP_INFINITE_SSTHRESH`: slow start has no end yet.
pub(super) const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// The congestion window in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The window (`snd_cwnd`).
    pub segments: u32,
    /// Slow start ends here (`snd_ssthresh`).
    pub threshold: u32,
    /// Segments acknowledged since the last growth in congestion avoidance (`snd_cwnd_cnt`).
    pub credit: u32,
}

/// What a control may know of the moment of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time.
    pub now: Time,
    /// The shortest round trip so far.
    pub least_rtt: Option<Duration>,
}

/// A rule for the window.
pub trait Control: fmt::Debug + Send {
    /// The new threshold at a loss or a congestion mark (`ssthresh`).
    fn reduced(&mut self, window: &Window) -> u32;
    /// `acked` segments were delivered, and the window limits the sender (`cong_avoid`).
    fn on_acked(&mut self, window: &mut Window, acked: u32, moment: Moment);
    /// The retransmission timer expired, after [`Self::reduced`] (`set_state`).
    fn timed_out(&mut self) {}
    /// The window after a reduction from `before` turned out to be wrong (`undo_cwnd`).
    fn undone(&self, window: &Window, before: u32) -> u32 {
        window.segments.max(before)
    }
}

/// The rule of RFC 5681: one segment more for each round trip, half at a loss (`net/ipv4/tcp_cong.c`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Reno;

impl Control for Reno {
    fn reduced(&mut self, window: &Window) -> u32 {
        // RFC 5681 equation 4. Linux takes the window in place of the flight.
        (window.segments / 2).max(2)
    }

    fn on_acked(&mut self, window: &mut Window, acked: u32, _: Moment) {
        let left = window.slow_start(acked);
        if left > 0 {
            window.avoid_congestion(window.segments, left);
        }
    }
}

impl Window {
    pub(super) fn new(segments: u32) -> Self {
        Self { segments, threshold: NO_THRESHOLD, credit: 0 }
    }

    /// Whether it is below the threshold.
    pub fn is_in_slow_start(&self) -> bool {
        self.segments < self.threshold
    }

    /// Grows by the acknowledged segments up to the threshold (`tcp_slow_start`; RFC 3465 with L = infinity).
    /// Returns those that are left for congestion avoidance.
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        if !self.is_in_slow_start() {
            return acked;
        }
        let grown = self.segments.saturating_add(acked).min(self.threshold);
        let left = acked - (grown - self.segments);
        self.segments = grown;
        left
    }

    /// Grows by one for each `every` acknowledged segments (`tcp_cong_avoid_ai`).
    pub fn avoid_congestion(&mut self, every: u32, acked: u32) {
        if self.credit >= every {
            self.credit = 0;
            self.segments += 1;
        }
        self.credit += acked;
        if self.credit >= every {
            self.segments += self.credit / every;
            self.credit %= every;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reno_doubles_then_adds_one_a_window_then_halves() {
        let moment = Moment { now: Time::ZERO, least_rtt: None };
        let mut window = Window::new(10);
        Reno.on_acked(&mut window, 10, moment);
        assert_eq!(window, Window { segments: 20, threshold: NO_THRESHOLD, credit: 0 });
        window.threshold = Reno.reduced(&window);
        assert_eq!(window.threshold, 10);
        window.segments = 8;
        // Two end slow start, the third counts for congestion avoidance.
        Reno.on_acked(&mut window, 3, moment);
        assert_eq!((window.segments, window.credit), (10, 1));
        Reno.on_acked(&mut window, 8, moment);
        assert_eq!((window.segments, window.credit), (10, 9));
        Reno.on_acked(&mut window, 2, moment);
        assert_eq!((window.segments, window.credit), (11, 1));
        assert_eq!(Reno.reduced(&Window::new(3)), 2);
        assert_eq!(Reno.undone(&window, 30), 30);
    }
}
