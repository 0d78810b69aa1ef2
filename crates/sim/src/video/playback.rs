//! The playback buffer of a receiver of video: how many seconds of content it holds, and when it runs empty.
//!
//! The readers of [`Load`](crate::load::Load) and of the lab tell it about arriving bytes. It has no clock:
//! each call carries the time since the start of the video's transfer. A time before an earlier one counts as
//! the earlier one. Playing takes one second of content each second. Invariants: the content that was played
//! and the content that is buffered add up to the content that was received; after its start, playback stands
//! still only while the buffer is empty or holds less than it resumes with; memory is bounded by
//! [`MOST_SAMPLES`].

use core::time::Duration;
use std::sync::Arc;

use super::FrameTrace;

/// Maximum number of samples that a playback keeps. When it has as many, it drops every second one and
/// doubles their interval. Chosen: a figure has fewer columns.
pub const MOST_SAMPLES: usize = 4_096;
/// Least interval of samples. Chosen: a clock of milliseconds is as fine.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);

/// How bytes become content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Each second of content has this many bits. The end is not known before [`Playback::finish`].
    Rate {
        /// Bits per second; 0 counts as 1.
        bits_per_second: u64,
    },
    /// Content comes in whole frames and ends with the last of them.
    Trace(Arc<FrameTrace>),
}

impl Content {
    /// The content time of the first `bytes` bytes.
    fn time(&self, bytes: u64) -> Duration {
        match self {
            Self::Rate { bits_per_second } => {
                let nanos = u128::from(bytes) * 8_000_000_000 / u128::from((*bits_per_second).max(1));
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
            Self::Trace(trace) => trace.content(bytes),
        }
    }

    /// Whether there is no more content after the first `bytes` bytes.
    fn is_whole(&self, bytes: u64) -> bool {
        match self {
            Self::Rate { .. } => false,
            Self::Trace(trace) => bytes >= trace.bytes(),
        }
    }
}

/// When playback starts and resumes, and how often the buffer is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaybackRules {
    /// Playback starts when the buffer holds this much content, or all of it.
    pub startup: Duration,
    /// After a stall, playback resumes when the buffer holds this much content, or all that is left.
    pub resume: Duration,
    /// Interval of samples. It doubles when there are [`MOST_SAMPLES`].
    pub sample_every: Duration,
}

impl Default for PlaybackRules {
    /// Start with 2 s, resume with 1 s, a sample each 100 ms. Chosen: a viewer waits that long for a video to
    /// start, and a figure over a minute shows no finer steps.
    fn default() -> Self {
        let (startup, resume) = (Duration::from_secs(2), Duration::from_secs(1));
        Self { startup, resume, sample_every: Duration::from_millis(100) }
    }
}

/// What the buffer held at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The time.
    pub at: Duration,
    /// Content in the buffer, after everything that arrived until then.
    pub buffered: Duration,
}

/// What a viewer saw until some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Viewing {
    /// Content that was received.
    pub received: Duration,
    /// Content that was played.
    pub played: Duration,
    /// When playback started for the first time.
    pub first_start: Option<Duration>,
    /// Number of times that playback stalled.
    pub stalls: u64,
    /// Time for which playback stood still after its first start and before its end.
    pub stalled: Duration,
    /// When the last content had been played.
    pub ended: Option<Duration>,
    /// The buffer over time, from zero on, with the same interval between all samples but the last.
    pub samples: Vec<Sample>,
}

impl Viewing {
    /// Content in the buffer.
    pub fn buffered(&self) -> Duration {
        self.received.saturating_sub(self.played)
    }
}

/// What the player does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has not started.
    Waiting,
    Playing,
    Stalled,
}

/// A playback buffer; see the module.
#[derive(Clone, Debug)]
pub struct Playback {
    content: Content,
    rules: PlaybackRules,
    state: State,
    /// The time of the latest call.
    at: Duration,
    bytes: u64,
    /// Nothing more arrives.
    is_whole: bool,
    viewing: Viewing,
}

