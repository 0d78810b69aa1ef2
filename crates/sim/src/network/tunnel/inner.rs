//! The packets inside a tunnel, and the bytes that carry them.
//!
//! [`super::Tunnel`] queues them, sends [`Inner::to_bytes`] as one message, and reads it with
//! [`Inner::from_bytes`]. The message is as long as the IP packet: the fields that the simulator needs stand
//! where the headers would be, and the payload follows with the bytes that its place in the flow has.
//! Invariant: a segment that is read has the payload of its place in its flow. The oracle of the flow checks
//! the bytes of datagrams.

use tidewire_proto::Time;
use tidewire_proto::profile::Delivery;
use tidewire_proto::tunnel;

use super::super::agent::{Cargo, Sent};
use crate::link::IPV4_UDP_HEADERS;
use crate::load::fill;
use crate::pair::End;
use crate::tcp::{self, Ack, Segment};

/// IP protocol numbers of TCP and UDP.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A packet of a flow on its way through a tunnel.
#[derive(Clone, Debug)]
pub(in crate::network) struct Inner {
    /// The number of its flow.
    pub flow: usize,
    /// The end of the flow that it goes to.
    pub to: End,
    pub supports_marks: bool,
    /// Whether the tunnel's queue or a link asked for a congestion mark.
    pub marked: bool,
    pub cargo: Cargo,
}

impl Inner {
    /// What flow number `flow` sends.
    pub fn new(flow: usize, sent: Sent) -> Self {
        let Sent { from, supports_marks, cargo, .. } = sent;
        Self { flow, to: from.other(), supports_marks, marked: false, cargo }
    }

    /// How the far end of the tunnel delivers it.
    pub fn delivery(&self) -> Delivery {
        tunnel::delivery(if matches!(self.cargo, Cargo::Datagram { .. }) { UDP } else { TCP })
    }

    /// The bytes of the packet. `seed` decides those of its payload.
    pub fn to_bytes(&self, seed: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(tunnel::Packet::bytes(self));
        let flag = |is: bool, bit: u8| u8::from(is) << bit;
        let marks = flag(self.supports_marks, 0) | flag(self.marked, 1);
        out.extend((self.flow as u32).to_be_bytes());
        out.push(self.to as u8);
        match &self.cargo {
            Cargo::Ours(_) | Cargo::Hop { .. } | Cargo::Combination(_) | Cargo::Degrees(_) => {
                unreachable!("a connection of ours or a flow of buckets does not go through a tunnel")
            }
            Cargo::Tcp(tcp::Packet::Segment(segment)) => {
                out.extend([SEGMENT, marks | flag(segment.reduced, 2)]);
                [segment.start, segment.digest, segment.stamp.0].iter().for_each(|word| out.extend(word.to_be_bytes()));
                out.resize(tcp::HEADERS + segment.bytes as usize, 0);
                fill(seed, self.flow, segment.start, &mut out[tcp::HEADERS..]);
            }
            Cargo::Tcp(tcp::Packet::Ack(ack)) => {
                out.extend([ACK, marks | flag(ack.echoes_mark, 2)]);
                [ack.next, ack.window, ack.echo.0].iter().for_each(|word| out.extend(word.to_be_bytes()));
                out.resize(tcp::HEADERS, 0);
            }
            Cargo::Datagram { number, bytes } => {
                out.extend([DATAGRAM, marks]);
                out.extend(number.to_be_bytes());
                out.resize(IPV4_UDP_HEADERS, 0);
                out.extend(bytes);
            }
        }
        out
    }

