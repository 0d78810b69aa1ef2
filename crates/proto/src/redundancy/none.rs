//! No redundancy: a lost source symbol is sent again, and nothing else is (selective-repeat ARQ).

use super::{CodingContext, RedundancyPolicy, Repair};

/// Plain retransmission.
#[derive(Debug)]
pub struct NoRedundancy;

impl RedundancyPolicy for NoRedundancy {
    fn next_repair(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if let Some(lost) = cx.lost {
            return Some(Repair::Resend(lost));
        }
        // Nothing was heard: the oldest symbol that may be lacking asks for an answer.
        (cx.probe && cx.base < cx.sent).then_some(Repair::Resend(cx.base))
    }
}
