//! The largest datagram the path takes, found by probing up from 1,200 bytes (RFC 8899, DPLPMTUD).
//!
//! A probe is a padded PING whose loss counts for nothing but the search. The largest size worth having is tried first,
//! since nearly every path takes it; where it fails, the interval is halved until it is narrower than [`RESOLUTION`].

use core::time::Duration;

use crate::Time;

/// Every path must take this much (RFC 9000 section 14).
pub(crate) const BASE: u16 = 1_200;
/// Lost probes of one size before it counts as too large: at 20 % loss a good size is refused once in 625 times.
const TRIES: u8 = 4;
/// The search ends when the interval is this narrow; 20 bytes are 1.4 % of a packet (RFC 8899 section 5.3.2 leaves it open).
const RESOLUTION: u16 = 20;
/// The search starts anew after this long (RFC 8899 section 5.1.1, PMTU_RAISE_TIMER).
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// Search state.
#[derive(Debug)]
pub(crate) struct MtuProber {
    current: u16,
    limit: u16,
    too_large: u16,
    probing: bool,
    tries: u8,
    /// When the next probe may leave.
    next: Time,
    enabled: bool,
}

impl MtuProber {
    /// Starts at 1,200 bytes of UDP payload; never beyond `limit`.
    pub fn new(limit: u16, enabled: bool) -> Self {
        let limit = limit.max(BASE);
        Self { current: BASE, limit, too_large: limit + 1, probing: false, tries: 0, next: Time::ZERO, enabled }
    }

    /// UDP payload that may be sent now.
    pub fn current(&self) -> u16 {
        self.current
    }

    /// The peer takes no more than this.
    pub fn limit_to(&mut self, peer: u16) {
        self.limit = self.limit.min(peer.max(BASE));
        self.too_large = self.too_large.min(self.limit + 1);
    }

    /// Size of a probe that should leave now.
    pub fn poll(&self, now: Time) -> Option<u16> {
        if !self.enabled || self.probing || now < self.next {
            return None;
        }
        let top = self.too_large - 1;
        if top <= self.current {
            return None;
        }
        if top == self.limit {
            return Some(top);
        }
        (top - self.current > RESOLUTION).then(|| self.current + (top - self.current).div_ceil(2))
    }

    /// A probe left.
    pub fn on_probe_sent(&mut self) {
        self.probing = true;
    }

    /// When the next probe is due, if there is one to send.
    pub fn next_probe(&self) -> Option<Time> {
        self.poll(self.next).map(|_| self.next)
    }

    /// A probe of `size` arrived.
    pub fn on_acked(&mut self, size: u16) {
        self.current = self.current.max(size.min(self.limit));
        self.probing = false;
        self.tries = 0;
    }

    /// A probe of `size` was lost.
    pub fn on_lost(&mut self, size: u16, now: Time, rtt: Duration) {
        self.probing = false;
        self.next = now + rtt;
        self.tries += 1;
        if self.tries >= TRIES {
            self.tries = 0;
            self.too_large = self.too_large.min(size);
            if self.poll(self.next).is_none() {
                self.too_large = self.limit + 1;
                self.next = now + RAISE_AFTER;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the search on a path that takes `truth` bytes and returns what it settles on, and the probes it took.
    fn search(truth: u16, limit: u16) -> (u16, u32) {
        let mut prober = MtuProber::new(limit, true);
        let (mut now, mut probes) = (Time::ZERO, 0);
        while now < Time::from_millis(60_000) {
            now += Duration::from_millis(60);
            let Some(size) = prober.poll(now) else { continue };
            probes += 1;
            prober.on_probe_sent();
            if size <= truth {
                prober.on_acked(size);
            } else {
                prober.on_lost(size, now, Duration::from_millis(60));
            }
        }
        (prober.current(), probes)
    }

    #[test]
    fn finds_the_usual_size_with_one_probe() {
        assert_eq!(search(1_472, 1_472), (1_472, 1));
    }

    #[test]
    fn comes_within_the_resolution_of_any_size() {
        for truth in BASE..=1_472 {
            let (found, probes) = search(truth, 1_472);
            assert!(found <= truth && truth - found <= RESOLUTION, "{truth}: {found}");
            assert!(probes <= 40, "{truth}: {probes} probes");
        }
    }
}
