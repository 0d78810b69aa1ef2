//! Counts of packets whose fate is known, over the last two seconds, and the test of what they show.

use core::time::Duration;

use crate::Time;

/// Time over which the sent and the delivered bytes are compared, as RFC 8084 section 4 asks: many round
/// trips, so that one burst does not decide.
pub(super) const SPAN: Duration = Duration::from_secs(2);
/// Parts of that time. Old parts are forgotten one by one. Chosen: the oldest packets are at most a fortieth
/// too old.
const BUCKETS: usize = 40;
const BUCKET: Duration = Duration::from_millis(50);
/// A ratio of fewer packets says nothing: 64 packets a second are 0.8 Mbit/s, which no network notices.
/// Chosen.
const LEAST_PACKETS: i64 = 128;
/// Standard deviations by which the loss has to exceed its bound. By the normal tail, a path that loses
/// exactly as much as the bound exceeds it in one of 740 independent samples.
const SIGMAS: f64 = 3.0;
/// Largest correlation between the fates of two neighbours, which runs of 64 losses have. Chosen.
const MOST_CORRELATED: f64 = 0.97;

/// Packets with a known fate. Signed, because a packet that arrives after it was declared lost takes back a
/// loss of an earlier part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    sent_bytes: i64,
    acked_bytes: i64,
    pub packets: i64,
    lost: i64,
    /// Runs of losses.
    runs: i64,
    /// Packets that left while the application, not the path, limited the sender.
    app_limited: i64,
}

impl Tally {
    pub(super) fn on_fate(&mut self, bytes: u32, lost: bool, starts_run: bool, app_limited: bool) {
        self.sent_bytes += i64::from(bytes);
        self.acked_bytes += if lost { 0 } else { i64::from(bytes) };
        self.packets += 1;
        self.lost += i64::from(lost);
        self.runs += i64::from(starts_run);
        self.app_limited += i64::from(app_limited);
    }

    pub(super) fn on_spurious(&mut self, bytes: u32) {
        self.acked_bytes += i64::from(bytes);
        self.lost -= 1;
    }

    fn combine(&mut self, other: &Self, sign: i64) {
        self.sent_bytes += sign * other.sent_bytes;
        self.acked_bytes += sign * other.acked_bytes;
        self.packets += sign * other.packets;
        self.lost += sign * other.lost;
        self.runs += sign * other.runs;
        self.app_limited += sign * other.app_limited;
    }

    /// Part of the bytes that was lost; zero without packets.
    pub(super) fn loss(&self) -> f64 {
        (1.0 - self.acked_bytes as f64 / self.sent_bytes.max(1) as f64).clamp(0.0, 1.0) * f64::from(self.packets > 0)
    }

    /// Standard deviation of the measured loss if the true loss is `loss`. Losses in runs of mean length B
    /// are those of a Gilbert channel: the fates of neighbours have the correlation `r = 1 - 1/B - loss/(B (1
    /// - loss))`, which multiplies the variance by `(1 + r)/(1 - r)`. For independent losses r is zero.
    pub(super) fn spread(&self, loss: f64) -> f64 {
        let burst = self.lost.max(1) as f64 / self.runs.max(1) as f64;
        let seen = self.loss().min(0.99);
        let correlated = (1.0 - (1.0 + seen / (1.0 - seen)) / burst).clamp(0.0, MOST_CORRELATED);
        (loss * (1.0 - loss) * (1.0 + correlated) / (1.0 - correlated) / self.packets.max(1) as f64).sqrt()
    }

    /// Whether the application limited the sender while most of these packets left.
    pub(super) fn is_app_limited(&self) -> bool {
        2 * self.app_limited > self.packets
    }

    /// Whether enough packets are counted to say anything.
    pub(super) fn is_enough(&self) -> bool {
        self.packets >= LEAST_PACKETS
    }

    /// Whether more is lost than `bound`, by more than chance explains.
    pub(super) fn exceeds(&self, bound: f64) -> bool {
        self.is_enough() && self.loss() > bound + SIGMAS * self.spread(bound)
    }
}

/// The packets whose fate became known in the last two seconds.
#[derive(Clone, Debug)]
pub(super) struct Window {
    buckets: [Tally; BUCKETS],
    total: Tally,
    newest: usize,
    /// When the newest part began.
    began: Time,
}

