//! Decides when the connection must be woken, and what it does then.
//!
//! A timer is a time computed from state, never an entry in a queue. After [`Connection::expire`] and a
//! drained `poll_transmit`, no timer is in the past: each was acted on, moved, or is not armed.

use core::time::Duration;

use super::{CloseReason, Connection, Side, State, WakeReason};
use crate::Time;
use crate::path::{IP_UDP_HEADER, MAX_FEEDBACK_DELAY, STEADY_PROBES};
use crate::wire::ConnectionId;

/// Probes per round trip in the first [`STEADY_PROBES`] of a silence. Within two round trips of the link's
/// return, a probe must be sent and answered, and the data that the answer requests must arrive.
const PROBES_PER_RTT: u32 = 3;
/// Least time between probes. It allows at most a hundred small packets before the circuit breaks, whatever
/// the round trip. Chosen.
const FASTEST_PROBES: Duration = Duration::from_millis(10);
/// Longest time between probes. The full rate must be back within two seconds of the link's return
/// (docs/survival.md S5, S9), which leaves one second to notice the return.
const SLOWEST_PROBES: Duration = Duration::from_secs(1);
/// A peer that was silent for this long, and for [`SUSPICIOUS_TIMEOUTS`] probe timeouts, may have been
/// restarted. Chosen: TCP inside a tunnel repeats for the third time after about 1.5 s, and for the fourth
/// after 3 s. A new connection should be there before the third.
const SUSPICIOUS: Duration = Duration::from_millis(1_500);
const SUSPICIOUS_TIMEOUTS: u32 = 3;
/// For this long after that, every probe asks whether the peer still knows the connection, so that the answer
/// arrives within 3 s and a round trip (docs/survival.md S1). Later, every second probe asks.
const URGENT: Duration = Duration::from_millis(1_500);

/// If no symbol arrives for this many probe timeouts, the end whose address may have changed unnoticed sends
/// one probe. Pauses of the sender's application are common, so one probe must do. Chosen.
const SILENT_TIMEOUTS: u32 = 3;

