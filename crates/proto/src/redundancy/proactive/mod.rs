//! Proactive policies: the repairs that a lane sends before a loss is known. One file for each policy.
//!
//! The policies of published papers are in `redundancy/papers/`.

mod adaptive;
mod block;
mod cap;
mod every;
mod none;

use core::fmt;

use tidewire_codec::SourceId;

use super::{Closed, CodingContext, Repair, RepairInFlight};
use crate::Time;

pub use adaptive::Adaptive;
pub(crate) use block::Block;
pub use every::Every;
pub(crate) use none::NoRepair;

/// Decides when to send proactive repairs, and over which span.
pub trait ProactivePolicy: Send + fmt::Debug {
    /// Whether source symbols are not sent themselves, because repairs replace them. Each symbol must then be
    /// in the span of a repair of its own. Always the same for a policy.
    fn withholds_sources(&self) -> bool {
        false
    }
    /// Called when the source symbol `cx.sent - 1` was sent for the first time.
    fn on_source_sent(&mut self, _cx: &CodingContext<'_>) {}
    /// Called when the first transmission of a source symbol is known to be received or lost. A symbol that
    /// was declared lost can still be reported as received later.
    fn on_source_settled(&mut self, _id: SourceId, _arrived: bool) {}
    /// Called when a source symbol that was sent again is known to be received or lost.
    fn on_resent_settled(&mut self, _id: SourceId, _arrived: bool) {}
    /// Called when a coded repair is known to be received or lost.
    fn on_repair_settled(&mut self, _repair: &RepairInFlight, _arrived: bool) {}
    /// Called when the slot is used for this answer. An answer can make a proactive repair unnecessary.
    fn on_answer(&mut self, _cx: &CodingContext<'_>, _answer: &Repair) {}
    /// Returns the repair to send in a free slot, when no answer is due. The caller must send it. This is
    /// called for each packet, so it must be cheap.
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair>;
    /// Returns, once, a generation that [`Self::on_source_sent`] or [`Self::next`] has just closed. Workers
    /// then compute its repairs in advance.
    fn poll_closed(&mut self) -> Option<Closed> {
        None
    }
    /// The time to ask again if nothing arrives and nothing is sent until then.
    fn poll_timeout(&self, _cx: &CodingContext<'_>) -> Option<Time> {
        None
    }
}
