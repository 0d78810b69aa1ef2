//! Frame traces that match the published figures of a recorded one: mean, least and greatest frame.
//!
//! Experiments use it where a paper names a recorded trace by its figures only. Frames come in groups
//! `I B B P B B P B B P B B`, as encoders of that time made them. Their sizes have a lognormal distribution
//! around the mean of their kind, times a factor of the scene, which changes after some seconds. A trace
//! follows from its parameters and its seed alone. Invariant: mean, least and greatest frame are
//! exactly the stated ones, where the frames have room for that.

use core::f64::consts::TAU;
use core::time::Duration;

use super::trace::{Frame, FrameTrace, FrameTraceError};
use crate::link::random::{Purpose, Stream};

/// Frames of a group, and how large each is beside a B frame. Chosen: I : P : B = 5 : 2 : 1, common ratios of
/// MPEG-4 at this time.
const GROUP: [f64; 12] = [5.0, 1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 1.0];
/// Spread of the logarithm of frames of one kind in a scene, and of scenes. Chosen, so that the greatest
/// frame is reached by few frames only.
const SPREAD: [f64; 2] = [0.25, 0.5];
/// Frames of a scene. Chosen: four seconds at 25 frames a second.
const SCENE: u64 = 100;
/// Steps of the search for the scale; each halves an interval.
const STEPS: u32 = 60;

/// The figures of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched {
    /// Mean length of a frame in bytes.
    pub mean: u32,
    /// Length of the smallest and of the largest frame.
    pub least_most: [u32; 2],
    /// Frames per second, at least 1.
    pub frames_per_second: u32,
    /// The source of the sizes.
    pub seed: u64,
}

impl Matched {
    /// The trace of this many frames.
    ///
    /// # Errors
    /// See [`FrameTraceError`].
    pub fn trace(&self, frames: u32) -> Result<FrameTrace, FrameTraceError> {
        let weights: Vec<f64> = (0..u64::from(frames)).map(|n| self.weight(n)).collect();
        let (mut low, mut high) = (0.0, f64::from(self.least_most[1]) / weights.iter().copied().fold(1e-9, f64::min));
        for _ in 0..STEPS {
            let scale = 0.5 * (low + high);
            let sum: f64 = weights.iter().map(|weight| f64::from(self.size(scale * weight))).sum();
            if sum < f64::from(self.mean) * f64::from(frames) { low = scale } else { high = scale }
        }
        let mut sizes: Vec<u32> = weights.iter().map(|weight| self.size(low * weight)).collect();
        self.touch(&mut sizes, &weights);
        let at = |n: u64| Duration::from_nanos(n * 1_000_000_000 / u64::from(self.frames_per_second.max(1)));
        FrameTrace::new((0..).zip(sizes).map(|(n, bytes)| Frame { at: at(n), bytes }))
    }

    fn size(&self, size: f64) -> u32 {
        (size as u32).clamp(self.least_most[0], self.least_most[1])
    }

    /// Makes the frame of the greatest weight the greatest, that of the least weight the least, and spreads
    /// what is left over the others, so that the mean stays.
    fn touch(&self, sizes: &mut [u32], weights: &[f64]) {
        let by_weight = |a: &usize, b: &usize| weights[*a].total_cmp(&weights[*b]);
        let (Some(least), Some(most)) = ((0..sizes.len()).min_by(by_weight), (0..sizes.len()).max_by(by_weight)) else {
            return;
        };
        (sizes[least], sizes[most]) = (self.least_most[0], self.least_most[1]);
        let others = || (0..weights.len()).filter(|&place| place != least && place != most);
        let sum: i64 = sizes.iter().map(|&size| i64::from(size)).sum();
        let mut missing = i64::from(self.mean) * sizes.len() as i64 - sum;
        // Each round takes a byte to or from each frame that has room. What is missing is at most the
        // greatest frame, and rounding.
        for place in (0..self.least_most[1]).flat_map(|_| others()) {
            if missing == 0 {
                return;
            }
            let size = i64::from(sizes[place]) + missing.signum();
            if let Some(size) = u32::try_from(size).ok().filter(|size| self.is_between(*size)) {
                missing -= missing.signum();
                sizes[place] = size;
            }
        }
    }

    /// Whether a frame may have this size beside the least and the greatest one.
    fn is_between(&self, size: u32) -> bool {
        (self.least_most[0]..=self.least_most[1]).contains(&size)
    }

    /// The size of frame `n` beside the others.
    fn weight(&self, n: u64) -> f64 {
        let (frames, scenes) = (Stream::new(self.seed, Purpose::Video), Stream::new(self.seed, Purpose::Scenes));
        let kind = GROUP[(n % GROUP.len() as u64) as usize];
        kind * (SPREAD[0] * normal(frames, n) + SPREAD[1] * normal(scenes, n / SCENE)).exp()
    }
}

/// Draw `index` of a normal distribution (Box and Muller, 1958).
fn normal(stream: Stream, index: u64) -> f64 {
    let (radius, angle) = (1.0 - stream.unit(2 * index), stream.unit(2 * index + 1));
    (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_least_and_greatest_frame_are_the_stated_ones() {
        // Table 3 of Bhat and McNair: "Silence of the Lambs".
        for seed in 0..5 {
            let matched = Matched { mean: 2_900, least_most: [158, 22_239], frames_per_second: 25, seed };
            let trace = matched.trace(2_500).unwrap();
            let sizes = || trace.frames().iter().map(|frame| frame.bytes);
            assert_eq!((sizes().min(), sizes().max()), (Some(158), Some(22_239)));
            // 5.8e5 bit/s, and few frames near the greatest.
            assert_eq!((trace.bytes(), trace.bits_per_second()), (2_500 * 2_900, 5.8e5));
            let large = sizes().filter(|size| *size > 20_000).count();
            assert!(large < 25, "{large}");
        }
    }
}
