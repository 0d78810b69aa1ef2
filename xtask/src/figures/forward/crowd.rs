//! Two hundred TCP connections over one connection, one of them never read: what the others notice of it.
//!
//! A run has three parts: the one is open but silent; it is written to until nothing more is taken; nobody reads it. Its buffers are full
//! in the last part, and the others are held to what they were in the first.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::application::{Arrival, Load, delays, fill, reader, write_records};
use super::stage::Stage;
use super::{ONE_WAY, PATIENCE};

/// Connections, with the one that is not read.
const CONNECTIONS: u32 = 200;
/// Each of the others has a record in a tenth of a second: 6.4 Mbit/s together, a quarter of the link.
const RECORD: usize = 400;
const INTERVAL: Duration = Duration::from_millis(100);
/// The one takes nothing any more after so long.
const FULL: Duration = Duration::from_secs(2);
/// What start-up costs is not part of the first part.
const SETTLED: Duration = Duration::from_secs(3);

/// What `lab link --loss` is given, and its name.
pub const ROWS: [(&str, &str); 2] = [("iid 0 %", "0%"), ("iid 10 %", "10%")];

/// What one run measured of the others: mean, p50, p95, p99 in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub silent: [f64; 4],
    pub filling: [f64; 4],
    pub unread: [f64; 4],
    /// Bytes that the one took.
    pub taken: f64,
}

impl Figures {
    /// How far the others' p99 moved.
    pub fn moved(&self) -> f64 {
        self.unread[3] - self.silent[3]
    }
}

/// First and last part take `length` each.
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
