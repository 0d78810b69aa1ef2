//! A trace of video frames: the size and the display time of each frame.
//!
//! Experiments read a recorded trace from its text form, or make one with [`Synthetic`](super::Synthetic).
//! [`Video`](super::Video) asks the trace when a byte is due, and [`Playback`](super::Playback) asks how much
//! content the received bytes are. Invariants: a trace has at least two frames and at most [`MOST_FRAMES`],
//! the first frame is displayed at zero, the times do not descend, and the last time is above zero.

use core::fmt;
use core::ops::Range;
use core::time::Duration;

/// Maximum number of frames. Chosen: almost five hours at 60 frames per second, in 32 MiB of memory.
pub const MOST_FRAMES: usize = 1 << 20;
/// Maximum length of a frame in bytes. Chosen: more than an uncompressed picture of 4,096 x 2,160 pixels with
/// three samples of 16 bits each.
pub const LARGEST_FRAME: u32 = 1 << 26;
/// Latest time of a frame. Chosen: a week.
pub const LATEST_FRAME: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Maximum length of the text form in bytes: 64 bytes for each of [`MOST_FRAMES`] lines. Chosen: a line of
/// the longest numbers has 25 characters, and the rest is for comments.
pub const LONGEST_TEXT: u64 = 64 * MOST_FRAMES as u64;

/// Digits behind the point of a time in milliseconds: nanoseconds.
const DIGITS: usize = 6;
/// Nanoseconds of a millisecond.
const NANOS_PER_MILLI: u64 = 1_000_000;

/// One video frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When the frame is displayed, since the first frame.
    pub at: Duration,
    /// Length in bytes.
    pub bytes: u32,
}

/// The frames of a video, in the order in which they are sent and displayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameTrace {
    frames: Vec<Frame>,
    /// For each frame, the bytes of all frames up to its end.
    ends: Vec<u64>,
}

impl FrameTrace {
    /// A trace of these frames. Times count from the first frame.
    ///
    /// # Errors
    /// See [`FrameTraceError`]. A fault of the n-th frame is reported as line n, its line in the text form.
    pub fn new(frames: impl IntoIterator<Item = Frame>) -> Result<Self, FrameTraceError> {
        let mut builder = Builder::default();
        for (line, frame) in (1..).zip(frames) {
            builder.push(line, frame)?;
        }
        builder.build()
    }

    /// Parses the text form: one line for each frame, with its display time in milliseconds and its length in
    /// bytes.
    ///
    /// A time has at most six digits behind the point. Text behind a `#` is a comment, and empty lines are
    /// skipped. Times count from the first frame.
    ///
    /// ```
    /// use tidewire_sim::video::FrameTrace;
    ///
    /// let trace = FrameTrace::parse("# 30 frames per second\n0 9000\n33.333333 1500\n66.666666 1700\n")?;
    /// assert_eq!((trace.frames().len(), trace.bytes()), (3, 12_200));
    /// let error = FrameTrace::parse("0 9000\n40\n").unwrap_err();
    /// assert!(error.to_string().starts_with("line 2 is not a time in milliseconds and a number of bytes"));
    /// # Ok::<(), tidewire_sim::video::FrameTraceError>(())
    /// ```
    ///
    /// # Errors
    /// See [`FrameTraceError`].
    pub fn parse(text: &str) -> Result<Self, FrameTraceError> {
        let mut builder = Builder::default();
        for (line, whole) in (1..).zip(text.lines()) {
            let content = whole.split('#').next().unwrap_or_default();
            let mut words = content.split_whitespace();
            let (time, bytes) = match (words.next(), words.next(), words.next()) {
                (None, ..) => continue,
                (Some(time), Some(bytes), None) => (time, bytes),
                _ => return Err(FrameTraceError::NotAFrame { line }),
            };
            let at = parse_millis(time).ok_or(FrameTraceError::Time { line })?;
            let bytes = bytes.parse().map_err(|_| FrameTraceError::Bytes { line })?;
            builder.push(line, Frame { at, bytes })?;
        }
        builder.build()
    }

