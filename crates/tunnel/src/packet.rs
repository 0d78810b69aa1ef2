//! One IP packet: checked once, then routed, queued, marked and clamped without another look at its length.
//!
//! The device and the peers make packets. Invariant: the lengths in the headers of a [`Packet`] are those of
//! its bytes, so no index below leaves them, whoever wrote the packet.

use std::net::IpAddr;

use etherparse::{IpNumber, IpSlice, TcpSlice, ip_number};
use tidewire::Delivery;
use tidewire_proto::tunnel;

/// ECN field of a packet that met congestion (RFC 3168 section 5).
const CE: u8 = 3;
/// TCP option kinds: end of the list, padding, and maximum segment size (RFC 9293 section 3.2).
const END: u8 = 0;
const PADDING: u8 = 1;
const MSS: u8 = 2;
/// The flags SYN and RST of TCP.
const SYN: u8 = 2;

/// What a flow's packets have in common: addresses, protocol and ports. Fragments have no ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: [u8; 4],
}

/// An IP packet whose headers are consistent.
#[derive(Clone, Debug)]
pub struct Packet {
    bytes: Vec<u8>,
    key: FlowKey,
    /// Where the TCP header begins, if this is a whole TCP segment.
    tcp: Option<usize>,
    is_first: bool,
}

impl Packet {
    /// Checks the headers. `None` if they contradict each other or the length of `bytes`.
    pub fn parse(bytes: Vec<u8>) -> Option<Self> {
        let ip = IpSlice::from_slice(&bytes).ok()?;
        let payload = ip.payload();
        let header = bytes.len() - payload.payload.len();
        let is_whole = match &ip {
            IpSlice::Ipv4(v4) => usize::from(v4.header().total_len()) == bytes.len(),
            IpSlice::Ipv6(v6) => usize::from(v6.header().payload_length()) + IPV6_HEADER == bytes.len(),
        };
        if !is_whole {
            return None;
        }
        let is_first = match &ip {
            IpSlice::Ipv4(v4) => v4.header().fragments_offset().value() == 0,
            IpSlice::Ipv6(_) => true,
        };
        let number = ip.payload_ip_number();
        let has_ports = matches!(number, ip_number::TCP | ip_number::UDP) && !payload.fragmented;
        let ports = payload.payload.first_chunk().filter(|_| has_ports).copied().unwrap_or_default();
        let is_tcp = number == ip_number::TCP && !payload.fragmented && TcpSlice::from_slice(payload.payload).is_ok();
        let (source, destination) = (ip.source_addr(), ip.destination_addr());
        let key = FlowKey { source, destination, protocol: number.0, ports };
        Some(Self { tcp: is_tcp.then_some(header), is_first, key, bytes })
    }

    /// The packet's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives the bytes back.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Length of the packet in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Where the TCP header begins, if this is a whole TCP segment.
    pub fn tcp(&self) -> Option<usize> {
        self.tcp
    }

    pub fn source(&self) -> IpAddr {
        self.key.source
    }

    pub fn destination(&self) -> IpAddr {
        self.key.destination
    }

    /// How the far end delivers the packet.
    pub fn delivery(&self) -> Delivery {
        tunnel::delivery(self.key.protocol)
    }

    /// Whether an ICMP error may answer the packet: not an ICMP error, a later fragment, or a packet to or
    /// from several hosts or none (RFC 1122 section 3.2.2, RFC 4443 section 2.4).
    pub fn may_be_answered(&self) -> bool {
        let of = |address: IpAddr| !address.is_unspecified() && !address.is_multicast() && address != BROADCAST;
        let kind = self.bytes.get(self.bytes.len() - self.payload_len()).copied();
        let is_error = match IpNumber(self.key.protocol) {
            ip_number::ICMP => !kind.is_some_and(|kind| matches!(kind, 0 | 8)),
            ip_number::IPV6_ICMP => kind.is_none_or(|kind| kind < 128),
            _ => false,
        };
        self.is_first && of(self.key.source) && of(self.key.destination) && !is_error
    }

    fn payload_len(&self) -> usize {
        IpSlice::from_slice(&self.bytes).map_or(0, |ip| ip.payload().payload.len())
    }

    fn ecn(&self) -> u8 {
        match self.key.source {
            IpAddr::V4(_) => self.bytes[1] & 3,
            IpAddr::V6(_) => self.bytes[1] >> 4 & 3,
        }
    }

    pub(crate) fn set_ecn(&mut self, ecn: u8) {
        match self.key.source {
            IpAddr::V4(_) => {
                let changed = (self.bytes[1] & !3) | ecn;
                let word = [self.bytes[0], changed];
                replace(&mut self.bytes, 0, word, IPV4_CHECKSUM);
            }
            IpAddr::V6(_) => self.bytes[1] = (self.bytes[1] & !0x30) | ecn << 4,
        }
    }