impl Playback {
    /// An empty buffer at time zero.
    pub fn new(content: Content, rules: PlaybackRules) -> Self {
        let rules = PlaybackRules { sample_every: rules.sample_every.max(LEAST_INTERVAL), ..rules };
        Self {
            content,
            rules,
            state: State::Waiting,
            at: Duration::ZERO,
            bytes: 0,
            is_whole: false,
            viewing: Viewing::default(),
        }
    }

    /// The reader has received `bytes` more bytes, in order.
    pub fn on_bytes(&mut self, now: Duration, bytes: u64) {
        self.advance(now);
        self.bytes = self.bytes.saturating_add(bytes);
        self.viewing.received = self.content.time(self.bytes);
        self.is_whole |= self.content.is_whole(self.bytes);
        self.start_or_resume();
    }

    /// Nothing more will arrive: the buffer is played to its end.
    pub fn finish(&mut self, now: Duration) {
        self.advance(now);
        self.is_whole = true;
        self.start_or_resume();
    }

    /// Content in the buffer at `now`.
    pub fn buffered(&mut self, now: Duration) -> Duration {
        self.advance(now);
        self.viewing.buffered()
    }

    /// What a viewer has seen by `now`, which may lie ahead if nothing arrives until then. The last sample is
    /// that of `now`.
    pub fn viewing(&self, now: Duration) -> Viewing {
        let mut ahead = self.clone();
        ahead.advance(now);
        let last = Sample { at: ahead.at, buffered: ahead.viewing.buffered() };
        ahead.viewing.samples.push(last);
        ahead.viewing
    }

    /// Plays until `now` and takes the samples before `now`.
    fn advance(&mut self, now: Duration) {
        loop {
            let next = self.next_sample();
            if next >= now {
                break;
            }
            self.play_until(next);
            self.viewing.samples.push(Sample { at: next, buffered: self.viewing.buffered() });
            if self.viewing.samples.len() == MOST_SAMPLES {
                let mut is_kept = false;
                self.viewing.samples.retain(|_| {
                    is_kept = !is_kept;
                    is_kept
                });
                self.rules.sample_every = self.rules.sample_every.saturating_mul(2);
            }
        }
        self.play_until(now);
    }

    /// The time of the next sample. Sample n lies at n intervals.
    fn next_sample(&self) -> Duration {
        // `MOST_SAMPLES` fits.
        let count = u32::try_from(self.viewing.samples.len()).unwrap_or(u32::MAX);
        self.rules.sample_every.saturating_mul(count)
    }

    /// Plays until `now`. Nothing arrives in between.
    fn play_until(&mut self, now: Duration) {
        let Some(time) = now.checked_sub(self.at) else { return };
        let left = self.viewing.buffered();
        match self.state {
            State::Waiting => {}
            State::Stalled => self.viewing.stalled = self.viewing.stalled.saturating_add(time),
            State::Playing if time < left || (time == left && !self.is_whole) => self.viewing.played += time,
            State::Playing => {
                self.viewing.played = self.viewing.received;
                if self.is_whole {
                    self.viewing.ended.get_or_insert(self.at.saturating_add(left));
                } else {
                    self.state = State::Stalled;
                    self.viewing.stalls += 1;
                    self.viewing.stalled = self.viewing.stalled.saturating_add(time - left);
                }
            }
        }
        self.at = now;
    }

    /// Starts or resumes if the buffer holds enough.
    fn start_or_resume(&mut self) {
        let wanted = match self.state {
            State::Waiting => self.rules.startup,
            State::Stalled => self.rules.resume,
            State::Playing => return,
        };
        let buffered = self.viewing.buffered();
        if self.is_whole || (buffered >= wanted && !buffered.is_zero()) {
            self.state = State::Playing;
            self.viewing.first_start.get_or_insert(self.at);
        }
    }
}

#[cfg(test)]
mod tests;