    /// The frames.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Number of bytes of all frames.
    pub fn bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Duration of the content. The last frame lasts as long as the mean interval between two frames.
    pub fn duration(&self) -> Duration {
        let last = self.frames.last().map_or(Duration::ZERO, |frame| frame.at);
        let intervals = self.frames.len().saturating_sub(1).max(1) as u128;
        // Rounded up: thirty frames per second at times that were rounded down are a whole number of seconds.
        let mean = last.as_nanos().div_ceil(intervals);
        last.saturating_add(Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// Mean rate in bits per second over [`Self::duration`].
    pub fn bits_per_second(&self) -> f64 {
        8.0 * self.bytes() as f64 / self.duration().as_secs_f64()
    }

    /// The content time that the first `bytes` bytes hold: they hold a frame when they hold all of its bytes,
    /// and they play until the first frame that they do not hold.
    pub fn content(&self, bytes: u64) -> Duration {
        self.frames.get(self.whole_frames(bytes)).map_or_else(|| self.duration(), |frame| frame.at)
    }

    /// Bytes of all frames that are displayed at `at` or before.
    pub fn bytes_until(&self, at: Duration) -> u64 {
        let frames = self.frames.partition_point(|frame| frame.at <= at);
        frames.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// When the frame with byte number `byte` (from 0) is displayed; `None` behind the last frame.
    pub fn time_of(&self, byte: u64) -> Option<Duration> {
        self.frames.get(self.whole_frames(byte)).map(|frame| frame.at)
    }

    /// The frames that become complete when the received bytes grow from `before` to `after`.
    pub fn completed(&self, before: u64, after: u64) -> Range<usize> {
        self.whole_frames(before)..self.whole_frames(after)
    }

    /// Number of frames that end within the first `bytes` bytes.
    fn whole_frames(&self, bytes: u64) -> usize {
        self.ends.partition_point(|&end| end <= bytes)
    }
}

/// Writes the text form that [`FrameTrace::parse`] reads.
impl fmt::Display for FrameTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for frame in &self.frames {
            write!(f, "{}", frame.at.as_millis())?;
            let nanos = u64::from(frame.at.subsec_nanos()) % NANOS_PER_MILLI;
            if nanos > 0 {
                write!(f, ".{}", format!("{nanos:0DIGITS$}").trim_end_matches('0'))?;
            }
            writeln!(f, " {}", frame.bytes)?;
        }
        Ok(())
    }
}

/// A trace that is being made.
#[derive(Debug, Default)]
struct Builder {
    first: Option<Duration>,
    frames: Vec<Frame>,
    ends: Vec<u64>,
}

impl Builder {
    fn push(&mut self, line: usize, Frame { at, bytes }: Frame) -> Result<(), FrameTraceError> {
        if at > LATEST_FRAME {
            return Err(FrameTraceError::Time { line });
        }
        if bytes == 0 || bytes > LARGEST_FRAME {
            return Err(FrameTraceError::Bytes { line });
        }
        if self.frames.len() == MOST_FRAMES {
            return Err(FrameTraceError::TooMany { line });
        }
        let since_first = at.checked_sub(*self.first.get_or_insert(at));
        let last = self.frames.last().map_or(Duration::ZERO, |frame| frame.at);
        let at = since_first.filter(|&at| at >= last).ok_or(FrameTraceError::BackInTime { line })?;
        // 2^20 frames of 2^26 bytes fit.
        let end = self.ends.last().copied().unwrap_or(0) + u64::from(bytes);
        self.frames.push(Frame { at, bytes });
        self.ends.push(end);
        Ok(())
    }

    fn build(self) -> Result<FrameTrace, FrameTraceError> {
        match self.frames.last() {
            Some(last) if !last.at.is_zero() => Ok(FrameTrace { frames: self.frames, ends: self.ends }),
            _ => Err(FrameTraceError::NoTime),
        }
    }
}

/// Parses milliseconds with at most six digits behind the point, exactly.
fn parse_millis(text: &str) -> Option<Duration> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(part) || part.len() > DIGITS {
        return None;
    }
    let nanos: u64 = format!("{part:0<DIGITS$}").parse().ok()?;
    let millis: u64 = whole.parse().ok()?;
    Some(Duration::from_nanos(millis.checked_mul(NANOS_PER_MILLI)?.checked_add(nanos)?))
}

