//! What happened so far: counts whose columns sum, and the distribution of in-order delay.
//!
//! One source feeds every report (text, JSON, later metrics), so that they cannot disagree.

use core::time::Duration;

pub use crate::path::LossRuns;
use crate::redundancy::Plan;

/// Packets of one connection, as its own end counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketStats {
    /// Sent: `source + repair + feedback_repair + control`.
    pub sent: u64,
    /// Sent with a source symbol for the first time, or with a part of one that is longer than the path takes.
    pub source: u64,
    /// Sent with a repair before any deficit was known.
    pub repair: u64,
    /// Sent to answer a deficit or a loss: a repair, or a source symbol again.
    pub feedback_repair: u64,
    /// Sent with control frames only.
    pub control: u64,
    /// Authentic packets received.
    pub received: u64,
    /// Received symbols that did not raise the decoder's rank.
    pub redundant: u64,
    /// Sent packets that were acknowledged, and that were given up as lost.
    pub acked: u64,
    /// Given up as lost.
    pub lost: u64,
    /// Of those sent, those that the system refused to take from us; they are lost.
    pub refused: u64,
    /// Datagrams that named this connection and were not authentic, or came twice.
    pub dropped: u64,
    /// Of those received, those that came after one that was sent later (RFC 4737 section 3.3).
    pub reordered: u64,
    /// Packet numbers by which the latest of them came behind: what a sender's packet threshold would have to bear (RFC 9002 section 6.1.1).
    pub reordering_depth: u64,
}

/// Source symbols delivered by this end: `delivered = direct + repaired + resent`. Only lanes of messages have expired ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SymbolStats {
    /// Delivered in order.
    pub delivered: u64,
    /// Arrived in their first transmission.
    pub direct: u64,
    /// Computed from repair symbols.
    pub repaired: u64,
    /// Arrived in a further transmission, or in parts.
    pub resent: u64,
    /// Given up because their time had passed.
    pub expired: u64,
}

impl SymbolStats {
    /// Adds what another lane counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.delivered += other.delivered;
        self.direct += other.direct;
        self.repaired += other.repaired;
        self.resent += other.resent;
        self.expired += other.expired;
    }
}

/// Messages with deadlines, those of our lanes and those of the peer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageStats {
    /// Ours that were taken to be sent.
    pub sent: u64,
    /// Ours whose time was over before the peer was known to have them, and their source symbols that it was not known to have.
    pub expired: u64,
    /// See `expired`.
    pub expired_symbols: u64,
    /// The peer's that came whole, and were kept for the application.
    pub delivered: u64,
    /// The peer's that began and lost a part, or that nobody took until others needed their room.
    pub dropped: u64,
}

/// Everything a connection counts.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// This end listens, and codes as its peer asked.
    pub policy_followed: bool,
    /// Packets.
    pub packets: PacketStats,
    /// Source symbols received.
    pub symbols: SymbolStats,
    /// Messages.
    pub messages: MessageStats,
    /// Bytes on the wire, IP and UDP headers included: sent and received.
    pub wire_bytes_sent: u64,
    /// See `wire_bytes_sent`.
    pub wire_bytes_received: u64,
    /// Bytes of streams and messages taken from the application, and given to it.
    pub app_bytes_sent: u64,
    /// See `app_bytes_sent`.
    pub app_bytes_received: u64,
    /// Least and mean round trip; zero before the first sample.
    pub rtt_min: Duration,
    /// See `rtt_min`.
    pub rtt_mean: Duration,
    /// The latest round trip, and how many were measured.
    pub rtt_latest: Duration,
    /// See `rtt_latest`.
    pub rtt_samples: u32,
    /// Fraction of our packets that were lost, over all time, but for those that a full queue dropped.
    pub loss: f64,
    /// Runs of our lost packets, of whatever cause.
    pub loss_runs: LossRuns,
    /// Loss rate of about the last 512 packets, and their mean burst.
    pub recent_loss: f64,
    /// See `recent_loss`.
    pub mean_burst: f64,
    /// Pace of the rate controller, bits per second.
    pub pacing_bps: u64,
    /// Bytes (IP headers included) that rate control lets be in flight now.
    pub window: u64,
    /// Times that the peer was followed to another address.
    pub moves: u64,
    /// Times that our key was renewed.
    pub key_updates: u64,
    /// Times that both ends took keys of a fresh exchange into use.
    pub fresh_keys: u64,
    /// Largest UDP payload sent.
    pub datagram_size: u16,
    /// In-order delay of the source symbols received.
    pub delay: DelayHistogram,
    /// What is done for the target that we were given, on our streams; none without one, and until enough is known of the path.
    pub plan: Option<Plan>,
}

