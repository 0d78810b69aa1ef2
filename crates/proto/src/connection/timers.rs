//! When the connection must be woken, and what it does then.
//!
//! A timer is a moment computed from state, never a queue. After [`Connection::expire`] and a drained `poll_transmit`, no timer lies in the past: each
//! is either acted on, or moved, or not armed.

use core::time::Duration;

use super::{CloseReason, Connection, Side, State, WakeReason};
use crate::Time;
use crate::path::{IP_UDP_HEADER, MAX_FEEDBACK_DELAY, STEADY_PROBES};
use crate::wire::ConnectionId;

/// Probes per round trip meanwhile: one must leave, be answered, and what it asks for arrive, within two round trips of the link's return.
const PROBES_PER_RTT: u32 = 3;
/// ... but not more often than this: a hundred small packets before the circuit breaks, whatever the round trip. Chosen.
const FASTEST_PROBES: Duration = Duration::from_millis(10);
/// ... and never fewer than one in this time: DESIGN section 6 says two seconds, but the full rate within two seconds of the link's return
/// (RELIABILITY S5, S9) leaves one second to notice it.
const SLOWEST_PROBES: Duration = Duration::from_secs(1);
/// A peer that was silent for this long, or for three probe timeouts, may have been restarted (RELIABILITY 5.5) ...
const SUSPICIOUS: Duration = Duration::from_millis(1_500);
const SUSPICIOUS_TIMEOUTS: u32 = 3;
/// ... and for this long every probe asks just that, so that the answer is there within 3 s and a round trip (S1); from then on every other.
const URGENT: Duration = Duration::from_millis(1_500);

/// Symbols that stop coming for this many probe timeouts are asked after once, by the end whose address may have changed unnoticed: often enough a
/// pause is nothing but that. Chosen.
const SILENT_TIMEOUTS: u32 = 3;

impl Connection {
    pub(super) fn expire(&mut self, now: Time) {
        match &self.state {
            State::Connecting(initiator) => {
                if initiator.expired(now) {
                    self.end(CloseReason::NoAnswer);
                }
                return;
            }
            State::Closing { until: Some(until), .. } | State::Draining { until } => {
                if now >= *until {
                    self.state = State::Closed;
                }
                return;
            }
            State::Closing { until: None, .. } => return,
            State::Closed => return,
            State::Established { .. } => {}
        }
        if now >= self.last_heard + self.idle_timeout {
            return self.end(CloseReason::Idle);
        }
        self.ids.forget(now);
        self.validation.expire(now, self.path.rtt.probe_timeout(MAX_FEEDBACK_DELAY));
        // First: what is given up is news for the peer, whose silence may be overdue at once.
        self.expire_messages(now);
        if self.validation.is_proven() {
            self.expire_path(now);
        }
        self.wake_writers(now);
    }

    /// Timers of the address in use.
    fn expire_path(&mut self, now: Time) {
        if self.path.losses.detector.deadline().is_some_and(|deadline| deadline <= now) {
            self.detect_losses(now);
        }
        if self.probe_deadline().is_some_and(|deadline| deadline <= now) {
            if self.path.silence.probes == 0 {
                self.path.silence.probing_since = now;
            }
            self.path.silence.probes += 1;
            if self.asks_after_itself(now) {
                (self.path.silence.last_probe, self.inquiry_owed) = (now, true);
            } else {
                self.path.silence.probe_owed = true;
                self.path.silence.ping_owed =
                    self.path.silence.probes > 1 && self.path.mtu.is_raised() && !self.path.silence.is_broken();
            }
        }
        if self.sign_of_life_deadline().is_some_and(|deadline| deadline <= now) {
            self.heard_symbol = None;
            self.path.silence.probe_owed = true;
        }
    }

    /// Whether the probe that is due now asks if the peer knows us, and not only if it hears us. Only the end that connected knows where to ask.
    fn asks_after_itself(&self, now: Time) -> bool {
        let patience = (self.path.rtt.probe_timeout(MAX_FEEDBACK_DELAY) * SUSPICIOUS_TIMEOUTS).max(SUSPICIOUS);
        let silent = now.since(self.last_heard);
        self.side == Side::Initiator
            && silent >= patience
            && (silent < patience + URGENT || self.path.silence.probes.is_multiple_of(2))
    }

    /// Whether the endpoint is to send a HELLO that asks after this connection; says so once.
    pub(crate) fn take_inquiry(&mut self) -> bool {
        core::mem::take(&mut self.inquiry_owed)
    }

    /// What the peer calls this connection, and since when it was not heard of; none when it is over.
    pub(crate) fn silence(&self) -> Option<(ConnectionId, Time)> {
        let State::Established { .. } = self.state else { return None };
        self.keys.as_ref().map(|keys| (keys.peer_ids.current(), self.last_heard))
    }

