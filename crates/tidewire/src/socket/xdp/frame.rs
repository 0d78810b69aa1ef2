//! Frames that bypass the kernel: Ethernet, IP and UDP headers around one datagram.
//!
//! The socket builds and reads them. Checksums are computed here: a device computes none for such frames.
//! Those of received frames are not verified, because each packet has an authentication tag of its own.
//! Invariant: reading any bytes gives a datagram inside of them, or none.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use etherparse::{
    EtherType, Ethernet2Header, IpEcn, IpNumber, Ipv4Header, Ipv6Header, LinkSlice, NetSlice, SlicedPacket,
    TransportSlice, UdpHeader,
};
use tidewire_proto::path::Ecn;

/// Bytes of Ethernet before IP.
pub(super) const ETHERNET: usize = Ethernet2Header::LEN;
/// Hops that a datagram may take, Linux's default.
const HOPS: u8 = 64;

/// The way of a frame: both stations, both ends, and the mark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Envelope {
    pub stations: [[u8; 6]; 2],
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub ecn: Option<Ecn>,
}

impl Envelope {
    /// Bytes of IP and UDP before a datagram.
    pub fn headers(&self) -> usize {
        let ip = if self.to.is_ipv4() { Ipv4Header::MIN_LEN } else { Ipv6Header::LEN };
        ip + UdpHeader::LEN
    }

    /// Writes the headers around `datagram` through `write`. Returns `None` if both addresses are not of one
    /// family, or the datagram is too long for the headers.
    pub fn seal(&self, datagram: &[u8], mut write: impl FnMut(&[u8]) -> Option<()>) -> Option<()> {
        let [source, destination] = self.stations;
        let length = u16::try_from(UdpHeader::LEN + datagram.len()).ok()?;
        let ether_type = if self.to.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        write(&Ethernet2Header { source, destination, ether_type }.to_bytes())?;
        let [from, to] = [self.from.port(), self.to.port()];
        let udp = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let (source, destination) = (source.octets(), destination.octets());
                let mut ip = Ipv4Header::new(length, HOPS, IpNumber::UDP, source, destination).ok()?;
                ip.dont_fragment = true;
                ip.ecn = IpEcn::try_new(bits(self.ecn)).ok()?;
                ip.header_checksum = ip.calc_header_checksum();
                write(&ip.to_bytes())?;
                UdpHeader::with_ipv4_checksum(from, to, &ip, datagram).ok()?
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let ip = Ipv6Header {
                    traffic_class: bits(self.ecn),
                    payload_length: length,
                    next_header: IpNumber::UDP,
                    hop_limit: HOPS,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv6Header::default()
                };
                write(&ip.to_bytes())?;
                UdpHeader::with_ipv6_checksum(from, to, &ip, datagram).ok()?
            }
            _ => return None,
        };
        write(&udp.to_bytes())?;
        write(datagram)
    }
}

/// Reads a frame: its way, and where its datagram lies. `None` if it has none.
pub(super) fn open(frame: &[u8]) -> Option<(Envelope, Range<usize>)> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(LinkSlice::Ethernet2(link)) = &packet.link else { return None };
    let Some(TransportSlice::Udp(udp)) = &packet.transport else { return None };
    let (from, to, class): (IpAddr, IpAddr, u8) = match &packet.net {
        Some(NetSlice::Ipv4(ip)) if !ip.is_payload_fragmented() => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into(), header.ecn().value())
        }
        Some(NetSlice::Ipv6(ip)) if !ip.is_payload_fragmented() => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into(), header.traffic_class())
        }
        _ => return None,
    };
    let payload = udp.payload();
    let start = payload.as_ptr().addr().checked_sub(frame.as_ptr().addr())?;
    let envelope = Envelope {
        stations: [link.source(), link.destination()],
        from: SocketAddr::new(from, udp.source_port()),
        to: SocketAddr::new(to, udp.destination_port()),
        ecn: mark(class),
    };
    Some((envelope, start..start + payload.len()))
}

