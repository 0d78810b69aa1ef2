//! Measures what a path and this transport give: records that contain the time at which they were made, over
//! several streams.
//!
//! The verb `bench` calls [`client::run`] on one side and [`server::serve`] on the other; `docs/bench.md` has
//! their messages. The side where the records arrive measures goodput and in-order delay, the other side
//! packets, losses and bytes on the wire. Invariant: a delay is the arrival of a record's last byte in order,
//! minus the time when its application had it, minus the least such difference of the run. So the clocks need
//! not agree.

mod alarm;
pub mod client;
mod control;
mod records;
pub mod require;
pub mod server;
mod so_far;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use tidewire_command::report::{Delay, RateControl};

pub use so_far::SoFar;

/// Shortest record: a time and a few bytes more.
pub const LEAST_RECORD: u32 = 16;
/// Longest record. Chosen.
pub const MOST_RECORD: u32 = 1 << 20;
/// Maximum number of streams: as many as a default endpoint allows its peer, except the control stream and a
/// reserve.
pub const MOST_PARALLEL: u16 = 100;
/// Limit of the time of a run and of the interval between its reports. Chosen.
pub const LONGEST: Duration = Duration::from_secs(24 * 3_600);
/// Shortest interval between reports.
pub const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// What the client wants to measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Whether the server sends.
    pub reverse: bool,
    /// How long records are made.
    pub seconds: f64,
    /// Bits of records per second, over all streams. Without a rate, as fast as the path takes them.
    pub rate_bps: Option<u64>,
    /// Number of streams.
    pub parallel: u16,
    /// From [`LEAST_RECORD`] to [`MOST_RECORD`].
    pub record_bytes: u32,
    /// Interval between reports.
    pub interval_seconds: f64,
    /// Name of the client's clock (see [`clock_name`]).
    pub clock: String,
}

impl Order {
    /// Checks whether a server should accept it.
    ///
    /// # Errors
    /// Says what is wrong.
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

/// Data that arrived in an interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Interval {
    /// Start of the interval, from the arrival of the first byte.
    pub from_seconds: f64,
    /// End of the interval, from the arrival of the first byte.
    pub to_seconds: f64,
    /// Bytes of records.
    pub bytes: u64,
    /// `8 * bytes / (to_seconds - from_seconds)`.
    pub goodput_bps: f64,
    /// In-order delay of the records.
    pub record_delay_ms: Delay,
    /// Rate control at the end of the interval; absent where the client does not send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_control: Option<RateControl>,
}

/// Nanoseconds of the system's monotonic clock, which all processes of a machine share.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Name of the monotonic clock. It is the same in all processes from one start of one machine to the next,
/// and empty if it cannot be known.
pub fn clock_name() -> String {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if boot.is_empty() { String::new() } else { blake3::hash(&boot).to_hex()[..16].to_owned() }
}

/// Whether a peer's clock is ours.
fn is_our_clock(name: &str) -> bool {
    !name.is_empty() && name == clock_name()
}
