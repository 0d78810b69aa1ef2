//! The packets of a path whose fate is open, and for a while those that were given up.
//!
//! A packet number is the index into one queue, so that every look-up is O(1). A packet leaves the queue from the front
//! once it was acknowledged or was lost long enough ago that a late acknowledgement no longer tells anything.

use std::collections::VecDeque;

use tidewire_codec::SourceId;

use super::IP_UDP_HEADER;
use crate::Time;

/// Packets remembered at most: 10 Gbit/s over 300 ms. Whoever leaves more without an answer keeps us from forgetting on purpose.
pub(crate) const MAX_FLIGHT: usize = 1 << 18;

/// Of those, packets that nobody has to acknowledge, which wait behind one whose fate is open: a peer that provokes FEEDBACK and acknowledges
/// nothing makes us remember a few MiB, not 30. An honest one asks for some 10,000 of them within the time of a loss, at 10 Gbit/s over 300 ms.
const MAX_SILENT: usize = 1 << 15;

/// What a packet carried besides control frames: what to do when its fate is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// Nothing but control frames.
    Control,
    /// A probe of a larger packet size: its loss says nothing about the path's loss.
    SizeProbe,
    /// The base of a lane, alone.
    Base { lane: u32 },
    /// A source symbol of a lane.
    Source { lane: u32, id: SourceId, again: bool },
    /// Part of a source symbol of a lane; `again`: of one that was out before.
    Slice { lane: u32, id: SourceId, part: u16, again: bool },
    /// A repair symbol over `count` source symbols from `first`.
    Repair { lane: u32, first: SourceId, count: u16, on_feedback: bool },
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Not known yet.
    Open,
    Acked,
    Lost {
        at: Time,
    },
    /// The number was never sent (it was left out on purpose).
    Skipped,
}

/// One sent packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub at: Time,
    /// Size with IP and UDP headers.
    pub bytes: u32,
    pub fate: Fate,
    pub carried: Carried,
    /// Asks for an acknowledgement and counts as in flight.
    pub elicits: bool,
    /// Sent when the application had nothing more to send.
    pub app_limited: bool,
    /// The path's [`super::delivery::Mark`] when it left: where the rate sample that its acknowledgement ends began.
    pub mark: super::delivery::Mark,
}

impl Sent {
    /// Its UDP payload in bytes.
    pub fn payload_len(&self) -> u16 {
        (self.bytes as usize).saturating_sub(IP_UDP_HEADER) as u16
    }
}

/// Sent packets by number.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    packets: VecDeque<Sent>,
    /// Number of the first packet in the queue.
    first: u64,
    /// Bytes of open packets that elicit an acknowledgement.
    bytes: u64,
    open: usize,
    /// Packets in the queue that elicit no acknowledgement.
    silent: usize,
}

impl Flight {
    /// The number that the next packet will have.
    pub fn next_number(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// The oldest number still held.
    pub fn first_number(&self) -> u64 {
        self.first
    }

    /// Bytes in flight.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether any packet that elicits an acknowledgement is open.
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// The peer must acknowledge something before more can be remembered.
    pub fn is_full(&self) -> bool {
        self.packets.len() >= MAX_FLIGHT || self.silent >= MAX_SILENT
    }

    /// Takes the next packet; its number is what [`Self::next_number`] said.
    pub fn push(&mut self, sent: Sent) {
        if sent.elicits && sent.fate == Fate::Open {
            self.bytes += u64::from(sent.bytes);
            self.open += 1;
        }
        self.silent += usize::from(!sent.elicits);
        self.packets.push_back(sent);
    }

    /// The packet of this number, while it is held.
    pub fn get(&self, number: u64) -> Option<&Sent> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.packets.get(index)
    }

    /// Settles the fate of a packet and returns what it was before.
    pub fn settle(&mut self, number: u64, fate: Fate) -> Option<Sent> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let packet = self.packets.get_mut(index)?;
        let before = *packet;
        packet.fate = fate;
        if before.fate == Fate::Open && before.elicits {
            self.bytes -= u64::from(before.bytes);
            self.open -= 1;
        }
        Some(before)
    }

    /// Forgets settled packets at the front: acknowledged ones, and those lost before `lost_before`.
    pub fn forget(&mut self, lost_before: Time) {
        while let Some(front) = self.packets.front() {
            let settled = match front.fate {
                Fate::Open => !front.elicits && front.at < lost_before,
                Fate::Acked | Fate::Skipped => true,
                Fate::Lost { at } => at < lost_before,
            };
            if !settled {
                break;
            }
            self.silent -= usize::from(!front.elicits);
            self.packets.pop_front();
            self.first += 1;
        }
    }

    /// Packets from `number` on with their numbers.
    pub fn iter_from(&self, number: u64) -> impl Iterator<Item = (u64, &Sent)> {
        let skip = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        (self.first.max(number)..).zip(self.packets.iter().skip(skip))
    }
}
