//! The ICMP errors with which the tunnel answers packets that it cannot carry.

use std::net::IpAddr;

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::icmpv6::DestUnreachableCode;
use etherparse::{Icmpv4Type, Icmpv6Type, PacketBuilder};

use crate::packet::Packet;

/// Hops that an answer may take (RFC 1700).
const HOPS: u8 = 64;
/// Longest answer: every host accepts it whole (RFC 1812 section 4.3.2.3, RFC 4443 section 2.4 c).
const MOST_IPV4: usize = 576;
const MOST_IPV6: usize = 1_280;
/// Bytes of the answer's own headers.
const HEADERS_IPV4: usize = 28;
const HEADERS_IPV6: usize = 48;

/// Why a packet cannot be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is longer than this many bytes.
    TooLong(u16),
    /// No peer has its destination.
    NoPeer,
}

/// The answer to a packet; `None` if nothing may be answered. It comes from the packet's destination, because
/// the kernel takes no packet from one of its own addresses. A packet that its sender allows to be divided
/// (IPv4 without DF) is answered too: the kernel divides what is longer than the device allows, so this is
/// only reached if a peer allows less.
pub fn answer(packet: &Packet, why: Refusal) -> Option<Vec<u8>> {
    if !packet.may_be_answered() {
        return None;
    }
    let quoted = |most: usize| &packet.bytes()[..packet.len().min(most)];
    let mut answer = Vec::new();
    match (packet.destination(), packet.source()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let kind = match why {
                Refusal::TooLong(next_hop_mtu) => DestUnreachableHeader::FragmentationNeeded { next_hop_mtu },
                Refusal::NoPeer => DestUnreachableHeader::Host,
            };
            let builder =
                PacketBuilder::ipv4(from.octets(), to.octets(), HOPS).icmpv4(Icmpv4Type::DestinationUnreachable(kind));
            builder.write(&mut answer, quoted(MOST_IPV4 - HEADERS_IPV4)).ok()?;
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let kind = match why {
                Refusal::TooLong(mtu) => Icmpv6Type::PacketTooBig { mtu: mtu.into() },
                Refusal::NoPeer => Icmpv6Type::DestinationUnreachable(DestUnreachableCode::NoRoute),
            };
            let builder = PacketBuilder::ipv6(from.octets(), to.octets(), HOPS).icmpv6(kind);
            builder.write(&mut answer, quoted(MOST_IPV6 - HEADERS_IPV6)).ok()?;
        }
        _ => return None,
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use etherparse::{IpSlice, SlicedPacket, TransportSlice};

    use super::*;
    use crate::packet::tests::udp;

    #[test]
    fn an_answer_quotes_the_packet_and_names_the_length() {
        let packet = udp(7, 0, 1_400);
        let bytes = answer(&packet, Refusal::TooLong(1_200)).unwrap();
        assert_eq!(bytes.len(), MOST_IPV4);
        let sliced = SlicedPacket::from_ip(&bytes).unwrap();
        let Some(TransportSlice::Icmpv4(icmp)) = sliced.transport else { panic!("{sliced:?}") };
        let expected = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1_200 };
        assert_eq!(icmp.icmp_type(), Icmpv4Type::DestinationUnreachable(expected));
        assert_eq!(icmp.payload(), &packet.bytes()[..icmp.payload().len()]);
        let ip = IpSlice::from_slice(&bytes).unwrap();
        assert_eq!((ip.source_addr(), ip.destination_addr()), (packet.destination(), packet.source()));
        assert_eq!(answer(&Packet::parse(bytes.clone()).unwrap(), Refusal::NoPeer), None, "an error is not answered");
    }

    #[test]
    fn ipv6_has_its_own_error() {
        let (mut bytes, builder) = (Vec::new(), PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(7, 53));
        builder.write(&mut bytes, &[0; 1_400]).unwrap();
        let packet = Packet::parse(bytes).unwrap();
        let bytes = answer(&packet, Refusal::TooLong(1_280)).unwrap();
        assert_eq!(bytes.len(), MOST_IPV6);
        let sliced = SlicedPacket::from_ip(&bytes).unwrap();
        let Some(TransportSlice::Icmpv6(icmp)) = sliced.transport else { panic!("{sliced:?}") };
        assert_eq!(icmp.icmp_type(), Icmpv6Type::PacketTooBig { mtu: 1_280 });
    }
}
