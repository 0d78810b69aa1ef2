//! Delays of records: what `tidewire bench` and `tidewire-lab sim` measure of an application's data, in one
//! way.
//!
//! [`Tally`] counts the records of a run, and [`Records`] is what both report.

mod tally;

use serde::{Deserialize, Serialize};

use crate::report::Delay;

pub use tally::Tally;

/// The records of a whole run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Records {
    /// Records that arrived.
    pub delivered: u64,
    /// The length of each.
    pub bytes_each: u32,
    /// In-order delay: arrival of the last byte, minus the time at which the record was made, minus the least
    /// such difference.
    pub delay_ms: Delay,
    /// The same for records made at least three seconds after the first one, when rate and loss of the path
    /// are known.
    #[serde(default)]
    pub steady_delay_ms: Delay,
    /// The least difference itself; known if both ends share a clock.
    pub one_way_ms: Option<f64>,
}
