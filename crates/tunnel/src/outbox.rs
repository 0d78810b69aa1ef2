//! Packets for the next write to the device. TCP segments of a flow that follow each other become one packet.
//!
//! [`crate::hub`] fills it with what one peer sent. The kernel takes a joined packet in one call, and divides
//! it only where its receiver needs the segments (virtio 1.2 section 5.1.6.2). Invariants: the packets of a
//! flow keep their order. A joined packet is divided into what came, except for the identification of an IPv4
//! packet that no router may divide, which means nothing (RFC 6864 section 4.1). A packet is compared with
//! the newest packet of at most [`MOST_OPEN`] flows and summed at most twice, whatever a peer sends.

use etherparse::checksum::Sum16BitWords;
use tidewire_proto::tunnel::Packet as _;
use tun_rs::{VIRTIO_NET_HDR_GSO_TCPV4, VIRTIO_NET_HDR_GSO_TCPV6, VIRTIO_NET_HDR_LEN, VirtioNetHdr};

use crate::packet::{FlowKey, IPV4_CHECKSUM, IPV4_HEADER, IPV6_HEADER, Packet, TCP_CHECKSUM};

/// Flows whose newest packet may grow: as many as Linux keeps for each of its buckets (`MAX_GRO_SKBS`).
const MOST_OPEN: usize = 8;
/// Bytes of the longest packet: the length fields have 16 bits.
const LONGEST: usize = 65_535;
/// Where the flags of a TCP header are, and those that a joined packet may have (RFC 9293 section 3.1).
const FLAGS: usize = 13;
const PSH: u8 = 8;
const ACK: u8 = 16;
/// Flags and offset of an IPv4 packet that is whole and must not be divided.
const WHOLE: [u8; 2] = [0x40, 0];
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the TCP checksum is that of the pseudo header only.
const NEEDS_CHECKSUM: u8 = 1;

/// The packets of the next write.
#[derive(Default)]
pub struct Outbox {
    items: Vec<Item>,
    /// The oldest first.
    open: Vec<Open>,
    /// How often a packet was compared with one of `open`.
    #[cfg(test)]
    looks: usize,
}

struct Item {
    /// A header of virtio and a packet.
    bytes: Vec<u8>,
    /// Payload of each segment but the last, if several are joined.
    segment: Option<u16>,
}

/// The newest packet of a flow: the next segment of the flow may be added to it.
struct Open {
    flow: FlowKey,
    item: usize,
    /// Sequence number after its last byte.
    next: u32,
    /// Payload of its first segment. A shorter one is the last.
    payload: usize,
    /// Whether its checksums are known to be right.
    is_checked: bool,
}

/// A packet that may be joined: a whole TCP segment with data, an ACK, and no other flag but PSH.
struct Segment<'a> {
    packet: &'a [u8],
    /// Where the headers of TCP and the payload begin.
    tcp: usize,
    payload: usize,
}

impl Outbox {
    /// Adds a packet, at the end of an earlier one where it continues it.
    pub fn push(&mut self, packet: &Packet) {
        let found = self.open.iter().position(|open| {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            open.flow == packet.flow()
        });
        let segment = Segment::of(packet);
        if let (Some(at), Some(segment)) = (found, &segment)
            && self.join(at, segment)
        {
            return;
        }
        // What comes later in the flow stays behind this packet.
        if let Some(at) = found {
            self.open.remove(at);
        }
        if let Some(segment) = segment.filter(|segment| !segment.is_pushed()) {
            if self.open.len() == MOST_OPEN {
                self.open.remove(0);
            }
            let next = segment.sequence().wrapping_add(segment.data().len() as u32);
            let (flow, item, payload) = (packet.flow(), self.items.len(), segment.data().len());
            self.open.push(Open { flow, item, next, payload, is_checked: false });
        }
        self.push_alone(packet.bytes());
    }

