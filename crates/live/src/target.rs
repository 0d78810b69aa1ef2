//! The bitrate that an encoder may have: what the path carries, without what repair and headers take.
//!
//! Each session of [`super::sender`] asks for it twice a second and reports it when it has changed. While a
//! stream leaves room, the pace of rate control is up to twice what the path is known to carry. So the target
//! falls at once where a queue shows that the stream is too much, and rises slowly. Invariant: it never
//! exceeds what the median of the last paces leaves.

use std::collections::VecDeque;
use std::time::Duration;

/// Time between two reviews.
pub const REVIEW: Duration = Duration::from_millis(500);
/// Samples of the pacing rate. Chosen: rate control changes its pace for a round trip at a time, and an
/// encoder is told of half the capacity within a second and a half.
const SAMPLES: usize = 5;
/// Part of the rate that is offered. Chosen: the bitrate of an encoder is a mean.
const OFFERED: f64 = 0.9;
/// Bytes sent per byte of the stream before any was sent. Chosen: headers, and repair for a few losses.
const OVERHEAD: f64 = 1.2;
/// Bytes of the stream between two reviews that show what repair and headers take: 200 kbit/s. Chosen: beside
/// less, probes and the greeting would count as overhead of a hundred times, and the target would allow no
/// stream that could show otherwise.
const STREAM: u64 = 12_500;
/// Queueing that shows that the stream is too much: less than a quarter of the default latency. Chosen: more
/// than rate control's own probes cause.
const QUEUED: Duration = Duration::from_millis(25);
/// Part of the stream's present rate that is offered then, which lets the queue drain.
const CUT: f64 = 0.85;
/// Least part of what the pace leaves. Chosen: a path that always delays some packets must not stop the
/// encoder, and the pace is at most 2.8 times the known rate.
const LEAST: f64 = 0.3;
/// Growth from one review to the next: a doubling takes 14 s.
const RISE: f64 = 1.025;
/// A change by less than this is not reported. Chosen: encoders begin a new picture group for each.
const CHANGE: f64 = 0.1;

/// The target of one session; see the module.
#[derive(Debug, Default)]
pub struct Target {
    rates: VecDeque<u64>,
    /// Bytes on the wire and of the stream at the last review.
    seen: (u64, u64),
    overhead: Option<f64>,
    /// The target, from the first queue on until it has risen to all that the pace leaves.
    limited: Option<f64>,
    told: Option<f64>,
}

impl Target {
    /// Takes the pacing rate in bits per second, the queueing of late, and the bytes sent on the wire and for
    /// the stream so far. Returns the target in bits per second if it is worth a report.
    pub fn review(&mut self, pacing: u64, queueing: Duration, wire: u64, stream: u64) -> Option<u64> {
        let (more, of) = (wire.saturating_sub(self.seen.0), stream.saturating_sub(self.seen.1));
        self.seen = (wire, stream);
        if of >= STREAM {
            let now = (more as f64 / of as f64).max(1.0);
            self.overhead = Some(self.overhead.map_or(now, |before| (before + now) / 2.0));
        }
        if self.rates.len() == SAMPLES {
            self.rates.pop_front();
        }
        self.rates.push_back(pacing);
        let mut sorted: Vec<_> = self.rates.iter().copied().collect();
        sorted.sort_unstable();
        let rate = *sorted.get(sorted.len() / 2)?;
        let most = OFFERED * rate as f64 / self.overhead.unwrap_or(OVERHEAD);
        let carried = of as f64 * 8.0 / REVIEW.as_secs_f64();
        let risen = self.limited.map_or(most, |before| before * RISE);
        let cut = (CUT * carried).max(LEAST * most);
        let target = if queueing > QUEUED { risen.min(cut) } else { risen }.min(most);
        self.limited = (target < most).then_some(target);
        if self.told.is_some_and(|told| (target - told).abs() <= CHANGE * told) {
            return None;
        }
        self.told = Some(target);
        Some(target as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAR: Duration = Duration::from_millis(2);

    /// Reviews a stream of 6 Mbit/s, of which each byte takes 1.25 on the wire. Returns what was reported.
    fn review(target: &mut Target, paces: &[u64], queueing: Duration) -> Vec<u64> {
        let (mut wire, mut stream) = target.seen;
        let mut told = Vec::new();
        for pace in paces {
            (wire, stream) = (wire + 468_750, stream + 375_000);
            told.extend(target.review(*pace, queueing, wire, stream));
        }
        told
    }

    #[test]
    fn it_leaves_what_repair_takes_and_follows_a_slower_pace_within_three_reviews() {
        let mut target = Target::default();
        assert_eq!(review(&mut target, &[20_000_000; 8], CLEAR), [14_400_000]);
        assert_eq!(review(&mut target, &[10_000_000; 3], CLEAR), [7_200_000]);
        // A phase of the rate control, and noise.
        assert!(review(&mut target, &[10_000_000, 7_500_000, 10_300_000, 12_500_000, 9_900_000], CLEAR).is_empty());
    }

    #[test]
    fn a_queue_lowers_it_below_the_stream_at_once_and_it_comes_back_slowly() {
        let mut target = Target::default();
        review(&mut target, &[20_000_000; 5], CLEAR);
        assert_eq!(review(&mut target, &[20_000_000], QUEUED * 2), [5_100_000]);
        let told = review(&mut target, &[20_000_000; 60], CLEAR);
        assert!(told.windows(2).all(|pair| pair[0] < pair[1] && pair[1] < pair[0] * 9 / 8), "{told:?}");
        assert!(told.len() > 9 && *told.last().unwrap() > 12_500_000, "{told:?}");
    }

    #[test]
    fn queueing_that_does_not_end_leaves_a_part_of_the_pace() {
        let mut target = Target::default();
        review(&mut target, &[40_000_000; 100], QUEUED * 2);
        assert_eq!(target.limited, Some(LEAST * OFFERED * 40e6 / 1.25));
    }

    #[test]
    fn before_anything_was_sent_it_assumes_some_repair() {
        let mut target = Target::default();
        assert_eq!(target.review(120_000, CLEAR, 0, 0), Some(90_000));
        // The first pace of a connection does not hold it back.
        let told = review(&mut target, &[12_000_000; 8], CLEAR);
        assert_eq!(told.last(), Some(&8_640_000), "{told:?}");
        // The greeting and the probes of the packet size tell nothing about a stream.
        let mut target = Target::default();
        assert_eq!(target.review(12_000_000, CLEAR, 6_000, 20), Some(9_000_000));
    }
}
