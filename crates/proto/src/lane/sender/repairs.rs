//! How a repair is named and computed.
//!
//! Every repair of a lane has a key of its own, counted up, unless its policy wants a certain one. Under steady loss the
//! repairs of the newest span follow each other after a few source symbols: then some are computed at a time, and the rest
//! is brought up to date when it is sent ([`Prepared`]).

use tidewire_codec::{Code, EncodeError, Prepared, RepairId, SourceId};

use super::LaneSender;
use crate::redundancy::RepairInFlight;

/// Repairs that follow each other after no more source symbols than this are computed some at a time. What they then have in
/// common saves 0.4 of the work; each symbol that one has and the other has not costs a product more.
const CLOSE: u64 = 16;
/// ... where a span is so long: a short one has few symbols in common with the next, and is soon done.
const LONG: u16 = 128;

/// The keys of a lane's repairs, and repairs that are ready.
#[derive(Debug, Default)]
pub(super) struct Keys {
    last: u16,
    prepared: Prepared,
    /// End of the newest span when it was last repaired.
    repaired: SourceId,
}

impl LaneSender {
    /// Names a repair over `count` symbols from `first`; a policy that wants a certain coefficient key gives it.
    pub fn name_repair(&mut self, code: Code, first: SourceId, count: u16, key: Option<u16>) -> RepairId {
        let ready = self.keys.prepared.key_for(first, count).filter(|_| code == Code::Rlc);
        let key = key.or(ready).unwrap_or_else(|| {
            self.keys.last = self.keys.last.wrapping_add(1);
            self.keys.last
        });
        RepairId { first, count, key }
    }

    /// Writes a repair that leaves as packet `packet`: one that was made ahead, or else it is computed now.
    pub fn send_repair(
        &mut self,
        code: Code,
        id: RepairId,
        on_feedback: bool,
        packet: u64,
        out: &mut [u8],
    ) -> Result<usize, EncodeError> {
        if let Some(len) = self.ahead.take(code, id, out) {
            self.repairs.push(RepairInFlight { packet, first: id.first, count: id.count, on_feedback });
            return Ok(len);
        }
        let more = self.are_more_to_follow(id) && code == Code::Rlc && id.key == self.keys.last;
        // Where the keys end there are not as many, and the next repair begins again.
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
        self.repairs.push(RepairInFlight { packet, first: id.first, count: id.count, on_feedback });
        Ok(len)
    }

    /// Takes the memory for repairs that are ready with a ring that is long enough for them, not when they are first wanted.
    pub(super) fn reserve_repairs(&mut self) {
        if self.window.capacity() >= 2 * usize::from(LONG) {
            self.window.reserve_prepared(&mut self.keys.prepared);
        }
    }

    /// Whether repairs over much the same span are likely to follow: it ends with the newest symbol, as that of the last
    /// repair did not long ago, and its beginning is far above the base, which would else move on without them.
    fn are_more_to_follow(&mut self, id: RepairId) -> bool {
        if id.first.plus(id.count.into()) != self.sent {
            return false;
        }
        let moved = self.sent.since(core::mem::replace(&mut self.keys.repaired, self.sent));
        moved <= CLOSE && id.count >= LONG && id.first.since(self.base) >= id.count.into()
    }
}
