//! Names and computes repairs.
//!
//! Every repair of a lane gets its own key, counted up, unless its policy chooses one. Under steady loss,
//! repairs of the newest span follow each other after a few source symbols. Then several are computed
//! together, and each is updated with the newer symbols when it is sent ([`Prepared`]).

use tidewire_codec::{Code, EncodeError, Prepared, RepairId, SourceId};

use super::LaneSender;
use crate::redundancy::RepairInFlight;

/// If consecutive repairs are at most this many source symbols apart, several are computed together. The
/// shared part of their spans saves 0.4 of the work. Each symbol that is in only one of the spans costs one
/// product more.
const CLOSE: u64 = 16;
/// Least span for which repairs are computed together. Shorter spans share few symbols with the next one, and
/// are cheap to compute.
const LONG: u16 = 128;

/// The keys of a lane's repairs, and the prepared repairs.
#[derive(Debug, Default)]
pub(super) struct RepairKeys {
    last: u16,
    prepared: Prepared,
    /// End of the newest span when it was last repaired.
    repaired: SourceId,
}

impl LaneSender {
    /// Names a repair over `count` symbols from `first`. `key` is the key that the policy chose, if it chose
    /// one.
    pub(crate) fn name_repair(&mut self, code: Code, first: SourceId, count: u16, key: Option<u16>) -> RepairId {
        let ready = self.keys.prepared.key_for(first, count).filter(|_| code == Code::Rlc);
        let key = key.or(ready).unwrap_or_else(|| {
            self.keys.last = self.keys.last.wrapping_add(1);
            self.keys.last
        });
        RepairId { first, count, key }
    }

    /// Writes a repair that is sent as packet `packet`. Uses one that was computed in advance, if there is
    /// one.
    pub(crate) fn send_repair(
        &mut self,
        code: Code,
        id: RepairId,
        on_feedback: bool,
        packet: u64,
        out: &mut [u8],
    ) -> Result<usize, EncodeError> {
        let RepairId { first, count, key } = id;
        let in_flight = RepairInFlight { packet, first, count, key, on_feedback };
        self.on_mixed(packet, first, count);
        if let Some(len) = self.ahead.take(code, id, out) {
            self.repairs.in_flight.push(in_flight, self.ids.base);
            return Ok(len);
        }
        let more = self.are_more_to_follow(id) && code == Code::Rlc && id.key == self.keys.last;
        // At the end of the key range there are not enough keys left, so the next repair starts again.
        if more
            && self.keys.prepared.key_for(id.first, id.count) != Some(id.key)
            && self.window.prepare(&mut self.keys.prepared, id)
        {
            self.keys.last += Prepared::COUNT - 1;
        }
        let len = match code {
            Code::Rlc => self.window.write_prepared(&mut self.keys.prepared, id, out)?,
            _ => self.window.write_repair(code, id, out)?,
        };
        self.repairs.in_flight.push(in_flight, self.ids.base);
        Ok(len)
    }

    /// Reserves the memory for prepared repairs as soon as the ring is long enough to use them, not at their
    /// first use.
    pub(super) fn reserve_repairs(&mut self) {
        if self.window.capacity() >= 2 * usize::from(LONG) {
            self.window.reserve_prepared(&mut self.keys.prepared);
        }
    }

    /// Whether repairs over nearly the same span are likely to follow. The span must end with the newest
    /// symbol, and the last such repair must be at most [`CLOSE`] symbols ago. The span must also begin far
    /// above the base. Otherwise the advancing base would soon cut it.
    fn are_more_to_follow(&mut self, id: RepairId) -> bool {
        if id.first.plus(id.count.into()) != self.ids.sent {
            return false;
        }
        let moved = self.ids.sent.since(core::mem::replace(&mut self.keys.repaired, self.ids.sent));
        moved <= CLOSE && id.count >= LONG && id.first.since(self.ids.base) >= id.count.into()
    }
}