/// The two bits of RFC 3168 section 5.
fn bits(mark: Option<Ecn>) -> u8 {
    match mark {
        None => 0b00,
        Some(Ecn::Ect1) => 0b01,
        Some(Ecn::Ect0) => 0b10,
        Some(Ecn::Ce) => 0b11,
    }
}

/// The mark of a traffic class, whose lower two bits it is.
fn mark(class: u8) -> Option<Ecn> {
    [None, Some(Ecn::Ect1), Some(Ecn::Ect0), Some(Ecn::Ce)][usize::from(class & 0b11)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope([from, to]: [&str; 2], ecn: Option<Ecn>) -> Envelope {
        let address = |text: &str| text.parse().expect("an address");
        Envelope { stations: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]], from: address(from), to: address(to), ecn }
    }

    fn sealed(envelope: &Envelope, datagram: &[u8]) -> Option<Vec<u8>> {
        let mut frame = Vec::new();
        envelope.seal(datagram, |bytes| {
            frame.extend_from_slice(bytes);
            Some(())
        })?;
        Some(frame)
    }

    #[test]
    fn what_is_sealed_opens_as_it_was_and_its_checksums_hold() {
        let datagram: Vec<u8> = (0..=255).collect();
        for ends in [["192.0.2.1:7700", "192.0.2.9:41000"], ["[2001:db8::1]:7700", "[2001:db8::9]:41000"]] {
            for ecn in [None, Some(Ecn::Ect0), Some(Ecn::Ect1), Some(Ecn::Ce)] {
                for length in [0, 1, 2, 255, 256] {
                    let envelope = envelope(ends, ecn);
                    let mut frame = sealed(&envelope, &datagram[..length]).unwrap();
                    assert_eq!(frame.len(), ETHERNET + envelope.headers() + length);
                    // Drivers pad short frames.
                    frame.resize(frame.len().max(60), 0);
                    let (opened, place) = open(&frame).unwrap();
                    assert_eq!((opened, &frame[place]), (envelope, &datagram[..length]));
                    check_sums(&frame);
                }
            }
        }
    }

    /// The sum over header (and pseudo header) and content is all ones if the checksum is right (RFC 1071).
    fn check_sums(frame: &[u8]) {
        let add = |bytes: &[u8]| -> u32 {
            bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
        };
        let fold = |sum: u32| (sum & 0xFFFF) + (sum >> 16);
        let is_v4 = frame[12..14] == [8, 0];
        let (addresses, udp) = if is_v4 { (26..34, 34) } else { (22..54, 54) };
        let length = usize::from(frame[udp + 4]) << 8 | usize::from(frame[udp + 5]);
        let sum = add(&frame[addresses]) + 17 + length as u32 + add(&frame[udp..udp + length]);
        assert_eq!(fold(fold(sum)), 0xFFFF);
        if is_v4 {
            assert_eq!(fold(fold(add(&frame[14..34]))), 0xFFFF);
        }
    }

    #[test]
    fn addresses_of_two_families_and_too_long_datagrams_are_refused() {
        assert_eq!(sealed(&envelope(["192.0.2.1:1", "[2001:db8::9]:2"], None), b"x"), None);
        assert_eq!(sealed(&envelope(["192.0.2.1:1", "192.0.2.9:2"], None), &[0; 65_530]), None);
    }

    #[test]
    fn no_bytes_make_it_panic_or_leave_the_frame() {
        let whole = sealed(&envelope(["192.0.2.1:1", "192.0.2.9:2"], None), b"some bytes").unwrap();
        for length in 0..whole.len() {
            assert_eq!(open(&whole[..length]), None, "{length}");
        }
        let mut state = 1_u64;
        for _ in 0..100_000 {
            let mut frame = whole.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 33) as usize % frame.len();
                frame[at] = (state >> 24) as u8;
            }
            if let Some((_, place)) = open(&frame) {
                assert!(place.end <= frame.len());
            }
        }
    }
}
