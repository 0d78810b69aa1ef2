//! One TCP connection at half of the link's rate: the in-order delay of its records beyond the one-way time.
//!
//! Records have 1,200 bytes and come at 12.5 Mbit/s on a link of 25 Mbit/s and 60 ms that loses packets
//! toward the target only. Each figure is given for the whole run and from the third second on, because
//! start-up is part of a job, but delay matters mostly after it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::STEADY_FROM;
use super::super::goal::ANY;
use super::super::process::Line;
use super::application::{Arrival, Load, delays, read_records, write_records};
use super::stage::Stage;
use super::{ONE_WAY, PATIENCE};

/// A link.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    /// The argument of `tidewire-lab link --loss`.
    pub loss: &'static str,
    /// Upper bounds of mean, p50, p95 and p99 in milliseconds, and of IP bytes sent over bytes delivered.
    pub goals: [f64; 5],
}

const fn row(name: &'static str, loss: &'static str, goals: [f64; 5]) -> Row {
    Row { name, loss, goals }
}

/// Every link, with the goals of row L1 of `figures delay`.
pub const ROWS: [Row; 8] = [
    row("iid 0 %", "0%", [ANY, ANY, ANY, 5.0, 1.10]),
    row("iid 1 %", "1%", [ANY, 1.0, 3.0, 6.0, 1.30]),
    row("iid 2 %", "2%", [ANY, 1.0, 4.0, 8.0, 1.32]),
    row("iid 5 %", "5%", [ANY, 1.0, 6.0, 18.0, 1.35]),
    row("iid 10 %", "10%", [3.0, 1.0, 10.0, 25.0, 1.45]),
    row("iid 20 %", "20%", [ANY, 2.0, 20.0, 50.0, 1.70]),
    row("Gilbert 5 % x 4", "gilbert:5%,4", [ANY, 1.0, 35.0, 90.0, 1.40]),
    row("Gilbert 10 % x 4", "gilbert:10%,4", [ANY, 2.0, 45.0, 100.0, 1.60]),
];

/// The records: 12.5 Mbit/s. The peers of docs/lab.md were measured with the same.
const LOAD: Load = Load { length: 1_200, gap: Duration::from_micros(768) };

/// What one run measured, in the order of [`Row::goals`].
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub whole: [f64; 5],
    pub steady: [f64; 5],
}

/// Carries records for `length` over the link of `row`.
pub fn run(row: &Row, seed: u64, length: Duration, binary: &Path) -> Result<Figures, String> {
    let deadline = Instant::now() + length + PATIENCE;
    let stage = Stage::start(binary, row.loss, seed, deadline)?;
    let (near, far) = stage.connect()?;
    let (epoch, stop) = (Instant::now(), AtomicBool::new(false));
    let (written, read) = thread::scope(|scope| {
        let writer = scope.spawn(|| write_records(epoch, &mut [near], LOAD, &stop));
        let reader = scope.spawn(|| read_records(epoch, far, LOAD.length));
        thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        (writer.join(), reader.join())
    });
    let problem = |error: std::io::Error| format!("the forwarded connection failed: {error}");
    let written = written.map_err(|_| "the writer panicked")?.map_err(problem)?;
    let arrivals = read.map_err(|_| "the reader panicked")?.map_err(problem)?;
    let lines = stage.end(deadline)?;
    if arrivals.len() as u64 != written {
        return Err(format!("{} of {written} records arrived", arrivals.len()));
    }
    Ok(Figures {
        whole: part(&arrivals, &lines, epoch, Duration::ZERO)?,
        steady: part(&arrivals, &lines, epoch, STEADY_FROM)?,
    })
}

/// Figures of the records made from `from` on, and of the bytes sent since then.
fn part(arrivals: &[Arrival], lines: &[Line], epoch: Instant, from: Duration) -> Result<[f64; 5], String> {
    let [mean, p50, p95, p99] = delays(arrivals.iter().copied().filter(|arrival| arrival.made >= from), ONE_WAY);
    let mut counts = lines.iter().filter(|line| line.is("link_stats"));
    let bytes = |line: &Line| line.number("/forward/offered_bytes");
    let last = counts.next_back().ok_or("the link counted nothing")?;
    // Bytes are counted from the first `link_stats` after `from`; in the whole run all bytes count.
    let (since, before) = match counts.find(|line| line.at >= epoch + from) {
        Some(first) if !from.is_zero() => (first.at.duration_since(epoch), bytes(first)?),
        _ => (Duration::ZERO, 0.0),
    };
    let records = arrivals.iter().filter(|arrival| arrival.made >= since).count();
    let sent = (bytes(last)? - before) / (records * LOAD.length) as f64;
    Ok([mean, p50, p95, p99, sent])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_three_seconds_count_only_in_the_whole_run() {
        let (epoch, ms) = (Instant::now(), Duration::from_millis);
        let late = |n: u64| if n < 1_000 { 60 } else { 1 };
        let arrivals: Vec<_> = (0..10_000).map(|n| Arrival { made: ms(n), delay: ONE_WAY + ms(late(n)) }).collect();
        let count = |seconds: u64, bytes: u64| Line {
            at: epoch + Duration::from_secs(seconds),
            event: json!({"event": "link_stats", "forward": {"offered_bytes": bytes}}),
        };
        // Each record costs 1,500 bytes from the third second on, and 3,000 before.
        let lines = [count(0, 0), count(2, 6_000_000), count(3, 9_000_000), count(10, 19_500_000)];
        let close = |figures: [f64; 5], wanted: [f64; 5]| {
            assert!(figures.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{figures:?}");
        };
        close(part(&arrivals, &lines, epoch, Duration::ZERO).unwrap(), [6.9, 1.0, 60.0, 60.0, 1.625]);
        close(part(&arrivals, &lines, epoch, STEADY_FROM).unwrap(), [1.0, 1.0, 1.0, 1.0, 1.25]);
        assert!(part(&arrivals, &[], epoch, STEADY_FROM).is_err());
    }
}