    /// Adds a packet that is never joined.
    pub fn push_alone(&mut self, packet: &[u8]) {
        let mut bytes = Vec::with_capacity(VIRTIO_NET_HDR_LEN + packet.len());
        bytes.resize(VIRTIO_NET_HDR_LEN, 0);
        bytes.extend_from_slice(packet);
        self.items.push(Item { bytes, segment: None });
    }

    /// Adds a segment to the packet of `open[at]`. Returns whether it continues that.
    fn join(&mut self, at: usize, segment: &Segment<'_>) -> bool {
        let open = &mut self.open[at];
        let Item { bytes, segment: joined } = &mut self.items[open.item];
        let (held, data) = (&mut bytes[VIRTIO_NET_HDR_LEN..], segment.data());
        let fits = data.len() <= open.payload && held.len() + data.len() <= LONGEST;
        if !fits || segment.sequence() != open.next || !segment.continues(held) {
            return false;
        }
        open.is_checked = open.is_checked || are_sums_right(held, segment.tcp);
        if !open.is_checked || !are_sums_right(segment.packet, segment.tcp) {
            return false;
        }
        held[segment.tcp + FLAGS] |= segment.packet[segment.tcp + FLAGS];
        bytes.extend_from_slice(data);
        *joined = u16::try_from(open.payload).ok();
        open.next = open.next.wrapping_add(data.len() as u32);
        if segment.is_pushed() || data.len() < open.payload {
            self.open.remove(at);
        }
        true
    }

    /// Ends joining, and returns each packet behind its header of virtio.
    pub fn finish(&mut self) -> impl Iterator<Item = &[u8]> {
        self.open.clear();
        self.items.iter_mut().map(|item| {
            if let Some(segment) = item.segment.take() {
                describe(&mut item.bytes, segment);
            }
            &*item.bytes
        })
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        self.open.clear();
        self.items.clear();
    }

    /// Whether it holds no packet.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl<'a> Segment<'a> {
    fn of(packet: &'a Packet) -> Option<Self> {
        let (bytes, tcp) = (packet.bytes(), packet.tcp()?);
        let has_plain_header = match packet.source() {
            std::net::IpAddr::V4(_) => tcp == IPV4_HEADER && bytes[6..8] == WHOLE,
            std::net::IpAddr::V6(_) => tcp == IPV6_HEADER,
        };
        let payload = tcp + usize::from(bytes[tcp + 12] >> 4) * 4;
        let is_joinable = has_plain_header && payload < bytes.len() && bytes[tcp + FLAGS] | PSH == ACK | PSH;
        is_joinable.then_some(Self { packet: bytes, tcp, payload })
    }