impl Connection {
    pub(super) fn expire(&mut self, now: Time) {
        match &self.state {
            State::Connecting(initiator) => {
                if initiator.expired(now) {
                    self.end(now, CloseReason::NoAnswer);
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
        if now >= self.contact.last_heard + self.agreed.idle_timeout {
            return self.end(now, CloseReason::Idle);
        }
        self.addresses.ids.forget(now);
        self.addresses.validation.expire(now, self.path.rtt.probe_timeout(MAX_FEEDBACK_DELAY));
        // Do this first: giving up messages is news for the peer, so a probe for its silence may be due at
        // once.
        self.expire_messages(now);
        if self.addresses.validation.is_proven() {
            self.expire_path(now);
        }
        self.wake_writers(now);
    }

    /// Handles the timers of the address in use.
    fn expire_path(&mut self, now: Time) {
        if self.path.losses.detector.deadline().is_some_and(|deadline| deadline <= now) {
            self.detect_losses(now);
        }
        if self.probe_deadline().is_some_and(|deadline| deadline <= now) {
            if self.path.pto.probes == 0 {
                self.path.pto.probing_since = now;
            }
            self.path.pto.probes += 1;
            if self.asks_after_itself(now) {
                (self.path.pto.last_probe, self.contact.inquiry_owed) = (now, true);
            } else {
                self.path.pto.probe_owed = true;
                self.path.pto.ping_owed =
                    self.path.pto.probes > 1 && self.path.mtu.is_doubtful() && !self.path.pto.is_broken();
            }
        }
        if self.sign_of_life_deadline().is_some_and(|deadline| deadline <= now) {
            self.receiving.heard_symbol = None;
            self.path.pto.probe_owed = true;
        }
    }

    /// Whether the probe that is due now must ask if the peer still knows this connection. Only the end that
    /// connected knows where to ask.
    fn asks_after_itself(&self, now: Time) -> bool {
        let patience = (self.path.rtt.probe_timeout(MAX_FEEDBACK_DELAY) * SUSPICIOUS_TIMEOUTS).max(SUSPICIOUS);
        let silent = now.since(self.contact.last_heard);
        self.side == Side::Initiator
            && silent >= patience
            && (silent < patience + URGENT || self.path.pto.probes.is_multiple_of(2))
    }

    /// Whether the endpoint must send a HELLO that asks about this connection. True only once for each
    /// request.
    pub(crate) fn take_inquiry(&mut self) -> bool {
        core::mem::take(&mut self.contact.inquiry_owed)
    }

    /// The id by which the peer knows this connection, and when the peer was last heard; `None` if the
    /// connection is over.
    pub(crate) fn silence(&self) -> Option<(ConnectionId, Time)> {
        let State::Established { .. } = self.state else { return None };
        self.security.keys.as_ref().map(|keys| (keys.peer_ids.current(), self.contact.last_heard))
    }

    /// Records that a HELLO of `len` bytes was sent.
    pub(crate) fn on_inquiry_sent(&mut self, len: usize) {
        self.stats.bytes.wire_sent += (len + IP_UDP_HEADER) as u64;
    }

    /// Called when the peer answered a HELLO and said whether it knows this connection.
    pub(crate) fn on_answer(&mut self, now: Time, known: bool) {
        if known {
            self.path.pto.probe_owed = true;
        } else {
            self.end(now, CloseReason::Forgotten);
        }
    }

    /// When the next probe is due. Probes are sent while something is in flight or not known to be decoded,
    /// or while this end waits for the peer's credit.
    fn probe_deadline(&self) -> Option<Time> {
        let blocked = self.lanes.is_blocked() || self.streams.is_blocked();
        let waits = !self.path.flight.is_empty() || self.lanes.is_lacking() || blocked;
        if !waits || self.path.pto.probe_owed {
            return None;
        }
        let path = &self.path;
        if path.pto.probes == 0 {
            // Like a retransmission timer (RFC 6298 section 5.3), while something is in flight the timeout
            // runs from the last answer and not from the last packet. Otherwise a sender with a large window
            // would send all of it before the first probe.
            let timeout = path.rtt.probe_timeout(MAX_FEEDBACK_DELAY);
            if !path.flight.is_empty() || self.lanes.is_lacking() {
                let since = if path.flight.is_empty() {
                    // A source symbol that repairs replace was sent in no packet.
                    path.pto.last_eliciting.max(self.lanes.last_source())
                } else {
                    path.pto.waiting_since
                };
                return Some(since + timeout);
            }
            // This end waits only for credit, which the peer repeats until it is acknowledged. So the probes
            // become less frequent.
            let waited = path.pto.last_eliciting.since(path.app_limited.last_data);
            return Some(path.pto.last_eliciting + waited.min(SLOWEST_PROBES).max(timeout));
        }
        let steady = (path.rtt.smoothed() / PROBES_PER_RTT).max(FASTEST_PROBES);
        let silent = path.pto.last_probe.since(path.pto.probing_since);
        // After that the interval doubles: it equals the silence beyond the first second.
        Some(path.pto.last_probe + steady.max(silent.saturating_sub(STEADY_PROBES)).min(SLOWEST_PROBES))
    }

    /// When to send a PING although there is nothing else to send. It keeps address translators open. It is
    /// also sent if symbols stopped arriving, perhaps because our address has changed.
    fn sign_of_life_deadline(&self) -> Option<Time> {
        let path = &self.path;
        if path.pto.probe_owed || !path.flight.is_empty() {
            return None;
        }
        let heard = self.receiving.heard_symbol.filter(|_| self.side == Side::Initiator);
        let silent = heard.map(|at| at + path.rtt.probe_timeout(MAX_FEEDBACK_DELAY) * SILENT_TIMEOUTS);
        let idle = self
            .config
            .timing
            .keep_alive
            .map(|interval| self.contact.last_heard.max(path.pto.last_eliciting) + interval);
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
        let mut next = (self.contact.last_heard + self.agreed.idle_timeout, WakeReason::Idle);
        let mut arm = |at: Option<Time>, reason| {
            if let Some(at) = at.filter(|&at| at < next.0) {
                next = (at, reason);
            }
        };
        arm(self.next_deadline(), WakeReason::Deadline);
        arm(self.next_challenge(), WakeReason::Challenge);
        if !self.addresses.validation.is_proven() {
            // Nothing else may be sent, so no other timer is needed.
            return Some(next);
        }
        arm(self.path.losses.detector.deadline(), WakeReason::Loss);
        arm(self.probe_deadline(), WakeReason::Probe);
        arm(self.path.feedback.due(self.path.rtt.least_or_zero()), WakeReason::Feedback);
        arm(self.sign_of_life_deadline(), WakeReason::KeepAlive);
        if !self.path.pto.is_broken() && self.path.has_room(usize::from(self.path.mtu.current())) {
            // Everything that could be sent at `last_asked` was sent. A timer is needed only for packets that
            // the pacer or a policy holds back.
            let asked = self.contact.last_asked;
            let later = |at: Time| Some(at).filter(|&at| at > asked);
            let open = self.path.pacer.due();
            if self.lanes.has_work() {
                let paced = self.path.rate.train().map_or(WakeReason::Pace, |_| WakeReason::Train);
                arm(later(open), paced);
            }
            arm(self.held_until().and_then(|at| later(at.max(open))), WakeReason::Coalesce);
            arm(self.path.mtu.next_probe().and_then(|at| later(at.max(open))), WakeReason::PacketSize);
            let policy = self.policy_timeout(open.max(asked));
            arm(policy.and_then(|at| later(at.max(open))), WakeReason::Redundancy);
        }
        Some(next)
    }
}
