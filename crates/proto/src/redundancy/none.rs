//! No redundancy: a lost source symbol is sent again, and nothing else is (selective-repeat ARQ).

use super::{CodingContext, RedundancyPolicy, Repair};

/// Plain retransmission.
#[derive(Debug)]
pub struct NoRedundancy;

impl RedundancyPolicy for NoRedundancy {
    fn next_repair(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        cx.lost.map(Repair::Resend)
    }
}
