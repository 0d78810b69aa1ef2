//! What a path does while no acknowledgement comes: how long it has waited, and the probes it sent.
//!
//! The connection asks it for probe timeouts and keep-alives (`connection/timers.rs`). Invariant: an answer from the
//! peer ends every probe that was owed.

use core::time::Duration;

use crate::Time;

/// Without an answer probes leave at an even pace for this long, then ever fewer, and nothing else does: the
/// circuit is broken (RFC 8084).
pub(crate) const STEADY_PROBES: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// When a packet that elicits an acknowledgement last left.
    pub last_eliciting: Time,
    /// Since when the path waits for an answer: the last answer, or the first packet after nothing was in flight.
    pub waiting_since: Time,
    /// Probe timeouts since the last acknowledgement, and when the first of them was.
    pub probes: u32,
    pub probing_since: Time,
    pub last_probe: Time,
    /// A probe timeout asks for a packet.
    pub probe_owed: bool,
    /// A short packet is to follow the probe: a path that became narrower lets it pass.
    pub ping_owed: bool,
}

impl Silence {
    /// Nothing was sent yet.
    pub fn new(now: Time) -> Self {
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
    pub fn on_answer(&mut self, now: Time) {
        (self.probes, self.probe_owed, self.ping_owed) = (0, false, false);
        self.waiting_since = now;
    }

    /// The peer has not answered for so long that only probes leave.
    pub fn is_broken(&self) -> bool {
        self.probes > 0 && self.last_probe.since(self.probing_since) >= STEADY_PROBES
    }
}
