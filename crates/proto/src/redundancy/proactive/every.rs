//! The streaming code at a fixed rate: one repair after every `l - 1` source symbols, over the whole window
//! (paper K, K-A1 to K-A3).
//!
//! `l` is a real number. Each source symbol adds `1/(l-1)` to the repairs due, so the repairs are evenly
//! spaced.

use super::ProactivePolicy;
use crate::redundancy::{CodingContext, Repair};

/// One repair in `spacing` packets.
#[derive(Debug)]
pub struct Every {
    per_source: f64,
    due: f64,
}

impl Every {
    /// `spacing` is the number of packets per repair, the repair included. It must be above 1.
    pub fn new(spacing: f64) -> Self {
        Self { per_source: 1.0 / (spacing - 1.0), due: 0.0 }
    }
}

impl ProactivePolicy for Every {
    fn on_source_sent(&mut self, _cx: &CodingContext<'_>) {
        self.due += self.per_source;
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        // Rounding must not delay the fifth repair of every:5 by a slot.
        if self.due + 1e-9 < 1.0 {
            return None;
        }
        let (first, count) = cx.newest_span(cx.limits.max_span)?;
        self.due -= 1.0;
        Some(Repair::Coded { first, count, row: None, on_feedback: false })
    }
}
