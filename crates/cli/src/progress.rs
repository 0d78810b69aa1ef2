//! Progress of a transfer: a bar at a terminal, a line every five seconds for a log, an event every second
//! for a program. It reads the events of the transfer and the statistics of the connection, and changes
//! neither.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use tidewire_command::report::{Console, LEAST_FOR_OVERHEAD, rate};
use tidewire_transfer::{self as transfer, FileFailure, PathText};

/// Interval between two drawings of a bar.
const BAR_PERIOD: Duration = Duration::from_millis(200);
/// Interval between JSON events.
const EVENT_PERIOD: Duration = Duration::from_secs(1);
/// Interval between lines.
const LINE_PERIOD: Duration = Duration::from_secs(5);
/// Maximum number of different warnings that are counted. Chosen: a destination has one or two.
const MAX_WARNINGS: usize = 8;
/// Time over which the rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// The events of `send` and `receive`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// Written about once a second while a transfer runs.
    Progress(Progress),
    /// A file is complete at the receiver, or it failed.
    File {
        #[serde(flatten)]
        path: Path<'a>,
        /// Whether the file is complete, verified and under its final name.
        ok: bool,
        /// Its size, if it is complete.
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
        /// The reason of the failure, one of those in `docs/transfer.md`.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'static str>,
        /// The error text of the operating system or the peer.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
        /// What the destination could not do for a complete file: its mode, its time, a flush.
        #[serde(skip_serializing_if = "Option::is_none")]
        warning: Option<&'a str>,
    },
    /// An earlier session carried part of a file, or all of it, and this one goes on at `offset`.
    Resumed {
        #[serde(flatten)]
        path: Path<'a>,
        /// Bytes that the receiver already had. It is 0 if the file has changed and those bytes are
        /// discarded.
        offset: u64,
        /// Size of the file in bytes.
        bytes: u64,
    },
    /// The counts of a whole transfer.
    Tally {
        /// Files and directories that the receiver kept.
        kept: u32,
        /// Entries that did not arrive.
        failed: u32,
        /// Bytes of files that this session carried.
        moved_bytes: u64,
        /// Bytes of files that the receiver had.
        resumed_bytes: u64,
    },
}

/// A path in an event.
#[derive(Serialize)]
struct Path<'a> {
    path: &'a str,
    /// The bytes of a path that is not UTF-8, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

impl<'a> Path<'a> {
    fn of(path: &'a PathText) -> Self {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { path: path.text(), path_bytes: path.bytes().map(hex) }
    }
}

#[derive(Clone, Debug, Default, Serialize)]
struct Progress {
    /// Bytes of files written to the stream or read from it.
    bytes: u64,
    /// Bytes that the receiver had.
    resumed_bytes: u64,
    /// Bytes of files read to compare them with what the other side has.
    compared_bytes: u64,
    /// Whether that grew since the last report.
    #[serde(skip)]
    comparing: bool,
    /// Bytes announced by the sender.
    total_bytes: u64,
    /// Rate over about the last second.
    rate_bps: f64,
    /// Seconds left at the mean rate so far. Absent before the first byte.
    eta_seconds: Option<f64>,
    /// Smoothed round-trip time.
    rtt_ms: Option<f64>,
    /// Fraction of the packets sent by this end that were lost.
    loss: Option<f64>,
    /// Symbols decoded with a repair symbol. Only the receiver knows it.
    repaired: Option<u64>,
    /// Wire bytes over file bytes, minus 1.
    overhead: Option<f64>,
}

impl Progress {
    /// Bytes that the receiver has.
    fn there(&self) -> u64 {
        self.bytes + self.resumed_bytes
    }
}

/// Reports a file that did not arrive. `--quiet` does not silence it.
pub fn failed(console: &Console, failure: &FileFailure) {
    let FileFailure { path, reason, detail } = failure;
    let detail = (!detail.is_empty()).then_some(detail.as_str());
    let path = Path::of(path);
    console.event(&Event::File { path, ok: false, bytes: None, reason: Some(reason.name()), detail, warning: None });
    if !console.json() {
        console.warn(&format!("tidewire: {failure}"));
    }
}

