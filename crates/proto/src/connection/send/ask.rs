//! Asks the policies of a lane, with what they may know.
//!
//! `slot` asks what to repair, `write` and `withheld` report source symbols, and the connection's timers ask
//! when. Invariant: a policy sees the state of the moment in which it is asked.

use core::time::Duration;

use super::super::lanes::Lane;
use super::super::{Connection, LaneId};
use crate::Time;
use crate::lane::STREAMS;
use crate::redundancy::{CodingContext, CodingLimits, FlowState, PathState, Planned, Policies};
use crate::trace::TraceEvent;
use crate::wire::Layout;

impl Connection {
    /// Calls the policies of a lane with their context.
    pub(super) fn ask_policies<R>(
        &mut self,
        now: Time,
        lane: u32,
        ask: impl FnOnce(&mut Policies, &CodingContext<'_>) -> R,
    ) -> Option<R> {
        let saturated = self.path.app_limited.is_saturated();
        let waiting = lane == STREAMS && self.streams.has_waiting();
        let path = &self.path;
        let Lane { sender, policies, .. } = self.lanes.get_mut(lane)?;
        let lost = sender.first_lost();
        let sender = &*sender;
        let cx = CodingContext {
            now,
            base: sender.base(),
            settled: sender.settled(),
            sent: sender.sent(),
            report: sender.report(),
            lost,
            in_flight: sender.repairs(),
            oldest: if sender.report().deficit > 0 {
                sender.oldest_age(now).unwrap_or_default()
            } else {
                Duration::ZERO
            },
            path: PathState {
                loss: path.losses.estimator.estimate(),
                rtt: path.rtt.smoothed(),
                saturated,
                room: path.room(),
                is_silent: path.pto.probes > 0,
            },
            flow: FlowState {
                backlog: sender.has_source() || waiting,
                credit: sender.credit(),
                interval: sender.source_interval(),
                last: sender.last_source(),
                in_order: lane == STREAMS || sender.is_in_order(now),
                important: sender.has_important(),
            },
            limits: CodingLimits {
                max_span: self.agreed.max_span,
                max_overhead: self.config.max_overhead(),
                protects_lone: self.config.repair.max_overhead.is_none(),
                target: self.config.target(),
                code: self.agreed.profile.code,
                is_withheld: policies.withholds_sources() && sender.layout() == Layout::Sliding,
            },
            planned: &Planned::NONE,
        };
        Some(ask(policies, &cx))
    }

    /// Tells the policies of a lane that a source symbol was sent for the first time, and what follows from
    /// it.
    pub(super) fn on_source_sent(&mut self, now: Time, lane: u32) {
        let changed = self.ask_policies(now, lane, |policies, cx| {
            let before = policies.planned();
            policies.on_source_sent(cx);
            policies.planned().filter(|&planned| Some(planned) != before)
        });
        if let Some(planned) = changed.flatten() {
            self.tracer.record(now, || TraceEvent::Planned { lane: LaneId(lane), planned });
        }
        self.make_ahead(lane);
    }

    /// When a policy wants to be asked again.
    pub(in crate::connection) fn policy_timeout(&mut self, now: Time) -> Option<Time> {
        let lanes = self.lanes.iter().count() as u32;
        (0..lanes).filter_map(|lane| self.ask_policies(now, lane, |policies, cx| policies.poll_timeout(cx))?).min()
    }

    /// Lets workers compute the repairs of a generation that the policy has just closed.
    pub(super) fn make_ahead(&mut self, lane: u32) {
        let inline = self.config.inline();
        let Some(Lane { sender, policies, .. }) = self.lanes.get_mut(lane) else { return };
        if let Some(closed) = policies.poll_closed() {
            sender.make_ahead(closed, inline);
        }
    }
}
