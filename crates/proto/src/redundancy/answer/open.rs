//! No answers: an open loop. The window's lower edge follows the peer's feedback, and nothing else does.

use super::AnswerPolicy;
use crate::redundancy::{CodingContext, Repair};

/// Answers nothing.
#[derive(Debug)]
pub struct Open;

impl AnswerPolicy for Open {
    fn next(&mut self, _cx: &CodingContext<'_>) -> Option<Repair> {
        None
    }
}
