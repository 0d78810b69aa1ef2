//! A fixed rate, for experiments and for a user who knows what the link carries. It runs only when the user
//! selects it. The floor of sanity (`path/floor`) counts how often it overruns the path, and never limits it.

use core::time::Duration;

use super::{AckSample, Budget, INITIAL_WINDOW, RateController};

/// Window in bandwidth-delay products. The pace is the limit; the window only stops a sender that gets no
/// ACKs.
const WINDOW_GAIN: u64 = 4;

/// Paces at the given rate, whatever happens on the path.
#[derive(Debug)]
pub(crate) struct Fixed {
    bytes_per_second: u64,
    min_rtt: Duration,
}

impl Fixed {
    /// Paces at `bits_per_second`, which includes IP headers.
    pub(crate) fn new(bits_per_second: u64) -> Self {
        Self { bytes_per_second: bits_per_second / 8, min_rtt: Duration::from_secs(1) }
    }
}

impl RateController for Fixed {
    fn on_ack(&mut self, ack: &AckSample) {
        self.min_rtt = ack.min_rtt;
    }

    fn budget(&self) -> Budget {
        let product = u128::from(self.bytes_per_second) * self.min_rtt.as_micros() / 1_000_000;
        let product = u64::try_from(product).unwrap_or(u64::MAX);
        Budget {
            window: product.saturating_mul(WINDOW_GAIN).saturating_add(4 * INITIAL_WINDOW),
            pacing: self.bytes_per_second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_rate_has_a_window() {
        let largest = Fixed { bytes_per_second: u64::MAX, min_rtt: Duration::from_secs(2) };
        assert_eq!(largest.budget().window, u64::MAX);
    }
}
