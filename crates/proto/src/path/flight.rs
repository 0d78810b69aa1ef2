//! The packets of a path whose fate is open, and for a while those that were declared lost.
//!
//! A packet number is an index into one queue, so every look-up is O(1). A packet leaves the front of the
//! queue once it was acknowledged, or once it was lost so long ago that a late acknowledgement has no use.
//! FEEDBACK names ranges whose packets were mostly acknowledged before. Each acknowledged packet therefore
//! stores how far below it the next unacknowledged packet is, so that a search passes such a range in a few
//! steps.

use std::collections::VecDeque;

use super::IP_UDP_HEADER;
use super::losses::Cause;
use crate::Time;

/// Maximum number of packets remembered: 10 Gbit/s over 300 ms. A peer that exceeds this is withholding ACKs
/// deliberately.
pub(crate) const MAX_FLIGHT: usize = 1 << 18;

/// Maximum number of remembered packets that need no acknowledgement, that were not acknowledged, and that
/// wait behind a packet whose fate is open. A peer that provokes FEEDBACK and acknowledges nothing then makes
/// us remember a few MiB, not 30. An honest peer causes some 10,000 of them within the time of a loss, at 10
/// Gbit/s over 300 ms.
const MAX_SILENT: usize = 1 << 15;

/// What a packet carried besides control frames. It decides what to do when the packet's fate is known. The
/// path does not look into `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried<T> {
    /// Only control frames.
    Control,
    /// A probe of a larger packet size. Its loss says nothing about the path's loss.
    SizeProbe,
    /// Data of the connection.
    Data(T),
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Not known yet.
    Open,
    Acked,
    Lost {
        at: Time,
        cause: Cause,
    },
    /// The sender skipped this number on purpose and never sent it.
    Skipped,
}

/// One sent packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent<T> {
    pub at: Time,
    /// Size with IP and UDP headers.
    pub bytes: u32,
    pub fate: Fate,
    pub carried: Carried<T>,
    /// The packet asks for an acknowledgement and counts as in flight.
    pub elicits: bool,
    /// The application had nothing more to send when the packet was sent.
    pub app_limited: bool,
    /// The path's [`super::delivery::Mark`] at the time of sending. The rate sample that this packet's
    /// acknowledgement ends begins there.
    pub mark: super::delivery::Mark,
}

impl<T> Sent<T> {
    /// Whether the packet asks for no acknowledgement and has none.
    fn is_silent(&self) -> bool {
        !self.elicits && matches!(self.fate, Fate::Open | Fate::Lost { .. })
    }

    /// UDP payload of the packet in bytes.
    pub(crate) fn payload_len(&self) -> u16 {
        (self.bytes as usize).saturating_sub(IP_UDP_HEADER) as u16
    }
}

/// Sent packets by number.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    packets: VecDeque<Sent<T>>,
    /// For each packet, how far below it the search for an unacknowledged packet continues; 0 if the packet
    /// itself is unacknowledged.
    skips: VecDeque<u32>,
    /// Number of the first packet in the queue.
    first: u64,
    /// Bytes of open packets that elicit an acknowledgement.
    bytes: u64,
    open: usize,
    /// Packets in the queue that elicit no acknowledgement and did not get one.
    silent: usize,
}

impl<T> Default for Flight<T> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), skips: VecDeque::new(), first: 0, bytes: 0, open: 0, silent: 0 }
    }
}

impl<T: Copy> Flight<T> {
    /// Number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// The oldest number in the queue.
    pub(crate) fn first_number(&self) -> u64 {
        self.first
    }

    /// Bytes in flight.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether any packet that elicits an acknowledgement is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// Whether the queue is full. The peer must acknowledge something before another packet can be
    /// remembered.
    pub(crate) fn is_full(&self) -> bool {
        self.packets.len() >= MAX_FLIGHT || self.silent >= MAX_SILENT
    }

    /// Takes the next packet, whose number is [`Self::next_number`].
    pub(crate) fn push(&mut self, sent: Sent<T>) {
        if sent.elicits && sent.fate == Fate::Open {
            self.bytes += u64::from(sent.bytes);
            self.open += 1;
        }
        self.silent += usize::from(sent.is_silent());
        self.packets.push_back(sent);
        self.skips.push_back(0);
    }