/// Statistics of the connection at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Round trip in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Fraction of our packets lost.
    pub loss: Option<f64>,
    /// Symbols decoded with repairs; known only at the receiver.
    pub repaired: Option<u64>,
    /// IP bytes in the direction of the data.
    pub wire_bytes: u64,
}

/// Counts what a transfer reports.
#[derive(Debug)]
pub struct Meter {
    console: Console,
    title: String,
    begun: Instant,
    total: AtomicU64,
    bytes: AtomicU64,
    /// Bytes that the receiver had.
    resumed: AtomicU64,
    /// Bytes read to compare them.
    compared: AtomicU64,
    /// Warnings that were told, and how many more files have them.
    warned: Mutex<Vec<(String, u64)>>,
}

impl Meter {
    /// Creates a meter at zero.
    pub fn new(console: &Console, title: &str) -> Self {
        Self {
            console: console.clone(),
            title: title.to_owned(),
            begun: Instant::now(),
            total: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            compared: AtomicU64::new(0),
            warned: Mutex::default(),
        }
    }

    /// Takes an event of the transfer. A failure is reported at once.
    pub fn take(&self, event: &transfer::Event<'_>) {
        match event {
            transfer::Event::Total { bytes, .. } => self.total.store(*bytes, Ordering::Relaxed),
            transfer::Event::Bytes(bytes) => {
                self.bytes.fetch_add(*bytes, Ordering::Relaxed);
            }
            transfer::Event::Compared(bytes) => {
                self.compared.fetch_add(*bytes, Ordering::Relaxed);
            }
            transfer::Event::Resumed { path, offset, size } => {
                self.resumed.fetch_add(*offset, Ordering::Relaxed);
                self.console.event(&Event::Resumed { path: Path::of(path), offset: *offset, bytes: *size });
                if offset < size {
                    let percent = 100.0 * *offset as f64 / (*size).max(1) as f64;
                    self.console.say(&format!("{path}: goes on at {percent:.0} %"));
                }
            }
            transfer::Event::Changed { path, offset, withdrawn, size } => {
                self.resumed.fetch_sub(*withdrawn, Ordering::Relaxed);
                self.console.event(&Event::Resumed { path: Path::of(path), offset: *offset, bytes: *size });
                let from = match offset {
                    0 => "its beginning".into(),
                    _ => format!("{:.0} %", 100.0 * *offset as f64 / (*size).max(1) as f64),
                };
                self.console.say(&format!("{path}: changed since it was cut off; sent from {from}"));
            }
            transfer::Event::Kept { path, bytes, warning } => {
                let (bytes, warning) = (Some(*bytes), *warning);
                let file = Event::File { path: Path::of(path), ok: true, bytes, reason: None, detail: None, warning };
                self.console.event(&file);
                if let Some(warning) = warning.filter(|_| !self.console.json()) {
                    self.warn(path, warning);
                }
            }
            transfer::Event::Failed(failure) => failed(&self.console, failure),
        }
    }

