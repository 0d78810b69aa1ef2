//! The bitrate that an encoder may have: what the path carries, without what repair and headers take.
//!
//! Each session of [`super::sender`] asks for it twice a second and reports it when it has changed.
//! Invariant: it is the median of some samples, so one phase of the rate control does not move it.

use std::collections::VecDeque;

/// Time between two samples.
pub const REVIEW: std::time::Duration = std::time::Duration::from_millis(500);
/// Samples of the pacing rate. Chosen: rate control changes its pace for a round trip at a time, and an
/// encoder is told of half the capacity within a second and a half.
const SAMPLES: usize = 5;
/// Part of the rate that is offered. Chosen: the bitrate of an encoder is a mean.
const OFFERED: f64 = 0.9;
/// Bytes sent per byte of the stream before any was sent. Chosen: headers, and repair for a few losses.
const OVERHEAD: f64 = 1.2;
/// A change by less than this is not reported. Chosen: encoders begin a new picture group for each.
const CHANGE: f64 = 0.1;

/// The target of one session; see the module.
#[derive(Debug, Default)]
pub struct Target {
    rates: VecDeque<u64>,
    /// Bytes on the wire and of the stream at the last review.
    seen: (u64, u64),
    overhead: Option<f64>,
    told: Option<f64>,
}

impl Target {
    /// Takes the pacing rate in bits per second, and the bytes sent on the wire and for the stream so far.
    /// Returns the target in bits per second if it is worth a report.
    pub fn review(&mut self, pacing: u64, wire: u64, stream: u64) -> Option<u64> {
        let (more, of) = (wire.saturating_sub(self.seen.0), stream.saturating_sub(self.seen.1));
        self.seen = (wire, stream);
        if of > 0 {
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
        let target = OFFERED * rate as f64 / self.overhead.unwrap_or(OVERHEAD);
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

    /// Reviews a stream of 6 Mbit/s, of which each byte takes 1.25 on the wire. Returns what was reported.
    fn review(target: &mut Target, paces: &[u64]) -> Vec<u64> {
        let (mut wire, mut stream) = target.seen;
        let mut told = Vec::new();
        for pace in paces {
            (wire, stream) = (wire + 468_750, stream + 375_000);
            told.extend(target.review(*pace, wire, stream));
        }
        told
    }

    #[test]
    fn it_leaves_what_repair_takes_and_follows_a_fall_within_three_reviews() {
        let mut target = Target::default();
        assert_eq!(review(&mut target, &[20_000_000; 8]), [14_400_000]);
        assert_eq!(review(&mut target, &[10_000_000; 3]), [7_200_000]);
        // A phase of the rate control, and noise.
        assert_eq!(review(&mut target, &[10_000_000, 7_500_000, 10_300_000, 12_500_000, 9_900_000]), [0; 0]);
    }

    #[test]
    fn before_anything_was_sent_it_assumes_some_repair() {
        assert_eq!(Target::default().review(12_000_000, 0, 0), Some(9_000_000));
    }
}
