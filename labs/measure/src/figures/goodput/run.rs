//! One run: starts receiver, link and sender as processes on loopback, and reads the lines they print.
//!
//! The measured time begins before the sender's process starts and ends when it prints that the file is whole
//! and verified, so that start-up, handshake and the last answer count. Invariant: a run gives an error and
//! no figures if the received file differs, or if a coding policy repaired nothing although enough was lost.

use super::super::STEADY_FROM;
use super::super::emulator::Emulator;
use super::super::process::{Line, Process};
use super::cell::{Cell, LINK_OPTIONS};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tidewire_codec::SplitMix64;

/// What all runs share.
pub struct Setup<'a> {
    pub binary: &'a Path,
    pub folder: &'a Folder,
    /// The argument of `send --redundancy`.
    pub redundancy: Option<&'a str>,
}

/// What one run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Goodput of the whole file, in bits per second.
    pub goodput: f64,
    /// `goodput` over C(1-p).
    pub share: f64,
    /// Goodput after [`STEADY_FROM`] over C(1-p).
    pub steady: f64,
    /// Percent of the packets offered that the full queue dropped.
    pub queue_drops: f64,
    pub queueing_ms: f64,
    /// IP bytes the sender put on the link over bytes of the file.
    pub sent_per_app: f64,
    /// IP bytes on the way back over bytes of the file.
    pub back_per_app: f64,
    /// In-order delay: mean, p50, p95, p99.
    pub delay_ms: [f64; 4],
    /// Symbols that arrived directly, by a repair, and by a retransmission.
    pub symbols: [f64; 3],
    /// Repairs sent: proactive ones, and those that answered feedback (retransmissions included).
    pub repairs: [f64; 2],
    /// Packets sent that never reached the emulator: the kernel's buffer was full because the emulator did
    /// not run.
    pub unseen: u64,
}

/// Sends the file once over the link of `cell`.
pub fn run(cell: &Cell, seed: u64, setup: &Setup<'_>) -> Result<Figures, String> {
    let Setup { binary, folder, redundancy } = setup;
    let deadline = Instant::now() + patience(cell, folder.bytes);
    let received = folder.empty()?;

    let mut receive = Command::new(binary);
    receive.args(["receive", "--json", "--once", "--listen", "127.0.0.1:0", "--dir"]).arg(&received);
    let mut receiver = Process::start("the receiver", &mut receive)?;
    let link = receiver.wait_for("link", deadline)?.text("/link")?.to_owned();
    let seed = seed.to_string();
    let cell_options = ["--seed", &seed, "--loss", cell.loss, "--back-loss", cell.back_loss];
    let (emulator, link) = Emulator::start(binary, &[&LINK_OPTIONS[..], &cell_options].concat(), &link, deadline)?;

    let mut send = Command::new(binary);
    send.args(["send", "--json"]).args(redundancy.iter().flat_map(|policy| ["--redundancy", policy]));
    let started = Instant::now();
    let sender = Process::start("the sender", send.arg(folder.file()).arg(link))?;
    let lines = Lines {
        sender: sender.finish(0, deadline)?,
        receiver: receiver.finish(0, deadline)?,
        link: emulator.end(deadline)?,
    };
    folder.compare(&received)?;
    let figures = lines.figures(cell, started, folder.bytes as f64)?;
    let coded = *redundancy != Some("none");
    if coded && cell.needs_repair() && figures.symbols[1] == 0.0 {
        return Err(format!("nothing was repaired by coding: {figures:?}"));
    }
    Ok(figures)
}

/// The longest time of a run: ten times what the link needs, and half a minute to start on a busy machine.
fn patience(cell: &Cell, bytes: usize) -> Duration {
    Duration::from_secs_f64(30.0 + 10.0 * 8.0 * bytes as f64 / cell.capacity())
}

/// Everything the three processes printed.
struct Lines {
    sender: Vec<Line>,
    receiver: Vec<Line>,
    link: Vec<Line>,
}