    fn sequence(&self) -> u32 {
        self.packet[self.tcp + 4..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    fn data(&self) -> &'a [u8] {
        &self.packet[self.payload..]
    }

    fn is_pushed(&self) -> bool {
        self.packet[self.tcp + FLAGS] & PSH != 0
    }

    /// Whether the headers are those of `held`, a packet of the same flow, except for what differs from
    /// segment to segment: lengths, identification, sequence number, PSH and checksums.
    fn continues(&self, held: &[u8]) -> bool {
        let is_alike = |from: usize, to: usize| held.get(from..to) == self.packet.get(from..to);
        let tcp = self.tcp;
        let is_ip_alike = match tcp {
            IPV4_HEADER => is_alike(0, 2) && is_alike(6, IPV4_CHECKSUM) && is_alike(12, tcp),
            _ => is_alike(0, 4) && is_alike(6, tcp),
        };
        let (window, urgent) = (FLAGS + 1, TCP_CHECKSUM + 2);
        is_ip_alike
            && is_alike(tcp, tcp + 4)
            && is_alike(tcp + 8, tcp + FLAGS)
            && is_alike(tcp + window, tcp + TCP_CHECKSUM)
            && is_alike(tcp + urgent, self.payload)
    }
}

/// The sum of the pseudo header of TCP (RFC 9293 section 3.1, RFC 8200 section 8.1).
fn pseudo(packet: &[u8], tcp: usize) -> Sum16BitWords {
    let addresses = if tcp == IPV4_HEADER { &packet[12..20] } else { &packet[8..40] };
    let length = (packet.len() - tcp) as u16;
    Sum16BitWords::new().add_slice(addresses).add_2bytes([0, 6]).add_2bytes(length.to_be_bytes())
}

/// Whether the checksums of a segment are right. A joined packet gets new ones, which would hide that they
/// were not.
fn are_sums_right(packet: &[u8], tcp: usize) -> bool {
    let is_ip_right = tcp != IPV4_HEADER || Sum16BitWords::new().add_slice(&packet[..tcp]).ones_complement() == 0;
    is_ip_right && pseudo(packet, tcp).add_slice(&packet[tcp..]).ones_complement() == 0
}

/// Writes the headers of a joined packet: lengths, checksums, and how the kernel divides it.
fn describe(bytes: &mut [u8], segment: u16) {
    let (virtio, packet) = bytes.split_at_mut(VIRTIO_NET_HDR_LEN);
    let is_v4 = packet[0] >> 4 == 4;
    let tcp = if is_v4 { IPV4_HEADER } else { IPV6_HEADER };
    if is_v4 {
        let length = packet.len() as u16;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].fill(0);
        let sum = Sum16BitWords::new().add_slice(&packet[..tcp]).ones_complement();
        packet[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&sum.to_ne_bytes());
    } else {
        let length = (packet.len() - tcp) as u16;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
    }
    let sum = !pseudo(packet, tcp).ones_complement();
    packet[tcp + TCP_CHECKSUM..tcp + TCP_CHECKSUM + 2].copy_from_slice(&sum.to_ne_bytes());
    let header = VirtioNetHdr {
        flags: NEEDS_CHECKSUM,
        gso_type: if is_v4 { VIRTIO_NET_HDR_GSO_TCPV4 } else { VIRTIO_NET_HDR_GSO_TCPV6 },
        hdr_len: (tcp + usize::from(packet[tcp + 12] >> 4) * 4) as u16,
        gso_size: segment,
        csum_start: tcp as u16,
        csum_offset: TCP_CHECKSUM as u16,
    };
    let encoded = header.encode(virtio);
    debug_assert!(encoded.is_ok(), "the header has its room");
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;
    use tun_rs::gso_split;

    use super::*;

    /// A segment of a flow: those of even numbers are IPv4.
    fn segment(flow: u16, sequence: u32, ack: u32, pushed: bool, len: usize) -> Vec<u8> {
        let ip = match flow % 2 {
            0 => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            _ => PacketBuilder::ipv6([1; 16], [2; 16], 64),
        };
        let mut tcp = ip.tcp(1_000 + flow, 80, sequence, 500).ack(ack);
        if pushed {
            tcp = tcp.psh();
        }
        let data: Vec<_> = (0..len).map(|n| (sequence as usize + n) as u8).collect();
        let mut bytes = Vec::new();
        tcp.write(&mut bytes, &data).unwrap();
        bytes
    }

    fn parsed(bytes: &[u8]) -> Packet {
        Packet::parse(bytes.to_vec()).unwrap()
    }

    /// What the kernel makes of a write, as another library does it.
    fn divided(bytes: &[u8]) -> Vec<Vec<u8>> {
        let header = VirtioNetHdr::decode(&bytes[..VIRTIO_NET_HDR_LEN]).unwrap();
        let mut packet = bytes[VIRTIO_NET_HDR_LEN..].to_vec();
        if header.gso_type == 0 {
            assert_eq!(header.flags, 0);
            return vec![packet];
        }
        let count = packet.len() / usize::from(header.gso_size) + 1;
        let (mut pieces, mut sizes) = (vec![vec![0; 1_500]; count], vec![0; count]);
        let is_v6 = packet[0] >> 4 == 6;
        let count = gso_split(&mut packet, header, &mut pieces, &mut sizes, 0, is_v6).unwrap();
        pieces.iter().zip(sizes).take(count).map(|(piece, size)| piece[..size].to_vec()).collect()
    }

