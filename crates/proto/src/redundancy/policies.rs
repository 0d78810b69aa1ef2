//! The two policies of one lane, and the planner that both of them read.
//!
//! The connection calls it for each packet of a lane. Invariant: the answer policy is asked first, and the
//! proactive policy hears of each answer.

use tidewire_codec::SourceId;

use super::{
    AnswerPolicy, Closed, CodingContext, Plan, Planned, Planner, ProactivePolicy, Redundancy, Repair, RepairInFlight,
};
use crate::Time;

/// The policies of one lane, and the planner that both of them read.
#[derive(Debug)]
pub(crate) struct Policies {
    /// `None` if neither policy needs a plan.
    planner: Option<Planner>,
    proactive: Box<dyn ProactivePolicy>,
    answer: Box<dyn AnswerPolicy>,
    /// [`ProactivePolicy::withholds_sources`], which is needed several times for each packet.
    withholds_sources: bool,
}

impl Policies {
    pub(crate) fn new(redundancy: Redundancy) -> Self {
        let proactive = redundancy.proactive.build();
        Self {
            planner: redundancy.needs_plan().then(Planner::default),
            withholds_sources: proactive.withholds_sources(),
            proactive,
            answer: redundancy.answer.build(),
        }
    }

    /// Whether source symbols are not sent themselves.
    pub(crate) fn withholds_sources(&self) -> bool {
        self.withholds_sources
    }

    /// Called when the source symbol `cx.sent - 1` was sent for the first time.
    pub(crate) fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        if let Some(planner) = &mut self.planner {
            planner.on_source_sent(cx);
        }
        let cx = with_plan(cx, self.planner.as_ref());
        self.proactive.on_source_sent(&cx);
        self.answer.on_source_sent(&cx);
    }

    /// Called when the first transmission of a source symbol is known to be received or lost.
    pub(crate) fn on_source_settled(&mut self, id: SourceId, arrived: bool) {
        self.proactive.on_source_settled(id, arrived);
        self.answer.on_source_settled(id, arrived);
    }

    /// Called when a source symbol that was sent again is known to be received or lost.
    pub(crate) fn on_resent_settled(&mut self, id: SourceId, arrived: bool) {
        self.proactive.on_resent_settled(id, arrived);
        self.answer.on_resent_settled(id, arrived);
    }

    /// Called when a coded repair is known to be received or lost.
    pub(crate) fn on_repair_settled(&mut self, repair: &RepairInFlight, arrived: bool) {
        self.proactive.on_repair_settled(repair, arrived);
        self.answer.on_repair_settled(repair, arrived);
    }

    /// Returns the repair to send in a free slot. The caller must send it.
    pub(crate) fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let cx = with_plan(cx, self.planner.as_ref());
        if let Some(repair) = self.answer.next(&cx) {
            self.proactive.on_answer(&cx, &repair);
            return Some(repair);
        }
        self.proactive.next(&cx)
    }

    /// Returns a generation that was closed since the last call. Call this after each call that can close
    /// one.
    pub(crate) fn poll_closed(&mut self) -> Option<Closed> {
        let closed = self.proactive.poll_closed()?;
        self.answer.on_closed(&closed);
        Some(closed)
    }

    /// The newest decision of the planner; `None` for policies without one.
    pub(crate) fn planned(&self) -> Option<Planned> {
        self.planner.as_ref().map(|planner| *planner.planned())
    }

    /// The current plan, once enough is known about the path.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.planner.as_ref().and_then(|planner| planner.planned().plan.as_ref())
    }

    /// The time to ask again if nothing arrives and nothing is sent until then.
    pub(crate) fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        let cx = with_plan(cx, self.planner.as_ref());
        self.proactive.poll_timeout(&cx).into_iter().chain(self.answer.poll_timeout(&cx)).min()
    }
}

/// The context with the planner's decision filled in.
fn with_plan<'a>(cx: &CodingContext<'a>, planner: Option<&'a Planner>) -> CodingContext<'a> {
    CodingContext { planned: planner.map_or(&Planned::NONE, Planner::planned), ..*cx }
}
