//! Answers: what a lane sends for what the peer reports. One file for each policy.

mod deficit;
mod open;
mod planned;
mod regions;
mod resend;

use core::fmt;

use tidewire_codec::SourceId;

use super::{CodingContext, Repair, RepairInFlight};
use crate::{Custom, Time};

pub use deficit::{Deficit, answer_deficit, resend_unseen};
pub use open::Open;
pub use planned::AsPlanned;
pub(super) use planned::is_sparing;
pub use regions::RegionAnswers;
pub use resend::Resend;

/// What to send for what the peer reports.
pub trait AnswerPolicy: Send + fmt::Debug {
    /// The source symbol `cx.sent - 1` was just sent for the first time.
    fn on_source_sent(&mut self, _cx: &CodingContext<'_>) {}
    /// The fate of a source symbol's first transmission is known. What was taken for lost can arrive after
    /// all.
    fn on_source_settled(&mut self, _id: SourceId, _arrived: bool) {}
    /// The fate of a coded repair is known.
    fn on_repair_settled(&mut self, _repair: &RepairInFlight, _arrived: bool) {}
    /// A slot is free: the answer worth sending now, which is then sent. It is asked for each packet, so it
    /// must be cheap.
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair>;
    /// When to ask again although nothing arrived and nothing was sent.
    fn poll_timeout(&self, _cx: &CodingContext<'_>) -> Option<Time> {
        None
    }
}

/// Which answer policy to run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// Nothing is answered. Only a silence asks for the oldest symbol again: for experiments.
    Open,
    /// A lost source symbol is sent again.
    Resend,
    /// Each reported deficit gets as many repairs.
    Deficit,
    /// The same, with the margin of the planner: for `adaptive`.
    Planned,
    /// A policy from outside this crate.
    Custom(Custom<dyn AnswerPolicy>),
}

impl Answer {
    /// Names that a user can write; each is an answer's [`Display`](fmt::Display) text.
    pub(super) const NAMED: [(&'static str, Self); 4] =
        [("open", Self::Open), ("resend", Self::Resend), ("deficit", Self::Deficit), ("planned", Self::Planned)];

    pub(super) fn build(self) -> Box<dyn AnswerPolicy> {
        match self {
            Self::Open => Box::new(Open),
            Self::Resend => Box::new(Resend),
            Self::Deficit => Box::new(Deficit::default()),
            Self::Planned => Box::new(AsPlanned::default()),
            Self::Custom(custom) => custom.build(),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Custom(custom) = self {
            return custom.fmt(f);
        }
        let named = Self::NAMED.iter().find(|(_, answer)| answer == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}
