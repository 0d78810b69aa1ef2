//! Where a verb speaks: lines for programs and for people, made safe for a terminal ([`crate::terminal`]).

use std::io::{IsTerminal, Write};

use indicatif::MultiProgress;
use serde::Serialize;

use super::{Event, Summary, VERSION};
use crate::exit::Failure;
use crate::terminal::{printable, printable_json};
use crate::transfer::FileFailure;

/// Where a verb speaks. Clones share one terminal.
#[derive(Clone, Debug)]
pub struct Console {
    json: bool,
    quiet: bool,
    /// Stdout carries the job's own bytes: JSON and links go to stderr.
    stdout_is_data: bool,
    bars: Option<MultiProgress>,
}

impl Console {
    /// JSON lines on stdout, or sentences on stderr unless `quiet`; bars only for people at a terminal.
    pub fn new(json: bool, quiet: bool) -> Self {
        let people = !json && !quiet && std::io::stderr().is_terminal();
        Self { json, quiet, stdout_is_data: false, bars: people.then(MultiProgress::new) }
    }

    /// The same, but with nothing on stdout: that carries the job's own bytes.
    pub fn beside_data(self) -> Self {
        Self { stdout_is_data: true, bars: None, ..self }
    }

    /// Whether lines are JSON.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Whether progress is wanted at all.
    pub fn quiet(&self) -> bool {
        self.quiet
    }

    /// Where progress bars are drawn, if someone sees them.
    pub fn bars(&self) -> Option<&MultiProgress> {
        self.bars.as_ref()
    }

    /// Writes an event, with `--json`.
    pub fn event(&self, event: &Event<'_>) {
        #[derive(Serialize)]
        struct Line<'a> {
            v: u8,
            #[serde(flatten)]
            event: &'a Event<'a>,
        }
        if self.json
            && let Ok(line) = serde_json::to_string(&Line { v: VERSION, event })
        {
            self.write_result(&printable_json(&line));
        }
    }

    /// A line that a program may want to read: on stdout, unless that carries bytes of the job.
    pub fn print(&self, line: &str) {
        self.write_result(&printable(line));
    }

    /// Writes a line that is safe for a terminal to stdout, or to stderr where stdout carries bytes of the
    /// job. A reader that went away is no failure.
    fn write_result(&self, line: &str) {
        if self.stdout_is_data {
            return self.write_remark(line);
        }
        let mut stdout = std::io::stdout().lock();
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }

    /// A sentence on stderr, unless quiet or JSON.
    pub fn say(&self, sentence: &str) {
        if !self.json && !self.quiet {
            self.warn(sentence);
        }
    }

    /// A sentence on stderr, always.
    pub fn warn(&self, sentence: &str) {
        self.write_remark(&printable(sentence));
    }

    /// Writes a line that is safe for a terminal to stderr.
    fn write_remark(&self, line: &str) {
        let write = || {
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        };
        match &self.bars {
            Some(bars) => bars.suspend(write),
            None => write(),
        }
    }

    /// Names a file that did not arrive; never silenced.
    pub fn failed(&self, failure: &FileFailure) {
        let FileFailure { path, reason, detail } = failure;
        let detail = (!detail.is_empty()).then_some(detail.as_str());
        self.event(&Event::File { path, ok: false, bytes: None, reason: Some(reason.name()), detail });
        if !self.json {
            self.warn(&format!("tidewire: {failure}"));
        }
    }

    /// Why the program ends early, unless that was said before.
    pub fn error(&self, failure: &Failure) {
        let Some(error) = &failure.error else { return };
        let message = format!("{error:#}");
        match self.json {
            true => self.event(&Event::Error { exit: failure.exit.code(), message }),
            false => self.warn(&format!("tidewire: {message}")),
        }
    }

    /// Ends a job: why it failed, if it did, and then its summary as the last line.
    ///
    /// # Errors
    /// When `ended` is one; it is then reported.
    pub fn conclude(&self, summary: &Summary, ended: Result<(), Failure>) -> Result<(), Failure> {
        let ended = ended.map_err(|failure| {
            self.error(&failure);
            Failure::reported(failure.exit)
        });
        self.summary(summary);
        ended
    }

    /// The last word of a job.
    pub fn summary(&self, summary: &Summary) {
        self.event(&Event::Summary(summary));
        self.say(&summary.sentence());
    }
}
