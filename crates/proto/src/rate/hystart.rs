//! HyStart++ (RFC 9406) leaves slow start when the round trip grows, before the queue overflows.
//!
//! [`super::window`] asks it at each acknowledgement while the window is below its threshold. Packet numbers
//! define the rounds: a round ends when the first packet that was sent after its beginning is acknowledged.

use core::time::Duration;

use super::AckSample;

/// RTT samples that a round needs before its minimum counts (RFC 9406 section 4.3, `N_RTT_SAMPLE`).
const SAMPLES: u32 = 8;
/// Slow start ends when the minimum RTT of a round grows by this part of itself, within these bounds (RFC
/// 9406 section 4.3).
const RTT_DIVISOR: u32 = 8;
const LEAST_GROWTH: Duration = Duration::from_millis(4);
const MOST_GROWTH: Duration = Duration::from_millis(16);
/// Conservative slow start grows by this part of the acknowledged bytes, for this many rounds (RFC 9406
/// section 4.3).
const CONSERVATIVE_DIVISOR: u64 = 4;
const CONSERVATIVE_ROUNDS: u32 = 5;

/// State of HyStart++, described in the module documentation.
#[derive(Debug, Default)]
pub(super) struct HyStart {
    /// Number of the packet whose acknowledgement ends the round.
    round_ends: u64,
    last_least: Option<Duration>,
    least: Option<Duration>,
    samples: u32,
    /// In conservative slow start: the minimum RTT at which it began, and the rounds since then.
    conservative: Option<(Duration, u32)>,
}

impl HyStart {
    /// Returns by how many bytes the window grows for this acknowledgement, and whether slow start is over.
    pub(super) fn on_ack(&mut self, ack: &AckSample) -> (u64, bool) {
        if let Some(rtt) = ack.rtt {
            self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
            self.samples += 1;
        }
        self.judge();
        let over = ack.newest >= self.round_ends && self.end_round(ack);
        let growth = if self.conservative.is_some() { ack.bytes / CONSERVATIVE_DIVISOR } else { ack.bytes };
        (growth, over)
    }

    /// Compares the minimum RTT of this round with that of the last round.
    fn judge(&mut self) {
        let Some(least) = self.least.filter(|_| self.samples >= SAMPLES) else { return };
        match self.conservative {
            // The growth was jitter, so slow start resumes.
            Some((baseline, _)) if least < baseline => self.conservative = None,
            Some(_) => {}
            None => {
                let Some(last) = self.last_least else { return };
                if least >= last + (last / RTT_DIVISOR).clamp(LEAST_GROWTH, MOST_GROWTH) {
                    self.conservative = Some((least, 0));
                }
            }
        }
    }

    /// Returns whether the rounds of conservative slow start are over.
    fn end_round(&mut self, ack: &AckSample) -> bool {
        self.round_ends = ack.next;
        self.last_least = self.least.take().or(self.last_least);
        self.samples = 0;
        let Some((_, rounds)) = &mut self.conservative else { return false };
        *rounds += 1;
        *rounds >= CONSERVATIVE_ROUNDS
    }
}
