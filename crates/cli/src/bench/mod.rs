//! Measuring what a path and this transport give: records that carry the time they were made, over as many
//! streams as asked for.
//!
//! The verb `bench` calls [`client::run`] on one side and [`server::serve`] on the other; `docs/bench.md`
//! says what they say to each other. What is measured at the side where the records arrive: goodput and their
//! in-order delay; at the other: packets, losses and bytes on the wire. Invariant: a delay is the arrival of
//! a record's last byte in order, less the moment its application had it, less the least such difference of
//! the run, so that clocks need not agree.

mod alarm;
pub mod client;
mod control;
mod delays;
mod records;
pub mod require;
pub mod server;
pub mod tally;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::report::Delay;

/// Shortest record: it holds a time and something more.
pub const LEAST_RECORD: u32 = 16;
/// Longest record; chosen.
pub const MOST_RECORD: u32 = 1 << 20;
/// Most streams at once: as many as a default endpoint lets its peer open, less the control stream and some.
pub const MOST_PARALLEL: u16 = 100;
/// Longest run.
pub const LONGEST: Duration = Duration::from_secs(24 * 3_600);
/// Shortest time between reports.
pub const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// What the client wants measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The server sends.
    pub reverse: bool,
    /// How long records are made.
    pub seconds: f64,
    /// Bits of records per second, all streams together; without, as fast as the path takes them.
    pub rate_bps: Option<u64>,
    /// Streams.
    pub parallel: u16,
    /// Bytes of a record.
    pub record_bytes: u32,
    /// Time between reports.
    pub interval_seconds: f64,
    /// The client's clock by name (see [`clock_name`]).
    pub clock: String,
}

impl Order {
    /// Whether a server should take it; else what is wrong.
    ///
    /// # Errors
    /// In words.
    pub fn check(&self) -> Result<(), &'static str> {
        let check = |ok: bool, wrong| if ok { Ok(()) } else { Err(wrong) };
        check(self.seconds > 0.0 && self.seconds <= LONGEST.as_secs_f64(), "the time must be above 0 and at most 24h")?;
        check((1..=MOST_PARALLEL).contains(&self.parallel), "there must be from 1 to 100 streams")?;
        check((LEAST_RECORD..=MOST_RECORD).contains(&self.record_bytes), "a record must have from 16 bytes to 1 MiB")?;
        check(self.rate_bps != Some(0), "the rate must be above 0")?;
        check(
            self.interval_seconds >= LEAST_INTERVAL.as_secs_f64() && self.interval_seconds <= LONGEST.as_secs_f64(),
            "the interval must be from 100ms to 24h",
        )
    }
}

/// What arrived within a part of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Interval {
    /// Since the first byte arrived.
    pub from_seconds: f64,
    /// See `from_seconds`.
    pub to_seconds: f64,
    /// Bytes of records.
    pub bytes: u64,
    /// `8 * bytes / (to_seconds - from_seconds)`.
    pub goodput_bps: f64,
    /// In-order delay of the records.
    pub record_delay_ms: Delay,
}

/// The records of a whole run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Records {
    /// Records that arrived.
    pub delivered: u64,
    /// Bytes of each.
    pub bytes_each: u32,
    /// In-order delay: arrival of the last byte, less the time the record was made, less the least such
    /// difference.
    pub delay_ms: Delay,
    /// The same of the records made three seconds after the first one or later, when rate and loss of the
    /// path are found.
    #[serde(default)]
    pub steady_delay_ms: Delay,
    /// That least difference; known where both ends share a clock.
    pub one_way_ms: Option<f64>,
}

/// Nanoseconds of the system's monotonic clock, which all processes of one machine share.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Names the monotonic clock: the same in all processes since one start of one machine; empty where that
/// cannot be known.
pub fn clock_name() -> String {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if boot.is_empty() { String::new() } else { blake3::hash(&boot).to_hex()[..16].to_owned() }
}

/// Whether a peer's clock is ours.
fn is_our_clock(name: &str) -> bool {
    !name.is_empty() && name == clock_name()
}