/// Buckets per factor of two: a quantile is right within 1/16.
const PER_OCTAVE: u32 = 16;
/// Unit of the smallest bucket.
const UNIT: Duration = Duration::from_micros(16);
/// Octaves above the unit: up to 268 s.
const OCTAVES: u32 = 24;

/// Distribution of a delay: logarithmic buckets from 16 us to 268 s, 16 per factor of two; mean and maximum are exact.
#[derive(Clone, Debug)]
pub struct DelayHistogram {
    counts: Box<[u64; (PER_OCTAVE * (OCTAVES + 1)) as usize]>,
    count: u64,
    sum: Duration,
    max: Duration,
}

impl Default for DelayHistogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; (PER_OCTAVE * (OCTAVES + 1)) as usize]),
            count: 0,
            sum: Duration::ZERO,
            max: Duration::ZERO,
        }
    }
}

impl DelayHistogram {
    /// Takes one delay.
    pub fn record(&mut self, delay: Duration) {
        self.counts[bucket(delay)] += 1;
        self.count += 1;
        self.sum += delay;
        self.max = self.max.max(delay);
    }

    /// Delays recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Arithmetic mean; zero when nothing was recorded.
    pub fn mean(&self) -> Duration {
        if self.count == 0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(self.sum.as_secs_f64() / self.count as f64)
        }
    }

    /// Largest delay.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The delay that a fraction `q` of all does not exceed, to within a sixteenth; zero when nothing was recorded.
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = (q.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (upper, count) in self.buckets() {
            below += count;
            if below >= rank {
                return upper.min(self.max);
            }
        }
        Duration::ZERO
    }

    /// Upper bound and count of every bucket that is not empty, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.counts.iter().enumerate().filter(|&(_, &count)| count > 0).map(|(index, &count)| (upper(index), count))
    }

    /// Adds the delays of another.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}

/// The first 16 buckets are linear, one unit each; from there on each octave has 16.
fn bucket(delay: Duration) -> usize {
    let units = (delay.as_nanos() / UNIT.as_nanos()).min((1 << OCTAVES) - 1) as u32;
    if units < PER_OCTAVE {
        return units as usize;
    }
    let octave = units.ilog2() - PER_OCTAVE.ilog2();
    (octave * PER_OCTAVE + (units >> octave)) as usize
}

fn upper(index: usize) -> Duration {
    let index = index as u32 + 1;
    if index <= PER_OCTAVE {
        return UNIT * index;
    }
    let octave = (index - 1) / PER_OCTAVE - 1;
    UNIT * ((index - octave * PER_OCTAVE) << octave)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_delay_lies_under_the_bound_of_its_bucket_and_within_a_sixteenth() {
        for micros in (0..300_000_u64).chain((300_000..268_000_000).step_by(9_973)) {
            let delay = Duration::from_micros(micros);
            let bound = upper(bucket(delay));
            assert!(bound > delay, "{delay:?} {bound:?}");
            assert!(bound <= delay + (delay / 16).max(UNIT) + UNIT, "{delay:?} {bound:?}");
        }
    }

    #[test]
    fn quantiles_of_a_ramp() {
        let mut histogram = DelayHistogram::default();
        (1..=1_000).for_each(|ms| histogram.record(Duration::from_millis(ms)));
        assert_eq!((histogram.count(), histogram.max()), (1_000, Duration::from_millis(1_000)));
        assert!((histogram.mean().as_secs_f64() - 0.5005).abs() < 1e-9);
        for (q, ms) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let got = histogram.quantile(q).as_secs_f64() * 1e3;
            assert!((ms..=ms * 1.07).contains(&got), "{q}: {got}");
        }
    }
}
