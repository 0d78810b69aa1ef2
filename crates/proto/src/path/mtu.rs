//! The largest datagram that the path carries, found by probing up from 1,200 bytes (RFC 8899, DPLPMTUD).
//! An end-to-end session over hops begins lower, so that its datagrams fit into theirs (docs/wire.md section
//! 8.1).
//!
//! A probe is a padded PING. Its loss affects only the search. The largest useful size is tried first, since
//! nearly every path carries it. If it fails and is a jumbo size, Ethernet's size is next. Then the search
//! halves the interval until it is narrower than [`RESOLUTION`].
//!
//! A path whose MTU falls without an ICMP message is a black hole (RFC 8899 section 4.3). Long packets are
//! lost in a row while shorter ones between them arrive. Neither random loss nor a blackout does that for
//! long. The search then starts again from 1,200 bytes, as on a new path. The connection reports fates in the
//! order of sending, and sends something short while nothing else arrives.
//!
//! A path that does not even carry the base is found by `minimum`.

use core::time::Duration;

use super::minimum::Minimum;
use crate::Time;

/// Minimum size that every path must carry (RFC 9000 section 14).
pub(crate) const BASE: u16 = 1_200;
/// What an Ethernet frame of 1,500 bytes has room for, besides the headers of IPv4 and UDP.
const ETHERNET: u16 = 1_472;
/// Lost probes of one size before it counts as too large. At 20 % loss a good size is rejected once in 625
/// times.
const TRIES: u8 = 4;
/// The search ends when the interval is this narrow. 20 bytes are 1.4 % of a packet (RFC 8899 section 5.3.2
/// sets no value).
const RESOLUTION: u16 = 20;
/// The search starts again after this time (RFC 8899 section 5.1.1, PMTU_RAISE_TIMER).
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// Number of long packets lost in a row that shows a lower path MTU. On a lossy path more are needed, so that
/// a mistake stays equally rare: by chance it happens to one run in 4 * 10^5 up to [`MOST_LOSS`]. A mistake
/// costs [`SEARCH_AFTER`] at the minimum size, and symbols that are then too long go in parts, without
/// repairs. With 8 at any loss rate, bulk traffic at 40 % made that mistake within half a minute.
pub(super) const LOST_IN_A_ROW: u32 = 8;
/// Loss at which [`LOST_IN_A_ROW`] are enough.
pub(super) const LITTLE_LOSS: f64 = 0.2;
/// Loss above which the required number no longer grows: 19 at 50 %. During a silence few packets are sent.
const MOST_LOSS: f64 = 0.5;
/// Number of times that a shorter packet must arrive after some of the long ones were lost, because a burst
/// of losses takes short packets as well. Repairs are longer than most source symbols, and those of a block
/// follow each other. With two, the ends of two bursts of the medium were enough (`issue_5` of
/// `sim/tests/behaviour/mtu.rs`), and packets were short for three seconds.
const PASSED: u32 = 4;
/// The search after a black hole begins after this time, when the losses of the black hole are repaired.
/// Chosen.
const SEARCH_AFTER: Duration = Duration::from_secs(3);

/// Counts of long packets since one arrived.
#[derive(Debug, Default)]
struct Suspicion {
    lost: u32,
    /// Number of lost packets that is enough, from the loss rate before the first of them.
    enough: u32,
    /// Length of the shortest of them.
    shortest: u16,
    /// Number of times that a shorter packet arrived, and the number of lost ones at the last of these times.
    passed: u32,
    lost_then: u32,
}

/// State of the search.
#[derive(Debug)]
pub(crate) struct MtuProber {
    /// The size that needs no probe.
    base: u16,
    current: u16,
    limit: u16,
    too_large: u16,
    /// A size that another path carried, which is probed first.
    proven: u16,
    /// Size of the probe in flight.
    probing: Option<u16>,
    tries: u8,
    /// Time at which the next probe may be sent.
    next: Time,
    /// When the last search ended; `None` during a search.
    ended: Option<Time>,
    enabled: bool,
    suspicion: Suspicion,
    minimum: Minimum,
    /// Packets sent until this time say nothing about the path as it is now.
    since: Time,
}

impl MtuProber {
    /// Starts at `base` bytes of UDP payload, at most [`BASE`]. The size never exceeds `limit`.
    pub(crate) fn new(base: u16, limit: u16, enabled: bool) -> Self {
        let limit = limit.max(base);
        Self {
            base,
            current: base,
            limit,
            too_large: limit + 1,
            proven: base,
            probing: None,
            tries: 0,
            next: Time::ZERO,
            ended: None,
            enabled,
            suspicion: Suspicion::default(),
            minimum: Minimum::new(base),
            since: Time::ZERO,
        }
    }

