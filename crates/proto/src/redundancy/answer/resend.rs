//! Selective-repeat ARQ: retransmits each lost source symbol.

use super::AnswerPolicy;
use crate::redundancy::{CodingContext, Repair};

/// Plain retransmission.
#[derive(Debug)]
pub(crate) struct Resend;

impl AnswerPolicy for Resend {
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        cx.lost.map(Repair::Resend)
    }
}
