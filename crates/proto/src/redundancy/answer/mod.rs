//! Answer policies: the repairs that a lane sends for losses the peer reported. One file for each policy.

mod blocks;
mod deficit;
mod icm;
mod open;
mod planned;
mod regions;
mod resend;

use core::fmt;

use tidewire_codec::SourceId;

use super::{Closed, CodingContext, Repair, RepairInFlight};
use crate::{Custom, Time};

pub use deficit::{Deficit, answer_deficit, combine_unseen, resend_unseen};
pub use icm::{Icm, Trigger};
pub use open::Open;
pub use planned::AsPlanned;
pub(super) use planned::is_sparing;
pub use regions::RegionAnswers;
pub use resend::Resend;

/// Decides which repairs to send for reported losses.
pub trait AnswerPolicy: Send + fmt::Debug {
    /// Called when the source symbol `cx.sent - 1` was sent for the first time.
    fn on_source_sent(&mut self, _cx: &CodingContext<'_>) {}
    /// Called when the first transmission of a source symbol is known to be received or lost. A symbol that
    /// was declared lost can still be reported as received later.
    fn on_source_settled(&mut self, _id: SourceId, _arrived: bool) {}
    /// Called when a source symbol that was sent again is known to be received or lost.
    fn on_resent_settled(&mut self, _id: SourceId, _arrived: bool) {}
    /// Called when the proactive policy has closed a generation.
    fn on_closed(&mut self, _closed: &Closed) {}
    /// Called when a coded repair is known to be received or lost.
    fn on_repair_settled(&mut self, _repair: &RepairInFlight, _arrived: bool) {}
    /// Returns the answer to send in a free slot. The caller must send it. This is called for each packet, so
    /// it must be cheap.
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair>;
    /// The time to ask again if nothing arrives and nothing is sent until then.
    fn poll_timeout(&self, _cx: &CodingContext<'_>) -> Option<Time> {
        None
    }
}

/// Which answer policy to run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// Reported losses are not answered. After a silence, the oldest symbol is still sent again. For
    /// experiments.
    Open,
    /// Each lost source symbol is retransmitted.
    Resend,
    /// Each reported deficit is answered with the same number of repairs.
    Deficit,
    /// Each reported deficit is answered with the same number of repairs plus the planner's margin. Used with
    /// `adaptive`.
    Planned,
    /// The missing source symbols of a block that cannot be decoded are sent again, with repairs beside them.
    /// Used with `sphinx`; the proactive policy must close generations.
    Icm(Trigger),
    /// A policy from outside this crate.
    Custom(Custom<dyn AnswerPolicy>),
}

impl Answer {
    /// Names that a user can write. Each is also the [`Display`](fmt::Display) text of the answer policy.
    const NAMED: [(&'static str, Self); 4] =
        [("open", Self::Open), ("resend", Self::Resend), ("deficit", Self::Deficit), ("planned", Self::Planned)];

    /// The answer policy with this name.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let named = Self::NAMED.iter().find(|(name, _)| *name == text).map(|&(_, answer)| answer);
        named.or_else(|| Trigger::parse(text).map(Self::Icm))
    }

    pub(super) fn build(self) -> Box<dyn AnswerPolicy> {
        match self {
            Self::Open => Box::new(Open),
            Self::Resend => Box::new(Resend),
            Self::Deficit => Box::new(Deficit::default()),
            Self::Planned => Box::new(AsPlanned::default()),
            Self::Icm(trigger) => Box::new(Icm::new(trigger)),
            Self::Custom(custom) => custom.build(),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Custom(custom) => return custom.fmt(f),
            Self::Icm(trigger) => return trigger.fmt(f),
            _ => {}
        }
        let named = Self::NAMED.iter().find(|(_, answer)| answer == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}