    /// Restarts at the base on a new path. The first probe has the size that was proven on the old one.
    pub(crate) fn on_new_path(&mut self, now: Time) {
        let proven = if self.is_raised() { self.current } else { self.proven };
        self.restart(now, Duration::ZERO);
        self.proven = proven;
    }

    /// Restarts at the base, because the path MTU fell. The first probe is sent after `after`.
    fn restart(&mut self, now: Time, after: Duration) {
        *self = Self { next: now + after, since: now, ..Self::new(self.base, self.limit, self.enabled) };
    }

    /// Whether packets are longer than the minimum that every path carries.
    fn is_raised(&self) -> bool {
        self.current > self.base
    }

    /// Whether full packets may be too long for the path, so that only short ones show that it is there.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_raised() || self.minimum.is_doubtful()
    }

    /// The size that the path carries and the one that it must carry, if it does not carry that.
    pub(crate) fn too_narrow(&self) -> Option<(u16, u16)> {
        self.minimum.narrow().map(|carries| (carries, self.base))
    }

    /// Whether a packet of `size` bytes, sent at `left`, was lost because the path MTU had fallen.
    pub(crate) fn was_too_long(&self, left: Time, size: u16) -> bool {
        left <= self.since && size > self.base
    }

    /// Takes the fate of a packet of `size` bytes, sent at `left`, that was not a probe, in the order of
    /// sending. `loss` is the path's estimated loss rate before. Returns whether the path MTU fell; the size
    /// is then 1,200 bytes again.
    pub(crate) fn on_fate(&mut self, now: Time, left: Time, size: u16, lost: bool, loss: f64) -> bool {
        if left <= self.since || !self.is_raised() {
            return false;
        }
        let seen = &mut self.suspicion;
        if lost {
            if size > self.base {
                if seen.lost == 0 {
                    (seen.shortest, seen.enough) = (size, enough(loss));
                }
                seen.shortest = seen.shortest.min(size);
                seen.lost += 1;
            }
            return false;
        }
        if seen.lost > 0 && size >= seen.shortest {
            *seen = Suspicion::default();
        } else if seen.lost > seen.lost_then {
            seen.passed += 1;
            seen.lost_then = seen.lost;
        }
        let narrower = seen.lost >= seen.enough && seen.passed >= PASSED;
        if narrower {
            self.restart(now, SEARCH_AFTER);
        }
        narrower
    }

    /// Takes the fate of a packet as [`Self::on_fate`] does, if it asked for an acknowledgement. Of others
    /// only the arrival is known, and they would hide a loss rate.
    pub(crate) fn on_answerable_fate(&mut self, left: Time, size: u16, lost: bool) {
        if left > self.since {
            self.minimum.on_fate(size, lost);
        }
    }

    /// The system refused a datagram of `size` bytes as too long. Returns whether that was not a probe; the
    /// size is then 1,200 bytes again.
    pub(crate) fn on_refused(&mut self, now: Time, size: u16) -> bool {
        if size <= self.base {
            self.minimum.on_refused(size);
            if self.probing != Some(size) {
                // The fates of what was sent before still count.
                return false;
            }
        }
        let narrower = size <= self.current && size > self.base;
        if narrower {
            self.restart(now, Duration::ZERO);
        }
        // A refused packet counts as lost later. It must not affect the search again then.
        (self.probing, self.tries, self.since) = (None, 0, now);
        self.too_large = self.too_large.min(size.max(self.base + 1));
        self.end_search(now);
        narrower
    }

    /// UDP payload that may be sent now.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// The peer accepts at most `peer` bytes.
    pub(crate) fn limit_to(&mut self, peer: u16) {
        self.limit = self.limit.min(peer.max(self.base));
        self.too_large = self.too_large.min(self.limit + 1);
    }

    /// Size of a probe that should be sent now.
    pub(crate) fn poll(&self, now: Time) -> Option<u16> {
        if !self.enabled || self.probing.is_some() || now < self.next {
            return None;
        }
        let top = self.too_large - 1;
        if let Some(size) = self.minimum.poll(top < self.limit || self.limit == self.base) {
            return Some(size);
        }
        if top <= self.current {
            return None;
        }
        if self.current < self.proven && self.proven < top {
            return Some(self.proven);
        }
        if top == self.limit {
            return Some(top);
        }
        if self.current < ETHERNET && ETHERNET < top {
            return Some(ETHERNET);
        }
        (top - self.current > RESOLUTION).then(|| self.current + (top - self.current).div_ceil(2))
    }

    /// A probe of `size` was sent.
    pub(crate) fn on_probe_sent(&mut self, size: u16) {
        self.probing = Some(size);
        self.ended = None;
    }

    /// Something waits that does not fit the path. A search that ended below may have lost its probes by
    /// chance, so the next one does not wait for the timer.
    pub(crate) fn search_soon(&mut self) {
        if let Some(ended) = self.ended {
            self.next = self.next.min(ended + SEARCH_AFTER);
        }
    }

    /// Time of the next probe, if there is one to send.
    pub(crate) fn next_probe(&self) -> Option<Time> {
        self.poll(self.next).map(|_| self.next)
    }

    /// A probe of `size`, sent at `left`, arrived.
    pub(crate) fn on_acked(&mut self, left: Time, size: u16, now: Time) {
        if left <= self.since {
            return;
        }
        self.minimum.on_arrived(size);
        self.probing = None;
        self.tries = 0;
        self.current = self.current.max(size.min(self.limit));
        self.end_search(now);
    }

    /// A probe of `size`, sent at `left`, was lost.
    pub(crate) fn on_lost(&mut self, left: Time, size: u16, now: Time, rtt: Duration) {
        if left <= self.since {
            return;
        }
        self.probing = None;
        if size <= self.base {
            // The loss was seen because something later arrived, so the next probe need not wait.
            self.next = now;
            return self.minimum.on_probe_lost(size);
        }
        self.next = now + rtt;
        self.tries += 1;
        if self.tries >= TRIES {
            self.tries = 0;
            self.too_large = self.too_large.min(size);
            self.end_search(now);
        }
    }

    /// Ends the search if the interval is narrow enough. The next search starts much later.
    fn end_search(&mut self, now: Time) {
        if self.poll(self.next).is_none() {
            self.too_large = self.limit + 1;
            self.next = now + RAISE_AFTER;
            self.ended = Some(now);
        }
    }
}

