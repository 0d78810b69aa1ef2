//! Two hundred TCP connections through one Tidewire connection. Nobody reads one of them; this measures how
//! much that delays the others.
//!
//! A run has three parts. First the unread connection is open but silent. Then it is written to until it
//! accepts no more bytes. In the last part its buffers stay full, and the delays of the others are compared
//! with those of the first part.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::application::{Arrival, Load, delays, fill, reader, write_records};
use super::stage::Stage;
use super::{ONE_WAY, PATIENCE};

/// Number of connections, the unread one included.
const CONNECTIONS: u32 = 200;
/// Each of the others carries one record of 400 bytes every 100 ms: 6.4 Mbit/s together, a quarter of the
/// link.
const RECORD: usize = 400;
const INTERVAL: Duration = Duration::from_millis(100);
/// The unread connection is full if it accepts no byte for this long.
const FULL: Duration = Duration::from_secs(2);
/// The first part begins after this time, so that start-up does not count.
const SETTLED: Duration = Duration::from_secs(3);

/// Each row's name and its argument of `tidewire-lab link --loss`.
pub const ROWS: [(&str, &str); 2] = [("iid 0 %", "0%"), ("iid 10 %", "10%")];

/// Delays of the other connections in the three parts of a run: mean, p50, p95, p99 in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub silent: [f64; 4],
    pub filling: [f64; 4],
    pub unread: [f64; 4],
    /// Bytes that the unread connection accepted.
    pub taken: f64,
}

impl Figures {
    /// By how much the p99 of the others grew from the first to the last part.
    pub fn moved(&self) -> f64 {
        self.unread[3] - self.silent[3]
    }
}

/// Runs all three parts. The first and the last take `length` each.
pub fn run(loss: &str, seed: u64, length: Duration, binary: &Path) -> Result<Figures, String> {
    let deadline = Instant::now() + SETTLED + 2 * length + PATIENCE;
    let stage = Stage::start(binary, loss, seed, deadline)?;
    let (mut unread, never_read) = stage.connect()?;
    let (epoch, stop) = (Instant::now(), AtomicBool::new(false));
    let load = Load { length: RECORD, gap: INTERVAL / (CONNECTIONS - 1) };
    let problem = |error: std::io::Error| format!("a forwarded connection failed: {error}");
    let (mut near, mut readers) = (Vec::new(), Vec::new());
    for _ in 1..CONNECTIONS {
        let (one, other) = stage.connect()?;
        near.push(one);
        readers.push(reader(epoch, other, RECORD).map_err(problem)?);
    }
    let (marks, taken) = thread::scope(|scope| {
        let writer = scope.spawn(|| write_records(epoch, &mut near, load, &stop));
        let mut parts = || {
            thread::sleep(SETTLED);
            let silent = epoch.elapsed();
            thread::sleep(length);
            let filling = epoch.elapsed();
            let taken = fill(&mut unread, FULL)?;
            let full = epoch.elapsed();
            thread::sleep(length);
            Ok(([silent, filling, full, epoch.elapsed()], taken))
        };
        let parts = parts();
        stop.store(true, Ordering::Relaxed);
        writer.join().map_err(|_| "the writer panicked")?.map_err(problem)?;
        parts.map_err(problem)
    })?;
    let mut arrivals = Vec::new();
    for reader in readers {
        arrivals.extend(reader.join().map_err(|_| "a reader panicked")?.map_err(problem)?);
    }
    drop((unread, never_read));
    stage.end(deadline)?;
    let part = |from: Duration, to: Duration| {
        let within = |arrival: &Arrival| (from..to).contains(&arrival.made);
        delays(arrivals.iter().copied().filter(within), ONE_WAY)
    };
    let [silent, filling, full, end] = marks;
    Ok(Figures {
        silent: part(silent, filling),
        filling: part(filling, full),
        unread: part(full, end),
        taken: taken as f64,
    })
}
