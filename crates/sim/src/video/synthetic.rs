//! Frame traces that are computed: groups of one large key frame and smaller frames, at a stated bit rate.
//!
//! Scenarios and experiments use them where no recorded trace is at hand. A trace follows from its parameters
//! and its seed alone.
//!
//! What holds for the sizes, with the stated rate `r`:
//!
//! - The first n groups together have the bytes that `r` carries in their time, rounded down to a whole byte.
//! - A span as long as n groups that starts with any other frame differs from that by less than `1.1 v / n`,
//!   where `v` is the variation (at most 0.5; above that by less than `2 / n`).
//! - Any other span differs further by what it cuts off a group: less than a group.
//!
//! With the default parameters any ten seconds are within 1 % of the stated rate.

use core::time::Duration;

use super::trace::{Frame, FrameTrace, FrameTraceError, MOST_FRAMES};
use crate::link::random::{Purpose, Stream};

/// Nanoseconds of a second.
const NANOS_PER_SECOND: u128 = 1_000_000_000;
/// Maximum frames per second. Chosen: the interval is a millisecond, the resolution of recorded traces.
const MOST_FRAMES_PER_SECOND: u32 = 1_000;
/// Maximum ratio of a key frame to another frame. Chosen: ten times that of ordinary videos.
const MOST_KEY_RATIO: f64 = 100.0;
/// Maximum variation. Chosen: no frame is less than a tenth of its mean size.
const MOST_VARIATION: f64 = 0.9;

/// The parameters of a computed trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Synthetic {
    /// Mean rate in bits per second.
    pub bits_per_second: u64,
    /// Frames per second, from 1 to 1,000.
    pub frames_per_second: u32,
    /// Frames of a group. The first of them is the key frame.
    pub group: u32,
    /// Mean length of a key frame relative to the other frames, from 1 to 100.
    pub key_ratio: f64,
    /// Each frame is larger or smaller than the mean of its kind by up to this share, from 0 to 0.9.
    pub variation: f64,
    /// The source of the variation.
    pub seed: u64,
}

impl Synthetic {
    /// A video of `bits_per_second` with 30 frames per second and a key frame each second, five times as
    /// large as another frame, and a variation of 20 %. Chosen: a plain setting of encoders for streaming.
    pub const fn new(bits_per_second: u64, seed: u64) -> Self {
        Self { bits_per_second, frames_per_second: 30, group: 30, key_ratio: 5.0, variation: 0.2, seed }
    }

