//! No proactive repair.

use super::ProactivePolicy;
use crate::redundancy::{CodingContext, Repair};

/// Never sends a proactive repair.
#[derive(Debug)]
pub(crate) struct NoRepair;

impl ProactivePolicy for NoRepair {
    fn next(&mut self, _cx: &CodingContext<'_>) -> Option<Repair> {
        None
    }
}