    /// Lowers the maximum segment size that a TCP SYN announces, so that the packets of the connection have
    /// at most `mtu` bytes. A path on which ICMP gets lost then still works.
    pub fn clamp_mss(&mut self, mtu: usize) {
        let Some(tcp) = self.tcp.filter(|&tcp| self.bytes[tcp + 13] & SYN != 0) else { return };
        let headers = TCP_HEADER + if self.key.source.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER };
        let most = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
        let end = tcp + usize::from(self.bytes[tcp + 12] >> 4) * 4;
        let mut at = tcp + TCP_HEADER;
        while at < end {
            let length = match (self.bytes[at], self.bytes.get(at + 1)) {
                (END, _) => return,
                (PADDING, _) => 1,
                (_, Some(&length)) if length >= 2 && at + usize::from(length) <= end => usize::from(length),
                _ => return,
            };
            if (self.bytes[at], length) == (MSS, 4) {
                let said = u16::from_be_bytes([self.bytes[at + 2], self.bytes[at + 3]]);
                if said > most {
                    replace(&mut self.bytes, at + 2, most.to_be_bytes(), tcp + TCP_CHECKSUM);
                }
                return;
            }
            at += length;
        }
    }
}

impl tunnel::Packet for Packet {
    type Flow = FlowKey;

    fn flow(&self) -> FlowKey {
        self.key
    }

    fn bytes(&self) -> usize {
        self.len()
    }

    fn supports_marks(&self) -> bool {
        self.ecn() != 0
    }

    fn mark(&mut self) {
        self.set_ecn(CE);
    }
}

/// Bytes of headers without options.
pub const IPV4_HEADER: usize = 20;
pub const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
/// Offsets of checksums in their headers.
pub const IPV4_CHECKSUM: usize = 10;
pub const TCP_CHECKSUM: usize = 16;
const BROADCAST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::BROADCAST);

/// Replaces two bytes, and corrects the checksum at `sum` (RFC 1624, equation 3). A word that lies across two
/// words of the sum changes it as its bytes in the other order do.
fn replace(bytes: &mut [u8], at: usize, by: [u8; 2], sum: usize) {
    let of = |pair: [u8; 2]| {
        let word = u16::from_be_bytes(pair);
        u32::from(if (at ^ sum) & 1 == 0 { word } else { word.swap_bytes() })
    };
    let (before, after) = (of([bytes[at], bytes[at + 1]]), of(by));
    let old = u16::from_be_bytes([bytes[sum], bytes[sum + 1]]);
    let mut total = u32::from(!old) + (before ^ 0xffff) + after;
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    bytes[at..at + 2].copy_from_slice(&by);
    bytes[sum..sum + 2].copy_from_slice(&(!(total as u16)).to_be_bytes());
}

#[cfg(test)]
pub(crate) mod tests {
    use etherparse::{Ipv4HeaderSlice, PacketBuilder, TcpOptionElement};
    use proptest::prelude::*;
    use tidewire_proto::tunnel::Packet as _;

    use super::*;

    const FROM: [u8; 4] = [10, 0, 0, 1];
    const TO: [u8; 4] = [10, 0, 0, 2];

    /// A UDP packet of `len` bytes from a port, with a number inside.
    pub fn udp(port: u16, number: u16, len: usize) -> Packet {
        let mut payload = vec![0; len - 28];
        payload[..2].copy_from_slice(&number.to_be_bytes());
        let (mut bytes, builder) = (Vec::new(), PacketBuilder::ipv4(FROM, TO, 64).udp(port, 53));
        builder.write(&mut bytes, &payload).unwrap();
        Packet::parse(bytes).unwrap()
    }

    fn syn(v6: bool, options: &[TcpOptionElement]) -> Packet {
        let ip = if v6 { PacketBuilder::ipv6([1; 16], [2; 16], 64) } else { PacketBuilder::ipv4(FROM, TO, 64) };
        let (mut bytes, builder) = (Vec::new(), ip.tcp(1, 80, 7, 1_000).syn().options(options).unwrap());
        builder.write(&mut bytes, b"").unwrap();
        Packet::parse(bytes).unwrap()
    }