    /// Reads a packet. `None` if it is not one that [`Self::to_bytes`] writes.
    pub fn from_bytes(bytes: &[u8], seed: u64) -> Option<Self> {
        let (flow, rest) = bytes.split_first_chunk()?;
        let (&[to, kind, flags], mut rest) = rest.split_first_chunk()?;
        let mut word = || {
            let (word, left) = rest.split_first_chunk()?;
            rest = left;
            Some(u64::from_be_bytes(*word))
        };
        let cargo = match kind {
            SEGMENT => {
                let (start, digest, stamp) = (word()?, word()?, Time(word()?));
                let bytes = u32::try_from(bytes.len().checked_sub(tcp::HEADERS)?).ok()?;
                let (supports_marks, reduced) = (flags & 1 > 0, flags & 4 > 0);
                Cargo::Tcp(tcp::Packet::Segment(Segment {
                    start,
                    bytes,
                    digest,
                    stamp,
                    supports_marks,
                    marked: false,
                    reduced,
                }))
            }
            ACK => {
                let (next, window, echo) = (word()?, word()?, Time(word()?));
                Cargo::Tcp(tcp::Packet::Ack(Ack { next, window, echo, echoes_mark: flags & 4 > 0 }))
            }
            DATAGRAM => Cargo::Datagram { number: word()?, bytes: bytes.get(IPV4_UDP_HEADERS..)?.to_vec() },
            _ => return None,
        };
        let to = if to == End::Near as u8 { End::Near } else { End::Far };
        let (supports_marks, marked) = (flags & 1 > 0, flags & 2 > 0);
        let inner = Self { flow: u32::from_be_bytes(*flow) as usize, to, supports_marks, marked, cargo };
        (inner.to_bytes(seed) == bytes).then_some(inner)
    }
}

impl tunnel::Packet for Inner {
    type Flow = usize;

    fn flow(&self) -> usize {
        self.flow
    }

    fn bytes(&self) -> usize {
        match &self.cargo {
            Cargo::Ours(_) | Cargo::Hop { .. } | Cargo::Combination(_) | Cargo::Degrees(_) => {
                unreachable!("a connection of ours or a flow of buckets does not go through a tunnel")
            }
            Cargo::Tcp(tcp::Packet::Segment(segment)) => segment.ip_bytes(),
            Cargo::Tcp(tcp::Packet::Ack(ack)) => ack.ip_bytes(),
            Cargo::Datagram { bytes, .. } => IPV4_UDP_HEADERS + bytes.len(),
        }
    }

    fn supports_marks(&self) -> bool {
        self.supports_marks
    }

    fn mark(&mut self) {
        self.marked = true;
    }
}

/// The kinds of packets, in the sixth byte.
const SEGMENT: u8 = 0;
const ACK: u8 = 1;
const DATAGRAM: u8 = 2;

#[cfg(test)]
mod tests {
    use tunnel::Packet as _;

    use super::*;

    #[test]
    fn packets_of_each_kind_pass_and_a_changed_byte_is_found() {
        let stamp = Time::from_millis(70);
        let segment =
            Segment { start: 5, bytes: 1_368, digest: 3, stamp, supports_marks: true, marked: false, reduced: true };
        let ack = Ack { next: 5, window: 9, echo: stamp, echoes_mark: true };
        let datagram = Cargo::Datagram { number: 4, bytes: vec![7; 100] };
        for (cargo, length) in [
            (Cargo::Tcp(tcp::Packet::Segment(segment)), 1_420),
            (Cargo::Tcp(tcp::Packet::Ack(ack)), 52),
            (datagram, 128),
        ] {
            let sent = Sent { from: End::Near, len: 0, supports_marks: true, cargo };
            let mut inner = Inner::new(3, sent);
            inner.mark();
            let bytes = inner.to_bytes(1);
            assert_eq!((bytes.len(), inner.bytes()), (length, length));
            let read = Inner::from_bytes(&bytes, 1).unwrap();
            assert_eq!(format!("{read:?}"), format!("{inner:?}"));
            // The flow, the first byte of the segment, and the first and last of the payload.
            for at in [3, 14, 52, 1_419].into_iter().filter(|_| length == 1_420) {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1;
                assert!(Inner::from_bytes(&wrong, 1).is_none(), "{at}");
            }
            assert!(Inner::from_bytes(&bytes[..20], 1).is_none());
        }
    }
}