impl Lines {
    fn figures(&self, cell: &Cell, started: Instant, bytes: f64) -> Result<Figures, String> {
        let verified = last(&self.sender, "file")?;
        let (sent, got, link) =
            (last(&self.sender, "summary")?, last(&self.receiver, "summary")?, last(&self.link, "link_stats")?);
        let goodput = 8.0 * bytes / verified.at.duration_since(started).as_secs_f64();
        let offered = link.number("/forward/offered")?;
        let back_bytes = link.number("/back/offered_bytes")?;
        Ok(Figures {
            goodput,
            share: goodput / cell.capacity(),
            steady: steady(&progress(&self.receiver, started, bytes)?)? / cell.capacity(),
            queue_drops: 100.0 * link.number("/forward/queue_dropped")? / offered,
            queueing_ms: link.number("/forward/queueing_ms")?,
            sent_per_app: sent.number("/wire_bytes")? / bytes,
            back_per_app: back_bytes / bytes,
            delay_ms: numbers(got, ["/delay_ms/mean", "/delay_ms/p50", "/delay_ms/p95", "/delay_ms/p99"])?,
            symbols: numbers(got, ["/symbols/direct", "/symbols/repaired", "/symbols/resent"])?,
            repairs: numbers(sent, ["/packets/repair", "/packets/feedback_repair"])?,
            unseen: (sent.number("/packets/sent")? - offered).max(0.0) as u64,
        })
    }
}

fn last<'a>(lines: &'a [Line], event: &str) -> Result<&'a Line, String> {
    lines.iter().rfind(|line| line.is(event)).ok_or_else(|| format!("no event `{event}` was printed"))
}

fn numbers<const N: usize>(line: &Line, pointers: [&str; N]) -> Result<[f64; N], String> {
    let mut numbers = [0.0; N];
    for (number, pointer) in numbers.iter_mut().zip(pointers) {
        *number = line.number(pointer)?;
    }
    Ok(numbers)
}

/// Seconds since the start and bytes in order, at each progress event before the file was whole.
fn progress(receiver: &[Line], started: Instant, bytes: f64) -> Result<Vec<(f64, f64)>, String> {
    let events = receiver.iter().filter(|line| line.is("progress"));
    let points = events.map(|line| Ok((line.at.duration_since(started).as_secs_f64(), line.number("/bytes")?)));
    let points = points.collect::<Result<Vec<_>, String>>()?;
    Ok(points.into_iter().filter(|(_, so_far)| *so_far < bytes).collect())
}

/// Bits per second from [`STEADY_FROM`] to the last event. The bytes at [`STEADY_FROM`] are interpolated.
fn steady(points: &[(f64, f64)]) -> Result<f64, String> {
    let from = STEADY_FROM.as_secs_f64();
    let around = points.windows(2).find(|pair| pair[0].0 <= from && from < pair[1].0);
    let (Some(&[(before, least), (after, most)]), Some(&(end, bytes))) = (around, points.last()) else {
        return Err(format!("no progress was reported before and after {from} s"));
    };
    let then = least + (most - least) * (from - before) / (after - before);
    Ok(8.0 * (bytes - then) / (end - from))
}

/// The folder of all runs; removed when dropped.
pub struct Folder {
    path: PathBuf,
    bytes: usize,
}

impl Folder {
    /// Makes the folder, and in it a file of this many bytes that cannot be compressed.
    pub fn new(bytes: usize) -> Result<Self, String> {
        let folder =
            Self { path: std::env::temp_dir().join(format!("tidewire-figures-{}", std::process::id())), bytes };
        std::fs::create_dir_all(&folder.path).map_err(|e| folder.problem(&e))?;
        std::fs::write(folder.file(), incompressible(bytes)).map_err(|e| folder.problem(&e))?;
        Ok(folder)
    }

    fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    /// Makes an empty folder to receive into.
    fn empty(&self) -> Result<PathBuf, String> {
        let received = self.path.join("received");
        match std::fs::remove_dir_all(&received) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(self.problem(&error)),
            _ => {}
        }
        std::fs::create_dir(&received).map_err(|e| self.problem(&e))?;
        Ok(received)
    }

    /// Fails if the file below `received` is not the one that was sent.
    fn compare(&self, received: &Path) -> Result<(), String> {
        let read = |path: PathBuf| std::fs::read(path).map_err(|e| self.problem(&e));
        if read(self.file())? == read(received.join(FILE))? {
            Ok(())
        } else {
            Err("the file received differs from the file sent".into())
        }
    }

    fn problem(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A file that remains in the temporary folder does no harm.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The same bytes in every call.
fn incompressible(bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    SplitMix64::new(0).fill(&mut data);
    data
}

/// Name of the file, at both ends.
const FILE: &str = "incompressible";

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