/// Why a text is not a frame trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameTraceError {
    /// A line does not consist of two values.
    #[error("line {line} is not a time in milliseconds and a number of bytes, such as 33.3 4200")]
    NotAFrame {
        /// The number of the line, from 1.
        line: usize,
    },
    /// A time is not a number of milliseconds, or is above [`LATEST_FRAME`].
    #[error("line {line} does not begin with a time from 0 to {} ms with at most six digits behind the point", LATEST_FRAME.as_millis())]
    Time {
        /// The number of the line, from 1.
        line: usize,
    },
    /// A length is not a whole number from 1 to [`LARGEST_FRAME`].
    #[error("line {line} does not end with a whole number of bytes from 1 to {LARGEST_FRAME}")]
    Bytes {
        /// The number of the line, from 1.
        line: usize,
    },
    /// A frame has an earlier time than the frame before.
    #[error("line {line} lies before the frame above it: sort the times")]
    BackInTime {
        /// The number of the line, from 1.
        line: usize,
    },
    /// There are more than [`MOST_FRAMES`] frames.
    #[error("line {line} is frame {}: keep {MOST_FRAMES} frames", MOST_FRAMES + 1)]
    TooMany {
        /// The number of the line of the first frame that is too many.
        line: usize,
    },
    /// There are no two frames with different times, so the trace has no rate.
    #[error("a frame trace needs at least two frames with different times")]
    NoTime,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn lines_are_frames_and_times_count_from_the_first() {
        let text = "# made by hand\n\n  1000 300 # key frame\n1033.333333\t100\r\n1040 50\n1040 25\n";
        let trace = FrameTrace::parse(text).unwrap();
        let times: Vec<u64> = trace.frames().iter().map(|frame| frame.at.as_nanos() as u64).collect();
        assert_eq!(times, [0, 33_333_333, 40_000_000, 40_000_000]);
        assert_eq!(trace.bytes(), 475);
        // 40 ms and the mean of three intervals.
        assert_eq!(trace.duration(), Duration::from_nanos(53_333_334));
        assert_eq!(trace.bits_per_second().round(), 71_250.0);
    }

    #[test]
    fn bytes_and_times_are_mapped_at_the_edges_of_frames() {
        let trace = FrameTrace::parse("0 300\n40 100\n80 50\n").unwrap();
        let content = |bytes| trace.content(bytes).as_millis();
        assert_eq!([0, 299, 300, 399, 400, 449, 450, 1 << 60].map(content), [0, 0, 40, 40, 80, 80, 120, 120]);
        assert_eq!([0, 39, 40, 80, 1_000].map(|at| trace.bytes_until(ms(at))), [300, 300, 400, 450, 450]);
        assert_eq!([0, 299, 300, 449].map(|byte| trace.time_of(byte)), [0, 0, 40, 80].map(|at| Some(ms(at))));
        assert_eq!(trace.time_of(450), None);
        assert_eq!([trace.completed(0, 299), trace.completed(299, 400), trace.completed(400, 450)], [0..0, 0..2, 2..3]);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        for (text, error) in [
            ("0 100\n40\n", FrameTraceError::NotAFrame { line: 2 }),
            ("0 100\n40 100 key\n", FrameTraceError::NotAFrame { line: 2 }),
            ("0 100\n# x\n-1 100\n", FrameTraceError::Time { line: 3 }),
            ("0 100\n1.1234567 100\n", FrameTraceError::Time { line: 2 }),
            ("0 100\n.5 100\n", FrameTraceError::Time { line: 2 }),
            ("0 100\n5. 100\n", FrameTraceError::Time { line: 2 }),
            ("0 100\n604800001 100\n", FrameTraceError::Time { line: 2 }),
            ("0 100\n99999999999999999999 100\n", FrameTraceError::Time { line: 2 }),
            ("0 100\n18446744073709551615 100\n", FrameTraceError::Time { line: 2 }),
            ("0 100\n1e3 100\n", FrameTraceError::Time { line: 2 }),
            ("0 0\n", FrameTraceError::Bytes { line: 1 }),
            ("0 67108865\n", FrameTraceError::Bytes { line: 1 }),
            ("0 -5\n", FrameTraceError::Bytes { line: 1 }),
            ("0 99999999999999\n", FrameTraceError::Bytes { line: 1 }),
            ("5 100\n4 100\n", FrameTraceError::BackInTime { line: 2 }),
            ("5 100\n7 100\n6 100\n", FrameTraceError::BackInTime { line: 3 }),
            ("", FrameTraceError::NoTime),
            ("0 100\n", FrameTraceError::NoTime),
            ("0 100\n0 100\n", FrameTraceError::NoTime),
        ] {
            assert_eq!(FrameTrace::parse(text), Err(error), "{text}");
        }
        assert_eq!(
            FrameTraceError::Time { line: 3 }.to_string(),
            "line 3 does not begin with a time from 0 to 604800000 ms with at most six digits behind the point"
        );
    }

    #[test]
    fn a_trace_is_bounded() {
        let frame = |n| Frame { at: ms(n), bytes: 1 };
        let most = MOST_FRAMES as u64;
        assert!(FrameTrace::new((0..most).map(frame)).is_ok());
        assert_eq!(FrameTrace::new((0..).map(frame)), Err(FrameTraceError::TooMany { line: MOST_FRAMES + 1 }));
    }

    proptest! {
        #[test]
        fn the_text_form_is_read_as_it_was_written(
            gaps in prop::collection::vec((0..100_000_000u64, 1..=LARGEST_FRAME), 1..50),
        ) {
            let mut at = Duration::ZERO;
            let frames = gaps.iter().map(|&(gap, bytes)| {
                at += Duration::from_nanos(gap);
                Frame { at, bytes }
            });
            if let Ok(trace) = FrameTrace::new(frames.collect::<Vec<_>>()) {
                prop_assert_eq!(FrameTrace::parse(&trace.to_string()), Ok(trace));
            }
        }

        #[test]
        fn no_text_causes_a_panic(text in "[0-9 .#a\n-]{0,200}") {
            let _ = FrameTrace::parse(&text);
        }
    }
}
