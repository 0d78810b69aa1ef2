//! No proactive repair.

use super::ProactivePolicy;
use crate::redundancy::{CodingContext, Repair};

/// Sends nothing before it is asked for.
#[derive(Debug)]
pub struct NoRepair;

impl ProactivePolicy for NoRepair {
    fn next(&mut self, _cx: &CodingContext<'_>) -> Option<Repair> {
        None
    }
}
