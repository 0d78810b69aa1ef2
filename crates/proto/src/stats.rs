//! Statistics: counts whose parts add up, and the distribution of in-order delay.
//!
//! Every report (text, JSON, later metrics) reads these, so reports cannot contradict each other.

use core::time::Duration;

use crate::counts::add_counts;
pub use crate::path::{FloorStats, LossRuns};
use crate::redundancy::Plan;

/// Packets of one connection, as counted by this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketStats {
    /// Packets sent: `source + repair + feedback_repair + recoded + control`.
    pub sent: u64,
    /// Sent with a source symbol for the first time, or with a part of a symbol that is longer than the path
    /// MTU allows.
    pub source: u64,
    /// Sent with a proactive repair, before any deficit was known.
    pub repair: u64,
    /// Sent in answer to a deficit or a loss: a repair, or a retransmitted source symbol.
    pub feedback_repair: u64,
    /// Sent with a combination of the relayed lane.
    pub recoded: u64,
    /// Sent with control frames only.
    pub control: u64,
    /// Authentic packets received.
    pub received: u64,
    /// Received symbols that did not raise the decoder's rank.
    pub redundant: u64,
    /// Sent packets that were acknowledged, including those that were declared lost before.
    pub acked: u64,
    /// Sent packets that were declared lost and not acknowledged later, without those of
    /// [`LossStats::at_own_rate`].
    pub lost: u64,
    /// Sent packets that the system refused to send. They count as lost.
    pub refused: u64,
    /// Datagrams for this connection that were not authentic, or were duplicates.
    pub dropped: u64,
    /// Those of `dropped` that looked like packets of this session, and were forged or repeated.
    pub refused_tags: u64,
    /// Received packets that arrived after a packet that was sent later (RFC 4737 section 3.3).
    pub reordered: u64,
    /// Largest reordering, in packet numbers: the packet threshold that a sender needs to tolerate it (RFC
    /// 9002 section 6.1.1).
    pub reordering_depth: u64,
}

/// Source symbols delivered by this end: `delivered = direct + repaired + resent`. Only message lanes have
/// expired symbols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SymbolStats {
    /// Delivered in order.
    pub delivered: u64,
    /// Received in their first transmission.
    pub direct: u64,
    /// Computed from repair symbols.
    pub repaired: u64,
    /// Received in a retransmission, or in parts.
    pub resent: u64,
    /// Given up because their deadline passed.
    pub expired: u64,
    /// Empty symbols that this end sent to fill blocks of a fixed length.
    pub padding: u64,
}

add_counts!(SymbolStats { delivered, direct, repaired, resent, expired, padding });

/// Messages with deadlines, both ours and the peer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageStats {
    /// Our messages accepted for sending.
    pub sent: u64,
    /// Our messages whose deadline passed before the peer was known to have them.
    pub expired: u64,
    /// Source symbols of expired messages that the peer was not known to have.
    pub expired_symbols: u64,
    /// Messages of the peer that were received completely and kept for the application.
    pub delivered: u64,
    /// Messages of the peer that lost a part, or that were not read before newer ones needed their room.
    pub dropped: u64,
}

/// Bytes of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ByteStats {
    /// Sent on the wire, IP and UDP headers included.
    pub wire_sent: u64,
    /// Received on the wire, IP and UDP headers included.
    pub wire_received: u64,
    /// Bytes of streams and messages accepted from the application.
    pub app_sent: u64,
    /// Bytes of streams and messages given to the application.
    pub app_received: u64,
}

/// Round trips of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RttStats {
    /// The least; zero before the first sample.
    pub least: Duration,
    /// Arithmetic mean; zero before the first sample.
    pub mean: Duration,
    /// The latest; zero before the first sample.
    pub latest: Duration,
    /// Number of round trips measured.
    pub samples: u32,
}

