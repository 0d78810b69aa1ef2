//! State of a path while no acknowledgement comes: how long it has waited, and the probes it sent.
//!
//! The connection uses it for probe timeouts and keep-alives (`connection/timers.rs`). Invariant: an
//! acknowledgement from the peer cancels every pending probe.

use core::time::Duration;

use crate::Time;

/// Without an acknowledgement, probes are sent at an even pace for this time and ever more rarely afterwards.
/// Nothing else is sent then: a circuit breaker (RFC 8084).
pub(crate) const STEADY_PROBES: Duration = Duration::from_secs(1);

/// Probe timeout (RFC 9002 section 6.2) of one path, described in the module documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pto {
    /// Time at which a packet that elicits an acknowledgement was last sent.
    pub last_eliciting: Time,
    /// Time since which the path waits for an acknowledgement: that of the last one, or of the first packet
    /// sent when nothing was in flight.
    pub waiting_since: Time,
    /// Probe timeouts since the last acknowledgement, and the time of the first of them.
    pub probes: u32,
    pub probing_since: Time,
    pub last_probe: Time,
    /// A probe timeout has expired, and its packet is not sent yet.
    pub probe_owed: bool,
    /// A short packet must follow the probe. It passes even if the path MTU fell.
    pub ping_owed: bool,
}

impl Pto {
    /// The state before anything is sent.
    pub(crate) fn new(now: Time) -> Self {
        Self {
            last_eliciting: now,
            waiting_since: now,
            probes: 0,
            probing_since: now,
            last_probe: now,
            probe_owed: false,
            ping_owed: false,
        }
    }

    /// The peer acknowledged something.
    pub(crate) fn on_answer(&mut self, now: Time) {
        (self.probes, self.probe_owed, self.ping_owed) = (0, false, false);
        self.waiting_since = now;
    }

    /// Whether the peer has been silent for so long that only probes are sent.
    pub(crate) fn is_broken(&self) -> bool {
        self.probes > 0 && self.last_probe.since(self.probing_since) >= STEADY_PROBES
    }
}
