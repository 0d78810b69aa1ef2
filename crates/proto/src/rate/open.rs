//! No rate control: everything leaves at once. It runs only when the user selects it.
//!
//! It is for a tunnel whose packets are of flows that control their rate themselves, as in pipeline coding
//! (Ageneau, Boukhatem and Gerla), where TCP above the code is the only control. What remains is the floor of
//! sanity (`path/floor`), and the circuit breaker of a silence: after a second of probes without an
//! acknowledgement, nothing but probes leaves.

use super::{AckSample, Budget, RateController};

/// A pace that no interface reaches, 8.8 Tbit/s. Finite, so that the bytes of an hour fit 64 bits.
const PACE: u64 = 1 << 40;

/// Limits nothing.
#[derive(Debug, Default)]
pub(crate) struct Open;

impl RateController for Open {
    fn on_ack(&mut self, _ack: &AckSample) {}

    fn budget(&self) -> Budget {
        Budget { window: u64::MAX, pacing: PACE }
    }
}