/// Losses of our packets.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LossStats {
    /// Fraction of our packets that the medium lost, over all time: of those whose fate became known while
    /// the rate controller did not hold the path congested.
    pub rate: f64,
    /// Loss rate of about the last 512 packets.
    pub recent: f64,
    /// Mean length of a run of losses among about the last 512 packets.
    pub mean_burst: f64,
    /// Runs of our lost packets, without those of `at_own_rate`.
    pub runs: LossRuns,
    /// What was dropped at our own rate, which none of the figures above contains.
    pub at_own_rate: AtOwnRate,
    /// What the floor of sanity did (docs/recovery.md section 2).
    pub floor: FloorStats,
}

/// Our packets that were dropped at our own rate: declared lost while the rate controller held the path
/// congested ([`crate::path::RateController::is_congested`]). The bottleneck dropped them, not the medium. A
/// packet that arrives after all is taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AtOwnRate {
    /// Number of these packets.
    pub packets: u64,
    /// Their bytes, IP and UDP headers included.
    pub bytes: u64,
}

impl AtOwnRate {
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    pub(crate) fn take_back(&mut self, bytes: u32) {
        self.packets -= 1;
        self.bytes -= u64::from(bytes);
    }
}

/// What the rate controller allows now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateStats {
    /// Name of its phase; empty for a controller without phases.
    pub state: &'static str,
    /// Pace in bits per second.
    pub pacing_bps: u64,
    /// Bytes that may be in flight, IP headers included.
    pub window: u64,
}

/// All statistics of a connection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// True if this end listens and codes as its peer asked.
    pub policy_followed: bool,
    /// Packet counts.
    pub packets: PacketStats,
    /// Counts of source symbols received.
    pub symbols: SymbolStats,
    /// Message counts.
    pub messages: MessageStats,
    /// Byte counts.
    pub bytes: ByteStats,
    /// Round trips.
    pub rtt: RttStats,
    /// Losses.
    pub loss: LossStats,
    /// Rate control.
    pub rate: RateStats,
    /// Number of times that this end followed the peer to another address.
    pub moves: u64,
    /// Number of times that our key was renewed.
    pub key_updates: u64,
    /// Number of times that both ends took fresh keys into use.
    pub fresh_keys: u64,
    /// Largest UDP payload sent.
    pub datagram_size: u16,
    /// In-order delay of the source symbols received.
    pub delay: DelayHistogram,
    /// How the target is met on our streams. `None` without a target, and until enough is known about the
    /// path.
    pub plan: Option<Plan>,
}

/// Number of buckets per factor of two. A quantile is exact to 1/16.
const PER_OCTAVE: u32 = 16;
/// Unit of the smallest bucket.
const UNIT: Duration = Duration::from_micros(16);
/// Octaves above the unit: up to 268 s.
const OCTAVES: u32 = 24;

/// Distribution of a delay, in logarithmic buckets from 16 us to 268 s, 16 per factor of two. Mean and
/// maximum are exact.
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
    /// Adds one delay.
    pub fn record(&mut self, delay: Duration) {
        self.counts[bucket(delay)] += 1;
        self.count += 1;
        self.sum += delay;
        self.max = self.max.max(delay);
    }

    /// Number of delays recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Arithmetic mean; zero if nothing was recorded.
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

    /// The delay that a fraction `q` of all delays does not exceed, exact to a sixteenth; zero if nothing was
    /// recorded.
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

    /// Upper bound and count of every bucket that is not empty, in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.counts.iter().enumerate().filter(|&(_, &count)| count > 0).map(|(index, &count)| (upper(index), count))
    }

    /// Adds the delays of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}

/// The first 16 buckets are linear, one unit each. Above them, each octave has 16 buckets.
fn bucket(delay: Duration) -> usize {
    // Not in `u128`, whose division is slow; 2^64 ns lie beyond the last bucket.
    let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    let units = (nanos / UNIT.as_nanos() as u64).min((1 << OCTAVES) - 1) as u32;
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
