//! What if: a recorded flow, run again over its recorded path with other choices (docs/recording.md).
//!
//! `tidewire replay` and the page of a recording call [`run`], so both give the same figures and refuse the
//! same choices. Invariant: the first row is the recorded run, the second the replay of its choices.

mod alternative;
mod flow;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tidewire::ConfigError;
use tidewire_figures::chart::runs;
use tidewire_figures::{Delay, Distribution};
use tidewire_proto::stats::DelayHistogram;
use tidewire_recording::ReadError;
use tidewire_sim::replay::{NoReplay, Recorded, Replayed};

pub use alternative::{Alternative, BadAlternative};

/// One run: the recorded one, or a replay.
#[derive(Clone, Debug)]
pub struct Row {
    /// `recorded`, `same choices`, or what was chosen.
    pub name: String,
    /// In-order delay of the source symbols, beyond the least one-way time.
    pub delay: Distribution,
    /// Bytes on the wire beyond those of the application, as a share of these.
    pub overhead: f64,
    /// Share of the packets that were lost.
    pub loss: f64,
    /// Bytes of the application that arrived.
    pub bytes: u64,
    /// Whether all of them arrived; `None` for the recorded run.
    pub done: Option<bool>,
}

/// A row as `--json` and the page have it.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// The recorded flow, or one of its replays.
    Replay {
        /// `recorded`, `same choices`, or what was chosen.
        name: &'a str,
        /// In-order delay of the source symbols, beyond the least one-way time.
        delay_ms: Delay,
        /// Bytes on the wire beyond those of the application, as a share of these.
        overhead: f64,
        /// Share of the packets that were lost.
        loss: f64,
        /// Bytes of the application that arrived.
        bytes: u64,
        /// Whether all of them arrived; null for the recorded flow.
        done: Option<bool>,
    },
}

impl Row {
    fn of_record(recorded: &Recorded) -> Self {
        Self {
            name: "recorded".into(),
            delay: distribution(&recorded.delay),
            overhead: recorded.overhead(),
            loss: recorded.lost.0 as f64 / recorded.lost.1.max(1) as f64,
            bytes: recorded.app_bytes,
            done: None,
        }
    }

    fn of_replay(name: String, replayed: &Replayed) -> Self {
        Self {
            name,
            delay: distribution(&replayed.delay),
            overhead: replayed.overhead(),
            loss: replayed.loss,
            bytes: replayed.app_bytes,
            done: Some(replayed.done),
        }
    }

    /// What `--json` prints of it.
    pub fn event(&self) -> Event<'_> {
        Event::Replay {
            name: &self.name,
            delay_ms: Delay::from(&self.delay),
            overhead: self.overhead,
            loss: self.loss,
            bytes: self.bytes,
            done: self.done,
        }
    }
}

fn distribution(delay: &DelayHistogram) -> Distribution {
    Distribution::new(delay.buckets(), delay.mean(), delay.max())
}

/// What [`run`] tells while it works.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// A sentence about what is replayed.
    Remark(&'a str),
    /// A sentence about what the replay leaves out or lacks.
    Warning(&'a str),
    /// A run is being computed: its name, and the share that is done. The recorded run is read.
    Progress(&'a str, f64),
    /// A run is complete.
    Row(&'a Row),
}

/// Takes the news, and returns whether to go on.
pub type Tell<'a> = dyn FnMut(News<'_>) -> bool + 'a;

/// Why a recorded flow cannot be run again.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// A file cannot be read.
    File(PathBuf, io::Error),
    /// A file is no recording, or is damaged.
    Recording(PathBuf, ReadError),
    /// A recording has no flow that can be run again.
    Flow(PathBuf, NoReplay),
    /// The recording of the end that received has no delays.
    ReceivedNothing(PathBuf),
    /// Choices exclude each other, or a recorded value.
    Choices(ConfigError),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "cannot read `{}`: {error}", path.display()),
            Self::Recording(path, error) => write!(f, "`{}`: {error}", path.display()),
            Self::Flow(path, error) => write!(f, "`{}`: {error}", path.display()),
            Self::ReceivedNothing(path) => {
                let what = "this end received nothing: give the recording of the end that received";
                write!(f, "`{}`: {what}", path.display())
            }
            Self::Choices(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReplayError {}

/// Replays the flow of `file` with its own choices, and with those of `alternative` or, if it makes none,
/// with several redundancies. The exact delays of the recorded run are in `peer`, the recording of the end
/// that received. `None` if `tell` stopped it.
///
/// # Errors
/// See [`ReplayError`].
pub fn run(
    file: &Path,
    peer: Option<&Path>,
    alternative: &Alternative,
    tell: &mut Tell<'_>,
) -> Result<Option<Vec<Row>>, ReplayError> {
    let Some(recorded) = flow::of(file, peer, tell)? else { return Ok(None) };
    if recorded.message_bytes > 0 {
        tell(News::Warning("the recorded messages are replayed as bytes of a stream, without their lifetimes"));
    }
    let configs = alternative.configs(&recorded).map_err(ReplayError::Choices)?;
    let mut rows = vec![Row::of_record(&recorded)];
    tell(News::Row(&rows[0]));
    for (name, config) in configs {
        let replayed = recorded.replay_while(&config, &mut |share| tell(News::Progress(&name, share)));
        let Some(replayed) = replayed.map_err(ReplayError::Choices)? else { return Ok(None) };
        let row = Row::of_replay(name, &replayed);
        tell(News::Row(&row));
        rows.push(row);
    }
    Ok(Some(rows))
}

/// The rows as an SVG file.
pub fn picture(rows: &[Row]) -> String {
    let run = |row: &Row| runs::Run { label: row.name.clone(), overhead: row.overhead, delay: row.delay.clone() };
    let runs: Vec<_> = rows.iter().map(run).collect();
    runs::draw(&runs, "In-order delay against overhead: recorded, and replayed")
}
