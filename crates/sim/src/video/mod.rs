//! Video as a load: frames with sizes and times, and the playback buffer of their receiver.
//!
//! - [`FrameTrace`]: the frames, read from a text or computed: by [`Synthetic`] at a rate, by [`Matched`]
//!   with stated sizes, by [`OnOff`] as packets of a source that pauses.
//! - [`Video`]: a trace, how its sender paces it, and the rules of its playback.
//! - [`Playback`]: the receiver's buffer, in seconds of content.
//!
//! [`Load`](crate::load::Load) carries a [`Video`] in virtual time. The lab does so in real time, over our
//! stream and over kernel TCP. Invariant: nothing here has a clock, so both measure by the same rules.

use core::time::Duration;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

mod matched;
mod on_off;
mod playback;
mod synthetic;
mod trace;

pub use matched::Matched;
pub use on_off::OnOff;
pub use playback::{Content, MOST_SAMPLES, Playback, PlaybackRules, Sample, Viewing};
pub use synthetic::{Synthetic, SyntheticError};
pub use trace::{Frame, FrameTrace, FrameTraceError, LARGEST_FRAME, LATEST_FRAME, LONGEST_TEXT, MOST_FRAMES};

/// When the sender may send a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At once: all frames are there at the start, and the transport takes them as fast as it can.
    BestEffort,
    /// At its display time, as if it had just been recorded.
    Live,
}

/// A video to be carried and viewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Video {
    /// The frames.
    pub trace: Arc<FrameTrace>,
    /// When the sender may send them.
    pub pace: Pace,
    /// When the receiver plays them.
    pub rules: PlaybackRules,
}

impl Video {
    /// The frames as fast as possible, played by the default rules.
    pub fn best_effort(trace: impl Into<Arc<FrameTrace>>) -> Self {
        Self { trace: trace.into(), pace: Pace::BestEffort, rules: PlaybackRules::default() }
    }

    /// Each frame at its time, played by the default rules.
    pub fn live(trace: impl Into<Arc<FrameTrace>>) -> Self {
        Self { pace: Pace::Live, ..Self::best_effort(trace) }
    }

    /// Bytes that the sender may have sent at `at`, since the start.
    pub fn bytes_until(&self, at: Duration) -> u64 {
        match self.pace {
            Pace::BestEffort => self.trace.bytes(),
            Pace::Live => self.trace.bytes_until(at),
        }
    }

    /// When the sender may send byte number `byte` (from 0); `None` behind the last frame.
    pub fn time_of(&self, byte: u64) -> Option<Duration> {
        let at = self.trace.time_of(byte)?;
        Some(if self.pace == Pace::Live { at } else { Duration::ZERO })
    }

    /// The empty buffer of a receiver.
    pub fn playback(&self) -> Playback {
        Playback::new(Content::Trace(Arc::clone(&self.trace)), self.rules)
    }
}

impl FrameTrace {
    /// Reads the file at `path`; see [`FrameTrace::parse`].
    ///
    /// # Errors
    /// See [`UnreadTrace`].
    pub fn read(path: &Path) -> Result<Self, UnreadTrace> {
        let mut text = String::new();
        // One byte more shows that the file is too long. Its length is not asked for: a pipe has none.
        let file = File::open(path).map_err(UnreadTrace::File)?;
        file.take(LONGEST_TEXT + 1).read_to_string(&mut text).map_err(UnreadTrace::File)?;
        if text.len() as u64 > LONGEST_TEXT {
            return Err(UnreadTrace::TooLong);
        }
        Self::parse(&text).map_err(UnreadTrace::Text)
    }
}

/// Why a file gave no frame trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnreadTrace {
    /// The file cannot be read, or is not UTF-8 text.
    #[error("{0}")]
    File(io::Error),
    /// The file has more than [`LONGEST_TEXT`] bytes.
    #[error("the file has more than {LONGEST_TEXT} bytes: keep {MOST_FRAMES} frames")]
    TooLong,
    /// The text is not a frame trace.
    #[error("{0}")]
    Text(FrameTraceError),
}