    /// A packet without the fields that routers and the kernel change, and whether its checksums are right.
    fn plain(mut packet: Vec<u8>) -> (Vec<u8>, bool) {
        let is_v4 = packet[0] >> 4 == 4;
        let is_right = are_sums_right(&packet, if is_v4 { IPV4_HEADER } else { IPV6_HEADER });
        if is_v4 {
            packet[4..6].fill(0);
            packet[10..12].fill(0);
        }
        (packet, is_right)
    }

    #[test]
    fn segments_in_order_become_one_packet_of_at_most_64_kib() {
        for flow in 0..2 {
            let mut outbox = Outbox::default();
            for n in 0..100 {
                outbox.push(&parsed(&segment(flow, (u32::MAX - 5_000).wrapping_add(n * 1_400), 7, false, 1_400)));
            }
            let lengths: Vec<_> = outbox.finish().map(<[u8]>::len).collect();
            let header = if flow == 0 { 40 } else { 60 } + VIRTIO_NET_HDR_LEN;
            assert_eq!(lengths, [header + 46 * 1_400, header + 46 * 1_400, header + 8 * 1_400]);
        }
    }

    /// A peer that sends packets which fit no other: looked at are at most eight for each.
    #[test]
    fn tiny_packets_that_fit_nothing_cost_eight_looks_each() {
        for flows in [1, 8, 9, 400] {
            let mut outbox = Outbox::default();
            for n in 0..4_000_u32 {
                outbox.push(&parsed(&segment((n % flows) as u16, 2 * n, 7, false, 1)));
            }
            assert_eq!(outbox.finish().count(), 4_000);
            assert!(outbox.looks <= 4_000 * MOST_OPEN && (outbox.looks >= 3_999 || flows == 400), "{}", outbox.looks);
        }
    }

    proptest! {
        /// Next segment, gap, shorter, pushed, other acknowledgement, wrong checksum, another kind of packet.
        #[test]
        fn what_is_divided_again_is_what_came(steps in prop::collection::vec((0_u16..4, 0_u8..16, 1_usize..3), 0..60)) {
            let (mut outbox, mut next) = (Outbox::default(), [u32::MAX - 3_000; 4]);
            let mut came = vec![Vec::new(); 4];
            for (flow, kind, size) in steps {
                let (at, len) = (usize::from(flow), if kind == 1 { 30 } else { size * 400 });
                next[at] = next[at].wrapping_add(u32::from(kind == 2));
                let mut bytes = segment(flow, next[at], u32::from(kind == 4), kind == 3, len);
                match kind {
                    5 => *bytes.last_mut().unwrap() ^= 1,
                    6 if flow % 2 == 0 => bytes[10] ^= 1,
                    7 => {
                        let tcp = if flow % 2 == 0 { IPV4_HEADER } else { IPV6_HEADER };
                        bytes[tcp + FLAGS] |= 1;
                    }
                    8 if flow % 2 == 0 => bytes[8] = 9,
                    _ => {}
                }
                next[at] = next[at].wrapping_add(len as u32);
                outbox.push(&parsed(&bytes));
                came[at].push(plain(bytes));
            }
            let mut left = vec![Vec::new(); 4];
            for packet in outbox.finish().flat_map(divided) {
                let flow = parsed(&packet).flow();
                let at = (0..4).find(|&flow_of| parsed(&segment(flow_of, 0, 0, false, 1)).flow() == flow).unwrap();
                left[usize::from(at)].push(plain(packet));
            }
            prop_assert_eq!(left, came);
        }
    }
}