    /// The packet of this number, if it is still in the queue.
    pub(crate) fn get(&self, number: u64) -> Option<&Sent<T>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.packets.get(index)
    }

    /// Sets the fate of a packet and returns its previous state.
    pub(crate) fn settle(&mut self, number: u64, fate: Fate) -> Option<Sent<T>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let packet = self.packets.get_mut(index)?;
        let before = *packet;
        packet.fate = fate;
        if fate == Fate::Acked {
            self.skips[index] = self.skips[index].max(1);
        }
        self.silent -= usize::from(before.is_silent() && fate == Fate::Acked);
        if before.fate == Fate::Open && before.elicits {
            self.bytes -= u64::from(before.bytes);
            self.open -= 1;
        }
        Some(before)
    }

    /// Removes settled packets from the front: acknowledged ones, and those lost before `lost_before`.
    pub(crate) fn forget(&mut self, lost_before: Time) {
        while let Some(front) = self.packets.front() {
            let settled = match front.fate {
                Fate::Open => !front.elicits && front.at < lost_before,
                Fate::Acked | Fate::Skipped => true,
                Fate::Lost { at, .. } => at < lost_before,
            };
            if !settled {
                break;
            }
            self.silent -= usize::from(front.is_silent());
            self.packets.pop_front();
            self.skips.pop_front();
            self.first += 1;
        }
    }

    /// The highest unacknowledged number in the queue that is at most `number`. Each search shortens the way
    /// for later searches (path halving, Tarjan and van Leeuwen 1984, for disjoint sets). A search takes some
    /// log n steps on average, whatever the peer acknowledges.
    pub(crate) fn newest_unacknowledged(&mut self, number: u64) -> Option<u64> {
        let mut index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        loop {
            let skip = *self.skips.get(index)?;
            if skip == 0 {
                return Some(self.first + index as u64);
            }
            let next = index.checked_sub(skip as usize)?;
            let further = skip + self.skips.get(next)?;
            self.skips[index] = further;
            index = index.checked_sub(further as usize)?;
        }
    }

    /// Packets from `number` on, with their numbers.
    pub(crate) fn iter_from(&self, number: u64) -> impl Iterator<Item = (u64, &Sent<T>)> {
        let skip = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        (self.first.max(number)..).zip(self.packets.iter().skip(skip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(count: u64) -> Flight<()> {
        let mut flight = Flight::default();
        for n in 0..count {
            let (at, carried, mark) = (Time::from_millis(n), Carried::Control, Default::default());
            flight.push(Sent { at, bytes: 1_000, fate: Fate::Open, carried, elicits: true, app_limited: false, mark });
        }
        flight
    }

    /// The result of a plain walk, for comparison.
    fn walked(flight: &Flight<()>, number: u64) -> Option<u64> {
        (flight.first_number()..=number).rev().find(|&n| flight.get(n).is_some_and(|sent| sent.fate != Fate::Acked))
    }

    #[test]
    fn the_newest_unacknowledged_packet_is_found_in_any_order_of_acknowledgement() {
        const COUNT: u64 = 500;
        let mut flight = flight(COUNT);
        let mut state = 1_u64;
        for turn in 0..2_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (state >> 33) % COUNT;
            let fate = if turn % 5 == 0 { Fate::Lost { at: Time::ZERO, cause: Cause::Medium } } else { Fate::Acked };
            if flight.get(number).is_some_and(|sent| sent.fate == Fate::Open || fate == Fate::Acked) {
                flight.settle(number, fate);
            }
            if turn % 50 == 0 {
                flight.forget(Time::ZERO);
            }
            let from = (state >> 13) % COUNT;
            assert_eq!(flight.newest_unacknowledged(from), walked(&flight, from), "turn {turn}, from {from}");
        }
    }

    /// Packets that ask for no acknowledgement, behind one that stays open.
    #[test]
    fn issue_17_acknowledged_silent_packets_do_not_count() {
        let mut flight = flight(1);
        let (at, carried, mark) = (Time::ZERO, Carried::Control, Default::default());
        let silent = Sent { at, bytes: 90, fate: Fate::Open, carried, elicits: false, app_limited: false, mark };
        for _ in 1..MAX_SILENT {
            assert!(!flight.is_full());
            flight.push(silent);
        }
        flight.push(silent);
        assert!(flight.is_full());
        for number in 1..=MAX_SILENT as u64 / 2 {
            flight.settle(number, Fate::Acked);
        }
        flight.settle(1, Fate::Acked);
        assert!(!flight.is_full() && flight.silent == MAX_SILENT / 2);
    }

    /// Counts the steps of a search by the skips that it lengthens.
    #[test]
    fn issue_13_what_was_acknowledged_before_costs_little() {
        const COUNT: u64 = 46_619;
        let mut flight = flight(COUNT);
        for n in 1..COUNT {
            flight.settle(n, Fate::Acked);
        }
        let mut longest = 0;
        for _ in 0..20 {
            let before = flight.skips.clone();
            assert_eq!(flight.newest_unacknowledged(COUNT - 1), Some(0));
            longest = before.iter().zip(&flight.skips).filter(|(before, after)| before != after).count();
        }
        assert!(longest <= 1, "{longest} steps for what the last search has found");
    }
}