    /// The trace of the least number of whole groups that last for `duration`.
    ///
    /// ```
    /// use core::time::Duration;
    /// use tidewire_sim::video::Synthetic;
    ///
    /// let trace = Synthetic::new(8_000_000, 7).trace(Duration::from_secs(60))?;
    /// assert_eq!((trace.frames().len(), trace.bytes()), (1_800, 60_000_000));
    /// # Ok::<(), tidewire_sim::video::SyntheticError>(())
    /// ```
    ///
    /// # Errors
    /// See [`SyntheticError`].
    pub fn trace(&self, duration: Duration) -> Result<FrameTrace, SyntheticError> {
        self.check()?;
        let (per_second, group) = (u128::from(self.frames_per_second), u128::from(self.group));
        let groups = (duration.as_nanos() * per_second).div_ceil(group * NANOS_PER_SECOND);
        if groups * group > MOST_FRAMES as u128 {
            return Err(SyntheticError::Length { frames: groups * group });
        }
        // The bytes of the first `groups` groups. `MOST_FRAMES` bounds the product.
        let end = |groups: u128| u128::from(self.bits_per_second) * group * groups / (8 * per_second);
        let mut frames = Vec::new();
        for n in 0..groups {
            let bytes = u64::try_from(end(n + 1) - end(n)).map_err(|_| SyntheticError::FrameSize)?;
            for (index, bytes) in (n * group..).zip(self.sizes(n as u64, bytes)) {
                let nanos = index * NANOS_PER_SECOND / per_second;
                let at = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
                frames.push(Frame { at, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
            }
        }
        FrameTrace::new(frames).map_err(|error| match error {
            FrameTraceError::NoTime => SyntheticError::Length { frames: groups * group },
            _ => SyntheticError::FrameSize,
        })
    }

    fn check(&self) -> Result<(), SyntheticError> {
        let refuse = |what, allowed| Err(SyntheticError::Range { what, allowed });
        if !(1..=MOST_FRAMES_PER_SECOND).contains(&self.frames_per_second) {
            return refuse("frames_per_second", "1 to 1000");
        }
        if self.group == 0 || self.group as usize > MOST_FRAMES {
            return refuse("group", "1 to 1048576");
        }
        // A comparison with a value that is not a number is false.
        if !(1.0..=MOST_KEY_RATIO).contains(&self.key_ratio) {
            return refuse("key_ratio", "1 to 100");
        }
        if !(0.0..=MOST_VARIATION).contains(&self.variation) {
            return refuse("variation", "0 to 0.9");
        }
        Ok(())
    }

    /// Splits the bytes of group `n` among its frames. Lengths are rounded so that they add up to `bytes`.
    fn sizes(&self, n: u64, bytes: u64) -> Vec<u64> {
        let stream = Stream::new(self.seed, Purpose::Video);
        let weight = |frame: u32| {
            let mean = if frame == 0 { self.key_ratio } else { 1.0 };
            let draw = stream.unit(n * u64::from(self.group) + u64::from(frame));
            mean * (1.0 + self.variation * (2.0 * draw - 1.0))
        };
        let weights: Vec<f64> = (0..self.group).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let (mut share, mut before) = (0.0, 0);
        let mut sizes = Vec::with_capacity(weights.len());
        for (index, weight) in weights.iter().enumerate() {
            share += weight / sum;
            let is_last = index + 1 == weights.len();
            let end = if is_last { bytes } else { ((share * bytes as f64) as u64).clamp(before, bytes) };
            sizes.push(end - before);
            before = end;
        }
        sizes
    }
}

/// Why there is no trace with these parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SyntheticError {
    /// A parameter is out of its range.
    #[error("{what} is out of range (allowed: {allowed})")]
    Range {
        /// The parameter.
        what: &'static str,
        /// Its range.
        allowed: &'static str,
    },
    /// The video has fewer than two frames, or more than [`MOST_FRAMES`].
    #[error("the video would have {frames} frames: choose a time with 2 to {MOST_FRAMES} frames")]
    Length {
        /// The number of frames.
        frames: u128,
    },
    /// A frame would be empty, or longer than [`LARGEST_FRAME`](super::LARGEST_FRAME).
    #[error("a frame would have no byte or more than 64 MiB: choose a rate that fits the frames per second")]
    FrameSize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The largest relative difference from the stated rate over all spans of `frames` frames.
    fn off(synthetic: &Synthetic, trace: &FrameTrace, frames: usize) -> f64 {
        let sizes: Vec<f64> = trace.frames().iter().map(|frame| f64::from(frame.bytes)).collect();
        let per_frame = synthetic.bits_per_second as f64 / 8.0 / f64::from(synthetic.frames_per_second);
        let spans = sizes.windows(frames).map(|span| span.iter().sum::<f64>() / (per_frame * frames as f64) - 1.0);
        spans.map(f64::abs).fold(0.0, f64::max)
    }

    #[test]
    fn any_ten_seconds_have_the_stated_rate_within_one_percent() {
        for seed in 0..20 {
            let synthetic = Synthetic::new(20_000_000, seed);
            let trace = synthetic.trace(Duration::from_secs(120)).unwrap();
            let (ten, odd) = (off(&synthetic, &trace, 300), off(&synthetic, &trace, 315));
            assert!(ten < 0.01, "seed {seed}: {ten}");
            // Half a group is cut off. A key frame is 5 of 34 parts of a group.
            assert!(odd < 0.02, "seed {seed}: {odd}");
            assert_eq!((trace.bytes(), trace.duration()), (300_000_000, Duration::from_secs(120)));
        }
    }

    #[test]
    fn key_frames_are_larger_and_the_seed_decides_the_rest() {
        let synthetic = Synthetic { variation: 0.0, ..Synthetic::new(8_160_000, 1) };
        let sizes = |synthetic: &Synthetic| {
            let trace = synthetic.trace(Duration::from_millis(1_500)).unwrap();
            trace.frames().iter().map(|frame| frame.bytes).collect::<Vec<_>>()
        };
        // A million bytes and 20,000 in 34 parts, and two whole groups although one and a half were asked
        // for.
        let group = [&[150_000][..], &[30_000; 29]].concat();
        let even = sizes(&synthetic);
        assert_eq!(even.len(), 60);
        assert!(even.iter().zip(group.iter().cycle()).all(|(got, want)| got.abs_diff(*want) <= 1), "{even:?}");
        let uneven = Synthetic { variation: 0.3, ..synthetic };
        assert_eq!(sizes(&uneven), sizes(&uneven));
        assert_ne!(sizes(&uneven), sizes(&Synthetic { seed: 2, ..uneven }));
        assert!(sizes(&uneven).iter().zip(&even).all(|(a, b)| (f64::from(*a) / f64::from(*b) - 1.0).abs() < 0.6));
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let good = Synthetic::new(1_000_000, 1);
        let refused = |synthetic: Synthetic, seconds| synthetic.trace(Duration::from_secs(seconds)).unwrap_err();
        let what = |synthetic| match refused(synthetic, 10) {
            SyntheticError::Range { what, .. } => what,
            other => panic!("{other}"),
        };
        assert_eq!(what(Synthetic { frames_per_second: 0, ..good }), "frames_per_second");
        assert_eq!(what(Synthetic { frames_per_second: 1_001, ..good }), "frames_per_second");
        assert_eq!(what(Synthetic { group: 0, ..good }), "group");
        assert_eq!(what(Synthetic { key_ratio: 0.5, ..good }), "key_ratio");
        assert_eq!(what(Synthetic { key_ratio: f64::NAN, ..good }), "key_ratio");
        assert_eq!(what(Synthetic { variation: 0.91, ..good }), "variation");
        assert_eq!(refused(good, 0), SyntheticError::Length { frames: 0 });
        assert_eq!(refused(good, u64::MAX), SyntheticError::Length { frames: 553_402_322_211_286_548_450 });
        assert_eq!(refused(Synthetic { bits_per_second: 100, ..good }, 10), SyntheticError::FrameSize);
        assert_eq!(refused(Synthetic { bits_per_second: u64::MAX, ..good }, 10), SyntheticError::FrameSize);
        assert_eq!(refused(Synthetic { group: 1, ..good }, 0), SyntheticError::Length { frames: 0 });
    }

    proptest! {
        #[test]
        fn whole_groups_are_exact_and_spans_as_long_keep_their_bound(
            bits_per_second in 1_000_000..100_000_000u64,
            frames_per_second in 10..120u32,
            group in 1..60u32,
            key_ratio in 1.0..20.0,
            variation in 0.0..0.5,
            seed: u64,
        ) {
            let synthetic = Synthetic { bits_per_second, frames_per_second, group, key_ratio, variation, seed };
            let group_time = Duration::from_secs_f64(f64::from(group) / f64::from(frames_per_second));
            let trace = synthetic.trace(group_time * 20).unwrap();
            let groups = trace.frames().len() as u64 / u64::from(group);
            prop_assert!((20..=21).contains(&groups));
            for n in 1..=groups {
                let frames = &trace.frames()[..(n * u64::from(group)) as usize];
                let exact = u128::from(bits_per_second) * u128::from(n * u64::from(group)) / u128::from(8 * frames_per_second);
                prop_assert_eq!(frames.iter().map(|frame| u128::from(frame.bytes)).sum::<u128>(), exact);
            }
            // A frame is rounded by a byte, and so is a group.
            let rounding = 4.0 * 8.0 * f64::from(frames_per_second) / (bits_per_second as f64 * f64::from(group));
            for n in [1, 5, 10] {
                let off = off(&synthetic, &trace, (n * group) as usize);
                prop_assert!(off <= 1.1 * variation / f64::from(n) + rounding, "{} groups: {}", n, off);
            }
        }
    }
}
