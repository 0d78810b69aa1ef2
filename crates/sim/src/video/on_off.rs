//! A source that is on and off, as the on-off application of ns-3: packets at a constant interval while it is
//! on, nothing while it is off.
//!
//! Experiments use it as video of a variable bit rate. Each packet is a frame of the trace, so its latency is
//! measured alone. A trace follows from its parameters and its seed alone.

use core::time::Duration;

use super::trace::{Frame, FrameTrace, FrameTraceError};
use crate::link::random::{Purpose, Stream};

/// The parameters of a source that pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnOff {
    /// Mean rate in bits per second, pauses included.
    pub bits_per_second: u64,
    /// Lengths of packets, uniform from the first to the second.
    pub bytes: [u32; 2],
    /// Mean times on and off. Both are distributed exponentially.
    pub on_off: [Duration; 2],
    /// The source of the lengths and times.
    pub seed: u64,
}

impl OnOff {
    /// The packets of `duration`.
    ///
    /// # Errors
    /// See [`FrameTraceError`].
    pub fn trace(&self, duration: Duration) -> Result<FrameTrace, FrameTraceError> {
        let [on, off] = self.on_off.map(|mean| mean.as_secs_f64());
        let mean_bits = 4.0 * (f64::from(self.bytes[0]) + f64::from(self.bytes[1]));
        let every = mean_bits * on / ((on + off) * self.bits_per_second as f64).max(f64::MIN_POSITIVE);
        let (sizes, times) = (Stream::new(self.seed, Purpose::Video), Stream::new(self.seed, Purpose::Scenes));
        let span = u64::from(self.bytes[1].saturating_sub(self.bytes[0]));
        let mut frames = Vec::new();
        let (mut at, mut turn) = (0.0, 0);
        while at < duration.as_secs_f64() {
            // `unit` is below 1, so the logarithm is finite.
            let draw = |index| -(1.0 - times.unit(index)).ln();
            let end = at + on * draw(2 * turn);
            while at < end.min(duration.as_secs_f64()) {
                let more = sizes.up_to(frames.len() as u64, Duration::from_nanos(span));
                let bytes = self.bytes[0].saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
                frames.push(Frame { at: Duration::from_secs_f64(at), bytes });
                at += every;
            }
            at = at.max(end) + off * draw(2 * turn + 1);
            turn += 1;
        }
        FrameTrace::new(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_lengths_and_pauses_are_as_stated() {
        let on_off = [Duration::from_millis(600), Duration::from_millis(400)];
        for seed in 0..5 {
            let source = OnOff { bits_per_second: 1_000_000, bytes: [512, 1_472], on_off, seed };
            let trace = source.trace(Duration::from_secs(600)).unwrap();
            // Some 600 turns with a spread of 1 of their mean: 10 % is more than two sigma.
            assert!((trace.bits_per_second() / 1e6 - 1.0).abs() < 0.1, "{}", trace.bits_per_second());
            let sizes = || trace.frames().iter().map(|frame| frame.bytes);
            assert_eq!((sizes().min(), sizes().max()), (Some(512), Some(1_472)));
            // 992 bytes at 1 / 0.6 Mbit/s take 4.76 ms; a turn has 126 of them.
            let gaps = trace.frames().windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs_f64());
            let pauses = gaps.filter(|gap| (gap * 1e3 - 4.7616).abs() > 0.01).count();
            assert!((450..750).contains(&pauses), "{pauses}");
            assert_eq!(source.trace(Duration::from_secs(600)), Ok(trace));
        }
    }
}
