//! The output of a verb: lines for programs and for people, made safe for a terminal ([`crate::terminal`]).

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::MultiProgress;
use serde::Serialize;

use super::{Event, Summary, VERSION};
use crate::exit::{Exit, Failure};
use crate::stdout;
use crate::terminal::{printable, printable_json};

/// The output of a verb. Clones share one terminal.
#[derive(Clone, Debug)]
pub struct Console {
    json: bool,
    quiet: bool,
    /// Stdout carries the job's own bytes, so JSON and links go to stderr.
    stdout_is_data: bool,
    bars: Option<MultiProgress>,
    /// The newest summary as JSON, for those who show the job.
    summary: Arc<Mutex<Option<String>>>,
}

impl Console {
    /// Writes JSON lines to stdout, or sentences to stderr unless `quiet`. Progress bars need a terminal at
    /// stderr.
    pub fn new(json: bool, quiet: bool) -> Self {
        let people = !json && !quiet && std::io::stderr().is_terminal();
        Self { json, quiet, stdout_is_data: false, bars: people.then(MultiProgress::new), summary: Arc::default() }
    }

    /// The same output, with everything on stderr, because stdout carries the job's own bytes.
    pub fn beside_data(self) -> Self {
        Self { stdout_is_data: true, bars: None, ..self }
    }

    /// Whether the output is JSON.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Whether only failures are written.
    pub fn quiet(&self) -> bool {
        self.quiet
    }

    /// The place for progress bars, if stderr is a terminal.
    pub fn bars(&self) -> Option<&MultiProgress> {
        self.bars.as_ref()
    }

    /// Writes an event, if `--json` was given. `event` is a variant of an enum that serde tags with `event`.
    pub fn event<E: Serialize>(&self, event: &E) {
        #[derive(Serialize)]
        struct Line<'a, E> {
            v: u8,
            #[serde(flatten)]
            event: &'a E,
        }
        if self.json
            && let Ok(line) = serde_json::to_string(&Line { v: VERSION, event })
        {
            self.write_result(&printable_json(&line));
        }
    }

    /// Writes a line that a program may read: to stdout, or to stderr if stdout carries the job's own bytes.
    pub fn print(&self, line: &str) {
        self.write_result(&printable(line));
    }

    /// Writes a line that is already safe for a terminal to stdout, or to stderr if stdout carries the job's
    /// own bytes.
    fn write_result(&self, line: &str) {
        if self.stdout_is_data {
            return self.write_remark(line);
        }
        stdout::write_line(line);
    }

    /// Writes a sentence to stderr, unless the output is quiet or JSON.
    pub fn say(&self, sentence: &str) {
        if !self.json && !self.quiet {
            self.warn(sentence);
        }
    }

    /// Writes a sentence to stderr, always.
    pub fn warn(&self, sentence: &str) {
        self.write_remark(&printable(sentence));
    }

    /// Writes a line that is already safe for a terminal to stderr.
    fn write_remark(&self, line: &str) {
        let write = || {
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        };
        match &self.bars {
            Some(bars) => bars.suspend(write),
            None => write(),
        }
    }

    /// Reports why the program ends early, unless that was reported before.
    pub fn error(&self, failure: &Failure) {
        let Some(error) = &failure.error else { return };
        let message = format!("{error:#}");
        match self.json {
            true => self.event(&Event::Error { exit: failure.exit.code(), message }),
            false => self.warn(&format!("{}: {message}", program())),
        }
    }

    /// Ends a job: reports its failure, if there is one, and then its summary as the last line.
    ///
    /// # Errors
    /// The failure in `ended`, marked as reported.
    pub fn conclude(&self, summary: &Summary, ended: Result<(), Failure>) -> Result<(), Failure> {
        let ended = self.tell(ended);
        self.summary(summary);
        ended
    }

    /// Reports the failure of a job, if there is one, before the summaries that are still to come.
    ///
    /// # Errors
    /// The failure in `ended`, marked as reported.
    pub fn tell(&self, ended: Result<(), Failure>) -> Result<(), Failure> {
        ended.map_err(|failure| {
            self.error(&failure);
            Failure::reported(failure.exit)
        })
    }

    /// Takes the newest summary that was reported since the last call, as JSON.
    pub fn take_summary(&self) -> Option<String> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Reports the summary of a job.
    pub fn summary(&self, summary: &Summary) {
        *self.summary.lock().unwrap_or_else(PoisonError::into_inner) = serde_json::to_string(summary).ok();
        self.event(&Event::Summary(summary));
        self.say(&summary.sentence());
    }
}

/// Runs a verb with its output. Reports its failure, and returns the exit code of the process. A verb whose
/// output was lost has not succeeded.
pub fn with(console: Console, verb: impl FnOnce(Console) -> Result<(), Failure>) -> ExitCode {
    match verb(console.clone()) {
        Ok(()) if stdout::lost().is_some() => Exit::LocalIo.into(),
        Ok(()) => Exit::Done.into(),
        Err(failure) => {
            console.error(&failure);
            failure.exit.into()
        }
    }
}

/// The name under which this program was started.
fn program() -> String {
    let name = std::env::args_os().next().map(PathBuf::from);
    let name = name.as_deref().and_then(Path::file_stem).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "tidewire".to_owned())
}