/// Number of consecutive long packets that must be lost on a path with the loss rate `loss`.
fn enough(loss: f64) -> u32 {
    let loss = loss.clamp(LITTLE_LOSS, MOST_LOSS);
    (f64::from(LOST_IN_A_ROW) * LITTLE_LOSS.ln() / loss.ln()).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the search on a path that carries `truth` bytes. Returns the resulting size and the number of
    /// probes.
    fn search(truth: u16, limit: u16) -> (u16, u32) {
        let mut prober = MtuProber::new(BASE, limit, true);
        let (mut now, mut probes) = (Time::ZERO, 0);
        while now < Time::from_millis(60_000) {
            now += Duration::from_millis(60);
            let Some(size) = prober.poll(now) else { continue };
            probes += 1;
            prober.on_probe_sent(1_472);
            if size <= truth {
                prober.on_acked(now, size, now);
            } else {
                prober.on_lost(now, size, now, Duration::from_millis(60));
            }
        }
        (prober.current(), probes)
    }

    #[test]
    fn finds_the_usual_size_with_one_probe() {
        assert_eq!(search(1_472, 1_472), (1_472, 1));
    }

    const RTT: Duration = Duration::from_millis(60);

    /// A prober on a path that carried 1,472 bytes.
    fn raised() -> MtuProber {
        let mut prober = MtuProber::new(BASE, 1_472, true);
        prober.on_probe_sent(1_472);
        prober.on_acked(Time::from_millis(1), 1_472, Time::from_millis(1));
        assert!(prober.is_raised());
        prober
    }

    /// Reports fates: `L` and `S` for a long and a short packet that arrived, small letters for lost ones.
    /// Returns the index at which the prober found a black hole.
    fn black_hole(prober: &mut MtuProber, fates: &str) -> Option<usize> {
        let now = Time::from_millis(1_000);
        fates.chars().position(|fate| {
            let size = if fate.eq_ignore_ascii_case(&'l') { 1_472 } else { 64 };
            prober.on_fate(now, now - RTT, size, fate.is_lowercase(), 0.1)
        })
    }

    #[test]
    fn on_a_path_that_loses_much_anyway_more_must_be_lost_in_a_row() {
        assert_eq!([0.0, 0.2, 0.3, 0.4, 0.5, 0.9].map(enough), [8, 8, 11, 15, 19, 19]);
        let narrower = |loss: f64, lost: usize| {
            let (mut prober, now) = (raised(), Time::from_millis(1_000));
            let fates = (0..lost).flat_map(|_| [(1_472, true), (64, false)]);
            fates.into_iter().any(|(size, lost)| prober.on_fate(now, now - RTT, size, lost, loss))
        };
        assert!(narrower(0.1, 8) && !narrower(0.4, 14) && narrower(0.4, 15));
    }

    #[test]
    fn long_packets_that_vanish_between_short_ones_are_a_black_hole() {
        assert_eq!(black_hole(&mut raised(), "llSllSllSllSL"), Some(11));
        assert_eq!(black_hole(&mut raised(), "llllSSllllSSL"), None, "two bursts");
        assert_eq!(black_hole(&mut raised(), "lllllllllS"), None, "nothing was seen to pass between them");
        assert_eq!(black_hole(&mut raised(), "llllSSSSllllss"), None, "a burst takes the short ones too");
        assert_eq!(black_hole(&mut raised(), "llllSllSlllLlllSlllS"), None, "one arrived");
        assert_eq!(black_hole(&mut raised(), "lSlSlSlSlSlSl"), None);
        assert_eq!(black_hole(&mut MtuProber::new(BASE, 1_472, true), "llSllSllSllSS"), None, "nothing long is sent");
    }

    #[test]
    fn after_a_black_hole_the_search_begins_anew_and_old_packets_say_nothing() {
        let (mut prober, now) = (raised(), Time::from_millis(1_000));
        assert!(black_hole(&mut prober, "llSllSllSllS").is_some());
        assert_eq!((prober.current(), prober.poll(now)), (BASE, None));
        prober.on_acked(now - RTT, 1_472, now);
        assert_eq!(prober.current(), BASE, "a probe of before");
        assert_eq!(prober.poll(now + SEARCH_AFTER), Some(1_472));
        prober.on_probe_sent(1_472);
        prober.on_acked(now + SEARCH_AFTER, 1_472, now + SEARCH_AFTER);
        assert_eq!(prober.current(), 1_472);
    }

    /// The limit is that of a jumbo path, and the paths carry less.
    #[test]
    fn on_a_new_path_the_first_probe_has_the_size_of_the_old_one() {
        let (mut prober, now) = (MtuProber::new(BASE, 8_972, true), Time::from_millis(1_000));
        prober.on_probe_sent(1_472);
        prober.on_acked(Time::from_millis(1), 1_452, now);
        for path in 1..=2 {
            let now = now + RTT * path;
            prober.on_new_path(now);
            assert_eq!((prober.current(), prober.poll(now)), (BASE, Some(1_452)), "also before it is proven again");
        }
        prober.on_probe_sent(1_472);
        prober.on_acked(now + RTT * 3, 1_452, now + RTT * 3);
        assert_eq!((prober.current(), prober.poll(now + RTT * 3)), (1_452, Some(8_972)), "then the search goes on");
        prober.on_new_path(now + RTT * 4);
        for _ in 0..TRIES {
            prober.on_probe_sent(1_472);
            prober.on_lost(now + RTT * 5, 1_452, now + RTT * 6, RTT);
        }
        assert_eq!(prober.poll(now + RTT * 7), Some(BASE), "nothing has shown yet that the path carries that");
        prober.on_answerable_fate(now + RTT * 5, BASE, false);
        let size = prober.poll(now + RTT * 7).expect("the search goes on");
        assert!(size > BASE && size < 1_452, "{size}");
    }

    #[test]
    fn a_size_that_the_system_refuses_is_left_at_once() {
        let (mut prober, now) = (raised(), Time::from_millis(1_000));
        assert!(prober.on_refused(now, 1_472));
        assert_eq!(prober.current(), BASE);
        prober.on_answerable_fate(now + RTT, BASE, false);
        let size = prober.poll(now).expect("the search goes on below");
        assert!(size > BASE && size < 1_472, "{size}");
        prober.on_probe_sent(1_472);
        assert!(!prober.on_refused(now, size), "a probe");
        prober.on_lost(now, size, now + RTT, RTT);
        assert!(prober.poll(now).is_some_and(|next| next < size), "{:?}", prober.poll(now));
    }

    /// Four lost probes of 1,472 bytes lead the search to a lower size, where the last probe arrives.
    #[test]
    fn a_search_that_ended_too_low_begins_again_when_something_does_not_fit() {
        let (mut prober, mut now) = (MtuProber::new(BASE, 1_472, true), Time::ZERO);
        let mut lost = 0;
        while prober.poll(now).is_some() {
            let size = prober.poll(now).expect("a probe");
            prober.on_probe_sent(1_472);
            now += RTT;
            if size > 1_460 {
                prober.on_lost(now, size, now, Duration::ZERO);
                lost += 1;
            } else {
                prober.on_acked(now, size, now);
            }
        }
        assert!(lost >= TRIES && prober.current() < 1_460, "{prober:?}");
        assert_eq!(prober.poll(now + SEARCH_AFTER), None, "by itself it waits ten minutes");
        assert_eq!(prober.next_probe(), Some(now + RAISE_AFTER), "and not for ever");
        prober.search_soon();
        assert_eq!((prober.poll(now), prober.poll(now + SEARCH_AFTER)), (None, Some(1_472)));
        prober.on_probe_sent(1_472);
        prober.search_soon();
        prober.on_acked(now + SEARCH_AFTER, 1_472, now + SEARCH_AFTER);
        assert_eq!(prober.current(), 1_472);
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
