//! What a flow sends and receives, independent of the socket: the bytes and their times, and the oracle that
//! compares them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tidewire_sim::load::fill;
use tidewire_sim::network::{Content, FlowReport, viewing};
use tidewire_sim::video::Playback;

/// Bytes per call. Chosen: several segments, little compared to a socket's buffer.
const BLOCK: usize = 64 << 10;
/// Longest time until the end of the run is noticed.
const STEP: Duration = Duration::from_millis(20);
/// Errors that are kept.
const MOST_ERRORS: usize = 8;

/// The beginning and the end of a run, which all flows share.
#[derive(Debug, Default)]
pub(super) struct Run {
    zero: OnceLock<Instant>,
    has_ended: AtomicBool,
}

impl Run {
    /// Begins. Returns the moment.
    pub(super) fn begin(&self) -> Instant {
        *self.zero.get_or_init(Instant::now)
    }

    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// When the run began; `None` before.
    pub(super) fn zero(&self) -> Option<Instant> {
        self.zero.get().copied()
    }

    /// Waits for the beginning.
    pub(super) fn wait(&self) -> Instant {
        *self.zero.wait()
    }
}

/// What a source does next.
pub(super) enum Next<'a> {
    /// It writes these bytes, and calls [`Source::wrote`].
    Write(&'a [u8]),
    /// It waits so long, and looks again.
    Wait(Duration),
    /// It has written everything.
    End,
}

/// The sending application.
#[derive(Debug)]
pub(super) struct Source {
    content: Content,
    start: Duration,
    seed: u64,
    written: u64,
    block: Vec<u8>,
}

impl Source {
    /// An application that begins `start` after the beginning of the run.
    pub(super) fn new(content: &Content, start: Duration, seed: u64) -> Self {
        Self { content: content.clone(), start, seed, written: 0, block: vec![0; BLOCK] }
    }

    /// What it does when the run is `age` old.
    pub(super) fn next(&mut self, age: Duration) -> Next<'_> {
        let Some(own) = age.checked_sub(self.start) else { return Next::Wait((self.start - age).min(STEP)) };
        let made = self.content.produced(own);
        if made > self.written {
            let length = usize::try_from(made - self.written).unwrap_or(BLOCK).min(BLOCK);
            fill(self.seed, 0, self.written, &mut self.block[..length]);
            return Next::Write(&self.block[..length]);
        }
        match self.content.time_of(self.written) {
            Some(at) => Next::Wait(at.saturating_sub(own).clamp(Duration::from_micros(50), STEP)),
            None => Next::End,
        }
    }

    /// Notes that so many bytes were taken.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
    }
}

/// The receiving application of a stream.
#[derive(Debug)]
pub(super) struct Sink {
    content: Content,
    start: Duration,
    seed: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    report: FlowReport,
    last: Duration,
    block: Vec<u8>,
    /// The viewer's buffer, if the content is a video.
    playback: Option<Playback>,
}

impl Sink {
    /// The other end of [`Source::new`].
    pub(super) fn new(content: &Content, start: Duration, seed: u64) -> Self {
        let state = Mutex::new(State { playback: content.playback(), ..State::default() });
        Self { content: content.clone(), start, seed, state }
    }

    /// Takes bytes that were read when the run was `age` old.
    pub(super) fn take(&self, bytes: &[u8], age: Duration) {
        let mut state = self.state();
        let State { report, last, block, playback } = &mut *state;
        let before = report.bytes;
        block.resize(bytes.len(), 0);
        fill(self.seed, 0, before, block);
        if block != bytes && report.errors.len() < MOST_ERRORS {
            report.errors.push(format!("a wrong byte among the {} behind byte {before}", bytes.len()));
        }
        report.bytes += bytes.len() as u64;
        *last = age;
        let own = age.saturating_sub(self.start);
        playback.iter_mut().for_each(|playback| playback.on_bytes(own, bytes.len() as u64));
        for record in self.content.completed(before, report.bytes) {
            report.latencies.add(age.saturating_sub(self.start + self.content.made(record)));
        }
    }

    /// Whether everything is there.
    pub(super) fn is_whole(&self) -> bool {
        self.content.bytes() == Some(self.state().report.bytes)
    }

    /// The report of a flow of this kind. `age` is that of the run.
    pub(super) fn report(&self, kind: &'static str, age: Duration) -> FlowReport {
        let is_whole = self.is_whole();
        let state = self.state();
        let ended = if is_whole { state.last } else { age };
        let own = age.saturating_sub(self.start);
        FlowReport {
            viewing: state.playback.as_ref().map(|playback| viewing(playback, own, is_whole)),
            kind,
            whole: self.content.bytes().map(|_| is_whole),
            seconds: ended.saturating_sub(self.start).as_secs_f64(),
            ..state.report.clone()
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until it is time to look at the run again.
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}