impl Default for Window {
    fn default() -> Self {
        Self { buckets: [Tally::default(); BUCKETS], total: Tally::default(), newest: 0, began: Time::ZERO }
    }
}

impl Window {
    /// Changes the counts of the newest part.
    pub(super) fn change(&mut self, change: impl Fn(&mut Tally)) {
        change(&mut self.buckets[self.newest]);
        change(&mut self.total);
    }

    /// Forgets what is too old at `now`. Returns whether a part ended.
    pub(super) fn advance(&mut self, now: Time) -> bool {
        let passed = (now.since(self.began).as_nanos() / BUCKET.as_nanos()) as usize;
        for _ in 0..passed.min(BUCKETS) {
            self.newest = (self.newest + 1) % BUCKETS;
            let oldest = core::mem::take(&mut self.buckets[self.newest]);
            self.total.combine(&oldest, -1);
        }
        self.began = if passed >= BUCKETS { now } else { self.began + BUCKET * passed as u32 };
        passed > 0
    }

    pub(super) fn total(&self) -> &Tally {
        &self.total
    }

    pub(super) fn clear(&mut self) {
        (self.buckets, self.total) = ([Tally::default(); BUCKETS], Tally::default());
    }
}

/// The rate at which bytes are delivered, over about a round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    /// Bytes per second; zero before the first measurement.
    pub rate: f64,
    /// The same, without measurements in which the application sent less.
    pub most: f64,
    /// The packets of the last two measurements.
    seen: [Tally; 2],
    began: Option<Time>,
    newest: Time,
    present: Tally,
}

/// A measurement takes a round trip, at least this time, and at least this many packets. Chosen: a policer's
/// bucket and batches of FEEDBACK do not show in 100 ms, and 16 packets are a rate to a quarter.
const LEAST_MEASURED: Duration = Duration::from_millis(100);
const LEAST_DELIVERED: i64 = 16;

impl Meter {
    pub(super) fn change(&mut self, change: impl Fn(&mut Tally)) {
        change(&mut self.present);
    }

    /// Loss of the last two measurements, if there are two.
    pub(super) fn loss(&self) -> Option<f64> {
        let [mut both, newest] = self.seen;
        both.combine(&newest, 1);
        (self.seen[0].packets > 0).then(|| both.loss())
    }

    /// Takes a measurement that is not complete yet, if it shows more. The rate of a sender that starts
    /// doubles faster than it is measured.
    pub(super) fn hurry(&mut self, now: Time) {
        let took = self.began.map_or(Duration::ZERO, |began| now.since(began)).max(LEAST_MEASURED);
        if self.present.packets - self.present.lost >= LEAST_DELIVERED {
            self.rate = self.rate.max(self.present.acked_bytes.max(0) as f64 / took.as_secs_f64());
        }
    }

    /// Begins a new measurement and keeps the rate of the last one. Its packets may have left at another
    /// pace, so their loss is not kept.
    pub(super) fn restart(&mut self) {
        *self = Self { rate: self.rate, most: self.most, ..Self::default() };
    }

    /// Fates became known at `now`. A path that loses the part `overrun` is overrun. Returns whether the
    /// rate was measured anew.
    pub(super) fn on_fates(&mut self, now: Time, rtt: Duration, overrun: f64) -> bool {
        if self.present.packets == 0 && self.began.is_none() {
            // The packets that count have yet to arrive.
            return false;
        }
        let (least, paused) = (rtt.max(LEAST_MEASURED), now.since(self.newest));
        self.newest = now;
        let Some(began) = self.began.filter(|_| paused <= least * 2) else {
            // The packets that begin a measurement are not part of it.
            (self.began, self.present) = (Some(now), Tally::default());
            return false;
        };
        let took = now.since(began);
        if took < least || self.present.packets - self.present.lost < LEAST_DELIVERED {
            return false;
        }
        self.rate = self.present.acked_bytes.max(0) as f64 / took.as_secs_f64();
        // An application that sent less says nothing about the path, unless the path is overrun.
        let is_less = self.present.app_limited > 0 && self.present.loss() < overrun;
        self.most = if is_less { self.most.max(self.rate) } else { self.rate };
        self.seen = [self.seen[1], core::mem::take(&mut self.present)];
        self.began = Some(now);
        true
    }
}
