//! When the connection must be woken, and what it does then.
//!
//! A timer is a moment computed from state, never a queue. After [`Connection::expire`] and a drained `poll_transmit`, no timer lies in the past: each
//! is either acted on, or moved, or not armed.

use core::time::Duration;

use super::{CloseReason, Connection, State, WakeReason};
use crate::Time;
use crate::path::MAX_FEEDBACK_DELAY;

/// Without an answer one probe leaves per probe timeout for this long, then ever fewer (DESIGN section 6).
const STEADY_PROBES: Duration = Duration::from_secs(1);
/// Packets per probe timeout (RFC 9002 section 6.2.4): a single one is lost with the tail of a burst.
const PROBES: u8 = 2;
/// ... but never fewer than one in this time.
const SLOWEST_PROBES: Duration = Duration::from_secs(2);

impl Connection {
    pub(super) fn expire(&mut self, now: Time) {
        match &self.state {
            State::Connecting(initiator) => {
                if initiator.expired(now) {
                    self.end(CloseReason::NoAnswer);
                }
                return;
            }
            State::Closing { until, .. } | State::Draining { until } => {
                if now >= *until {
                    self.state = State::Closed;
                }
                return;
            }
            State::Closed => return,
            State::Established { .. } => {}
        }
        if now >= self.last_heard + self.idle_timeout {
            return self.end(CloseReason::Idle);
        }
        if self.path.loss.deadline().is_some_and(|deadline| deadline <= now) {
            self.detect_losses(now);
        }
        if self.probe_deadline().is_some_and(|deadline| deadline <= now) {
            if self.path.probes == 0 {
                self.path.probing_since = now;
            }
            self.path.probes += 1;
            self.path.probes_owed = PROBES;
        }
        self.expire_messages(now);
        self.wake_writers(now);
    }

    /// When silence becomes suspicious: something is in flight, or is not known to be decoded, or the peer's credit is waited for.
    fn probe_deadline(&self) -> Option<Time> {
        let blocked = self.lanes.is_blocked() || self.streams.is_blocked();
        let waits = !self.path.flight.is_empty() || self.lanes.is_lacking() || blocked;
        if !waits || self.path.probes_owed > 0 {
            return None;
        }
        let timeout = self.path.rtt.probe_timeout(MAX_FEEDBACK_DELAY);
        if self.path.probes == 0 {
            return Some(self.path.last_eliciting + timeout);
        }
        let silent = self.path.last_eliciting.since(self.path.probing_since);
        // Doubling from then on: the wait is as long as the silence beyond the steady second.
        let wait =
            if silent <= STEADY_PROBES { timeout } else { timeout.max((silent - STEADY_PROBES).min(SLOWEST_PROBES)) };
        Some(self.path.last_eliciting + wait)
    }

    pub(super) fn next_timer(&mut self) -> Option<(Time, WakeReason)> {
        match &self.state {
            State::Connecting(initiator) => return initiator.poll_timeout().map(|at| (at, WakeReason::Handshake)),
            State::Closing { next, until, .. } => return Some(((*next).min(*until), WakeReason::Idle)),
            State::Draining { until } => return Some((*until, WakeReason::Idle)),
            State::Closed => return None,
            State::Established { .. } => {}
        }
        let mut next = (self.last_heard + self.idle_timeout, WakeReason::Idle);
        let mut arm = |at: Option<Time>, reason| {
            if let Some(at) = at.filter(|&at| at < next.0) {
                next = (at, reason);
            }
        };
        arm(self.path.loss.deadline(), WakeReason::Loss);
        arm(self.probe_deadline(), WakeReason::Probe);
        arm(self.path.feedback.due(self.path.rtt.least_or_zero()), WakeReason::Feedback);
        arm(self.next_deadline(), WakeReason::Deadline);
        let budget = self.path.rate.budget();
        let size = u64::from(self.path.mtu.current()) + crate::path::IP_UDP_HEADER as u64;
        if self.path.flight.bytes() + size <= budget.window {
            // What could leave at `last_asked` has left; only what the pacer or a policy holds back needs a timer.
            let asked = self.last_asked;
            let later = |at: Time| Some(at).filter(|&at| at > asked);
            let open = self.path.pacer.due();
            if self.lanes.has_work() {
                arm(later(open), WakeReason::Pace);
            }
            arm(self.path.mtu.next_probe().and_then(|at| later(at.max(open))), WakeReason::PacketSize);
            let policy = self.policy_timeout(open.max(asked));
            arm(policy.and_then(|at| later(at.max(open))), WakeReason::Redundancy);
        }
        Some(next)
    }
}