    /// Warns of a complete file. The same warning of further files is only counted: it is the destination's.
    fn warn(&self, path: &PathText, warning: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, more)) = warned.iter_mut().find(|(text, _)| text == warning) {
            *more += 1;
            return;
        }
        self.console.warn(&format!("tidewire: {path} arrived, but {warning}"));
        if warned.len() < MAX_WARNINGS {
            warned.push((warning.to_owned(), 0));
        }
    }

    /// Reports how many entries were kept and how many failed, and how many bytes were carried.
    pub fn tally(&self, outcome: &transfer::Outcome) {
        for (warning, more) in self.warned.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if more > 0 {
                self.console.warn(&format!("tidewire: {more} more arrived, but {warning}"));
            }
        }
        self.console.event(&Event::Tally {
            kept: outcome.kept,
            failed: outcome.failed,
            moved_bytes: self.bytes.load(Ordering::Relaxed),
            resumed_bytes: self.resumed.load(Ordering::Relaxed),
        });
    }

    /// Shows progress as long as it is polled. Run it beside the transfer, and drop it with the transfer.
    pub async fn show(&self, sample: impl Fn() -> Sample) -> Infallible {
        let bar = self.console.bars().map(|bars| ClearOnDrop(bars.add(bar(&self.title))));
        let period = match (&bar, self.console.json()) {
            (Some(_), _) => BAR_PERIOD,
            (None, true) => EVENT_PERIOD,
            (None, false) => LINE_PERIOD,
        };
        let mut ticks = tokio::time::interval(period);
        ticks.tick().await;
        let (mut before, mut compared) = ((self.begun, 0), 0);
        loop {
            ticks.tick().await;
            let mut progress = self.progress(sample(), before.0, before.1);
            progress.comparing = progress.compared_bytes > std::mem::replace(&mut compared, progress.compared_bytes);
            if before.0.elapsed() >= RATE_WINDOW {
                before = (Instant::now(), progress.bytes);
            }
            match &bar {
                Some(ClearOnDrop(bar)) => {
                    bar.set_length(progress.total_bytes.max(progress.there()));
                    bar.set_position(progress.there());
                    bar.set_message(describe(&progress));
                }
                None if self.console.json() => self.console.event(&Event::Progress(progress)),
                None => self.console.say(&line(&self.title, &progress)),
            }
        }
    }

    fn progress(&self, sample: Sample, since: Instant, bytes_then: u64) -> Progress {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (total_bytes, bytes, resumed_bytes) = (read(&self.total), read(&self.bytes), read(&self.resumed));
        let rate_bps = 8.0 * (bytes - bytes_then) as f64 / since.elapsed().as_secs_f64().max(1e-3);
        let mean = bytes as f64 / self.begun.elapsed().as_secs_f64().max(1e-3);
        let overhead = (bytes > 0).then(|| sample.wire_bytes as f64 / bytes as f64 - 1.0);
        Progress {
            bytes,
            resumed_bytes,
            compared_bytes: read(&self.compared),
            comparing: false,
            total_bytes,
            rate_bps,
            eta_seconds: (bytes > 0).then(|| total_bytes.saturating_sub(bytes + resumed_bytes) as f64 / mean),
            rtt_ms: sample.rtt_ms,
            loss: sample.loss,
            repaired: sample.repaired,
            overhead,
        }
    }
}

struct ClearOnDrop(ProgressBar);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn bar(title: &str) -> ProgressBar {
    // The template is a constant. If it were wrong, the default bar would do.
    let style = ProgressStyle::with_template("{prefix} {bar:24} {decimal_bytes}/{decimal_total_bytes} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style).with_prefix(title.to_owned())
}

fn line(title: &str, progress: &Progress) -> String {
    let percent = 100.0 * progress.there() as f64 / progress.total_bytes.max(1) as f64;
    format!("{title}: {percent:.0} %, {}", describe(progress))
}

fn describe(progress: &Progress) -> String {
    let mut text = rate(progress.rate_bps);
    if progress.comparing {
        let _ = write!(text, ", comparing: {} read", indicatif::DecimalBytes(progress.compared_bytes));
    }
    if let Some(eta) = progress.eta_seconds {
        let _ = write!(text, ", {} left", indicatif::HumanDuration(Duration::from_secs_f64(eta.min(1e9))));
    }
    if let Some(rtt) = progress.rtt_ms {
        let _ = write!(text, ", RTT {rtt:.0} ms");
    }
    if let Some(loss) = progress.loss {
        let _ = write!(text, ", loss {:.1} %", 100.0 * loss);
    }
    if let Some(repaired) = progress.repaired {
        let _ = write!(text, ", {repaired} repaired");
    }
    if let Some(overhead) = progress.overhead.filter(|_| progress.bytes >= LEAST_FOR_OVERHEAD) {
        let _ = write!(text, ", overhead {:.1} %", 100.0 * overhead);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_40_progress_says_what_is_compared_and_no_overhead_of_a_few_bytes() {
        let overhead = Some(1293.0);
        let small = Progress { bytes: 6, overhead, ..Progress::default() };
        assert_eq!(describe(&small), "0.0 bit/s");
        let large = Progress { bytes: LEAST_FOR_OVERHEAD, overhead: Some(0.05), ..Progress::default() };
        assert_eq!(describe(&large), "0.0 bit/s, overhead 5.0 %");
        let comparing = Progress { compared_bytes: 3_200_000_000, comparing: true, ..Progress::default() };
        assert_eq!(describe(&comparing), "0.0 bit/s, comparing: 3.20 GB read");
    }
}