    /// Whether the sender would have written these checksums.
    fn is_valid(packet: &Packet) -> bool {
        let ip = IpSlice::from_slice(packet.bytes()).unwrap();
        let tcp = TcpSlice::from_slice(ip.payload().payload);
        match &ip {
            IpSlice::Ipv4(v4) => {
                let header = v4.header().to_header();
                let sum = tcp.map(|tcp| (tcp.calc_checksum_ipv4(FROM, TO).unwrap(), tcp.checksum()));
                header.header_checksum == header.calc_header_checksum() && sum.is_ok_and(|(is, said)| is == said)
            }
            IpSlice::Ipv6(_) => {
                tcp.is_ok_and(|tcp| tcp.calc_checksum_ipv6([1; 16], [2; 16]).unwrap() == tcp.checksum())
            }
        }
    }

    #[test]
    fn the_segment_size_of_a_syn_is_lowered_and_never_raised() {
        use TcpOptionElement::{MaximumSegmentSize, Noop, WindowScale};
        for (v6, mtu, said, expected) in [
            (false, 1_400, 1_460, 1_360),
            (true, 1_400, 1_440, 1_340),
            (false, 1_400, 536, 536),
            (true, 1_280, 9_000, 1_220),
        ] {
            for options in [
                &[MaximumSegmentSize(said)][..],
                // The option at an odd place.
                &[Noop, MaximumSegmentSize(said), WindowScale(7)],
                &[WindowScale(7), MaximumSegmentSize(said)],
            ] {
                let mut packet = syn(v6, options);
                packet.clamp_mss(mtu);
                let ip = IpSlice::from_slice(packet.bytes()).unwrap();
                let tcp = TcpSlice::from_slice(ip.payload().payload).unwrap();
                let mss = tcp.options_iterator().flatten().find(|option| matches!(option, MaximumSegmentSize(_)));
                assert!(mss == Some(MaximumSegmentSize(expected)) && is_valid(&packet), "{v6} {options:?}");
            }
        }
        let mut plain = syn(false, &[Noop]);
        let before = plain.bytes().to_vec();
        plain.clamp_mss(576);
        assert_eq!(plain.bytes(), before);
    }

    #[test]
    fn a_mark_keeps_the_checksums() {
        for v6 in [false, true] {
            for ecn in 0..4 {
                let mut packet = syn(v6, &[]);
                packet.set_ecn(ecn);
                assert_eq!(packet.supports_marks(), ecn > 0);
                packet.mark();
                assert!(packet.ecn() == CE && is_valid(&packet));
            }
        }
    }

    #[test]
    fn headers_that_contradict_the_length_are_refused() {
        let bytes = udp(1, 0, 100).into_bytes();
        assert!(Packet::parse(bytes[..99].to_vec()).is_none(), "cut");
        assert!(Packet::parse([&bytes[..], &[0]].concat()).is_none(), "too long");
        let ihl = Ipv4HeaderSlice::from_slice(&bytes).unwrap().ihl();
        for wrong in [0x44, 0x55, 0x05, 0x60 | ihl] {
            assert!(Packet::parse([&[wrong], &bytes[1..]].concat()).is_none(), "{wrong:x}");
        }
        assert!(Packet::parse(Vec::new()).is_none());
    }

    #[test]
    fn errors_and_packets_to_many_are_not_answered() {
        assert!(udp(1, 0, 100).may_be_answered());
        let changed = |at: usize, by: &[u8]| {
            let mut bytes = udp(1, 0, 100).into_bytes();
            bytes[at..at + by.len()].copy_from_slice(by);
            Packet::parse(bytes).unwrap().may_be_answered()
        };
        assert!(!changed(16, &[224, 0, 0, 1]) && !changed(16, &[255; 4]) && !changed(12, &[0; 4]));
        assert!(!changed(6, &[0, 1]), "a later fragment");
        for (kind, answered) in [(0, true), (8, true), (3, false), (11, false), (12, false)] {
            let mut bytes = udp(1, 0, 100).into_bytes();
            (bytes[9], bytes[20]) = (1, kind);
            assert_eq!(Packet::parse(bytes).unwrap().may_be_answered(), answered, "ICMP {kind}");
        }
    }

    proptest! {
        /// A peer can send any bytes.
        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), version in 0_u8..3, fits: bool) {
            if let (Some(first), true) = (bytes.first_mut(), version > 0) {
                *first = if version == 1 { 0x45 } else { 0x60 };
            }
            let len = bytes.len() as u16;
            if fits && bytes.len() > 44 {
                let (at, said) = if version == 2 { (4, len - 40) } else { (2, len) };
                bytes[at..at + 2].copy_from_slice(&said.to_be_bytes());
                if version == 1 { bytes[9] = 6; bytes[33] = 2; }
            }
            if let Some(mut packet) = Packet::parse(bytes) {
                packet.clamp_mss(576);
                packet.mark();
                packet.may_be_answered();
                prop_assert_eq!(packet.len(), usize::from(len));
            }
        }
    }
}