    /// A HELLO of so many bytes left.
    pub(crate) fn on_inquiry_sent(&mut self, len: usize) {
        self.stats.wire_bytes_sent += (len + IP_UDP_HEADER) as u64;
    }

    /// The peer answers again, and said whether it knows this connection.
    pub(crate) fn on_answer(&mut self, known: bool) {
        if known {
            self.path.silence.probe_owed = true;
        } else {
            self.end(CloseReason::Forgotten);
        }
    }

    /// When silence becomes suspicious: something is in flight, or is not known to be decoded, or the peer's credit is waited for.
    fn probe_deadline(&self) -> Option<Time> {
        let blocked = self.lanes.is_blocked() || self.streams.is_blocked();
        let waits = !self.path.flight.is_empty() || self.lanes.is_lacking() || blocked;
        if !waits || self.path.silence.probe_owed {
            return None;
        }
        let path = &self.path;
        if path.silence.probes == 0 {
            // As a retransmission timer runs (RFC 6298 section 5.3): from the last answer while something is in flight, not from the last packet,
            // or a sender whose window is large would go on for all of it before it asks.
            let timeout = path.rtt.probe_timeout(MAX_FEEDBACK_DELAY);
            if !path.flight.is_empty() || self.lanes.is_lacking() {
                let since =
                    if path.flight.is_empty() { path.silence.last_eliciting } else { path.silence.waiting_since };
                return Some(since + timeout);
            }
            // Only credit is waited for, which the peer repeats until it is acknowledged: who asks for it asks ever more seldom.
            let waited = path.silence.last_eliciting.since(path.usage.last_data);
            return Some(path.silence.last_eliciting + waited.min(SLOWEST_PROBES).max(timeout));
        }
        let steady = (path.rtt.smoothed() / PROBES_PER_RTT).max(FASTEST_PROBES);
        let silent = path.silence.last_probe.since(path.silence.probing_since);
        // Doubling from then on: the wait is as long as the silence beyond the steady second.
        Some(path.silence.last_probe + steady.max(silent.saturating_sub(STEADY_PROBES)).min(SLOWEST_PROBES))
    }

    /// When a PING is to say that we are still there, though nothing is to be said: to keep the way open, or since what came so far has stopped
    /// coming, perhaps because the address it went to is no longer ours.
    fn sign_of_life_deadline(&self) -> Option<Time> {
        let path = &self.path;
        if path.silence.probe_owed || !path.flight.is_empty() {
            return None;
        }
        let heard = self.heard_symbol.filter(|_| self.side == Side::Initiator);
        let silent = heard.map(|at| at + path.rtt.probe_timeout(MAX_FEEDBACK_DELAY) * SILENT_TIMEOUTS);
        let idle = self.config.keep_alive.map(|interval| self.last_heard.max(path.silence.last_eliciting) + interval);
        silent.into_iter().chain(idle).min()
    }

    pub(super) fn next_timer(&mut self) -> Option<(Time, WakeReason)> {
        match &self.state {
            State::Connecting(initiator) => return initiator.poll_timeout().map(|at| (at, WakeReason::Handshake)),
            State::Closing { next, until, .. } => {
                return Some((until.map_or(*next, |until| until.min(*next)), WakeReason::Idle));
            }
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
        arm(self.next_deadline(), WakeReason::Deadline);
        arm(self.next_challenge(), WakeReason::Challenge);
        if !self.validation.is_proven() {
            // Nothing else leaves, so nothing else is waited for.
            return Some(next);
        }
        arm(self.path.losses.detector.deadline(), WakeReason::Loss);
        arm(self.probe_deadline(), WakeReason::Probe);
        arm(self.path.feedback.due(self.path.rtt.least_or_zero()), WakeReason::Feedback);
        arm(self.sign_of_life_deadline(), WakeReason::KeepAlive);
        if !self.path.silence.is_broken() && self.path.has_room(usize::from(self.path.mtu.current())) {
            // What could leave at `last_asked` has left; only what the pacer or a policy holds back needs a timer.
            let asked = self.last_asked;
            let later = |at: Time| Some(at).filter(|&at| at > asked);
            let open = self.path.pacer.due();
            if self.lanes.has_work() {
                arm(later(open), WakeReason::Pace);
            }
            arm(self.held_until().and_then(|at| later(at.max(open))), WakeReason::Coalesce);
            arm(self.path.mtu.next_probe().and_then(|at| later(at.max(open))), WakeReason::PacketSize);
            let policy = self.policy_timeout(open.max(asked));
            arm(policy.and_then(|at| later(at.max(open))), WakeReason::Redundancy);
        }
        Some(next)
    }
}
