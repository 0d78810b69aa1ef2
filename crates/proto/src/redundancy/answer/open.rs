//! No answers: an open loop. Feedback only moves the lower edge of the window.

use super::AnswerPolicy;
use crate::redundancy::{CodingContext, Repair};

/// Never sends an answer.
#[derive(Debug)]
pub(crate) struct Open;

impl AnswerPolicy for Open {
    fn next(&mut self, _cx: &CodingContext<'_>) -> Option<Repair> {
        None
    }
}
