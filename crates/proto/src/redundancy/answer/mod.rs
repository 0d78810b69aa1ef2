//! Answer policies: the repairs that a lane sends for losses the peer reported. One file for each policy.
//!
//! The answers of published papers are in `redundancy/papers/`.

mod blocks;
mod deficit;
mod open;
mod planned;
mod regions;
mod resend;

use core::fmt;

use tidewire_codec::SourceId;

use super::{Closed, CodingContext, Repair, RepairInFlight};
use crate::Time;

pub(crate) use deficit::{Deficit, combine_unseen};
pub use deficit::{answer_deficit, resend_unseen};
pub(crate) use open::Open;
pub use planned::AsPlanned;
pub(crate) use regions::RegionAnswers;
pub(crate) use resend::Resend;

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
