//! Captures of simulated datagrams, in the file format that packet analysers read.
//!
//! [`Pair::tap`](crate::pair::Pair::tap) hands over what one end sends and receives, as a capture on that
//! host would. [`Capture`] writes it with the IP and UDP headers that the datagrams would have had. The
//! format is pcap with nanoseconds (draft-ietf-opsawg-pcap) and packets that begin with their IP header.
//! Invariant: a reader accepts every checksum.

use core::net::{IpAddr, SocketAddr};
use std::io::{self, Write};

use tidewire_proto::Time;
use tidewire_proto::path::Ecn;

/// Magic number of a pcap file with times in nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Link type of packets that begin with their IP header, of version 4 or 6.
const LINKTYPE_RAW: u32 = 101;
/// Longest packet of the file. No datagram is longer.
const SNAPLEN: u32 = 65_575;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
/// Chosen: the initial value that most systems use.
const HOPS: u8 = 64;

/// Writes a capture. The time of the file is the virtual time, as if the run had begun in 1970.
#[derive(Debug)]
pub struct Capture<W: Write> {
    out: W,
    packet: Vec<u8>,
}

impl<W: Write> Capture<W> {
    /// Writes the header of the file. `out` should be buffered.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&MAGIC.to_le_bytes())?;
        // Version 2.4.
        out.write_all(&[2, 0, 4, 0])?;
        // Time zone and accuracy, both unused.
        out.write_all(&[0; 8])?;
        out.write_all(&SNAPLEN.to_le_bytes())?;
        out.write_all(&LINKTYPE_RAW.to_le_bytes())?;
        Ok(Self { out, packet: Vec::new() })
    }

    /// Writes one UDP datagram.
    ///
    /// # Errors
    /// `out` cannot be written; [`io::ErrorKind::InvalidInput`] if the addresses are of different families or
    /// the datagram is longer than UDP allows.
    pub fn write(&mut self, at: Time, captured: &Captured<'_>) -> io::Result<()> {
        self.packet.clear();
        headers(&mut self.packet, captured).ok_or(io::ErrorKind::InvalidInput)?;
        self.packet.extend_from_slice(captured.datagram);
        let (nanos, len) = (at.0, self.packet.len() as u32);
        for value in [(nanos / 1_000_000_000) as u32, (nanos % 1_000_000_000) as u32, len, len] {
            self.out.write_all(&value.to_le_bytes())?;
        }
        self.out.write_all(&self.packet)
    }

    /// Flushes the file.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A datagram that one end sent or received.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// Source address.
    pub from: SocketAddr,
    /// Destination address.
    pub to: SocketAddr,
    /// Mark in the IP header; `None` if the sender does not use marks.
    pub ecn: Option<Ecn>,
    /// The UDP payload.
    pub datagram: &'a [u8],
}

/// The IP and UDP headers.
fn headers(out: &mut Vec<u8>, captured: &Captured<'_>) -> Option<()> {
    let Captured { from, to, ecn, datagram } = captured;
    let udp_len = u16::try_from(datagram.len() + UDP_HEADER).ok()?;
    let traffic_class = ecn.map_or(0, |mark| mark as u8);
    let mut sum = Sum::default();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = udp_len.checked_add(20)?.to_be_bytes();
            let mut header = [0x45, traffic_class, total[0], total[1], 0, 0, 0x40, 0, HOPS, UDP, 0, 0];
            let mut own = Sum::default();
            for part in [&header[..], &source.octets(), &destination.octets()] {
                own.add(part);
            }
            header[10..].copy_from_slice(&own.finish().to_be_bytes());
            for part in [&header[..], &source.octets(), &destination.octets()] {
                out.extend_from_slice(part);
            }
            sum.add(&source.octets());
            sum.add(&destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            out.extend_from_slice(&[0x60 | traffic_class >> 4, traffic_class << 4, 0, 0]);
            out.extend_from_slice(&udp_len.to_be_bytes());
            out.extend_from_slice(&[UDP, HOPS]);
            for address in [source, destination] {
                out.extend_from_slice(&address.octets());
                sum.add(&address.octets());
            }
        }
        _ => return None,
    }
    let mut header = [0; UDP_HEADER];
    header[..2].copy_from_slice(&from.port().to_be_bytes());
    header[2..4].copy_from_slice(&to.port().to_be_bytes());
    header[4..6].copy_from_slice(&udp_len.to_be_bytes());
    // The pseudo header has the protocol and the length too.
    for part in [&[0, UDP][..], &udp_len.to_be_bytes(), &header, datagram] {
        sum.add(part);
    }
    // Zero means that there is no checksum (RFC 768).
    let checksum = Some(sum.finish()).filter(|sum| *sum != 0).unwrap_or(u16::MAX);
    header[6..].copy_from_slice(&checksum.to_be_bytes());
    out.extend_from_slice(&header);
    Some(())
}

/// The Internet checksum (RFC 1071). Only the last part may have an odd length.
#[derive(Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks(2) {
            self.0 += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
    }

    fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum over a header that contains its checksum is zero.
    fn check(bytes: &[u8]) -> u16 {
        let mut sum = Sum::default();
        sum.add(bytes);
        sum.finish()
    }

    fn captured(from: &str, to: &str, datagram: &[u8]) -> Vec<u8> {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        let mut out = Vec::new();
        headers(&mut out, &Captured { from, to, ecn: Some(Ecn::Ce), datagram }).unwrap();
        out.extend_from_slice(datagram);
        out
    }

    #[test]
    fn headers_have_addresses_lengths_marks_and_right_checksums() {
        let packet = captured("10.0.0.1:7700", "10.0.0.2:4000", &[1, 2, 3]);
        assert_eq!((packet.len(), packet[1], check(&packet[..20])), (31, 3, 0));
        assert_eq!(&packet[12..28], &[10, 0, 0, 1, 10, 0, 0, 2, 0x1e, 0x14, 0x0f, 0xa0, 0, 11, packet[26], packet[27]]);
        let pseudo = [&packet[12..20], &[0, 17, 0, 11], &packet[20..]].concat();
        assert_eq!(check(&pseudo), 0);
        let packet = captured("[2001:db8::1]:1", "[2001:db8::2]:2", &[9; 100]);
        assert_eq!((packet.len(), packet[0], packet[1]), (148, 0x60, 0x30));
        let pseudo = [&packet[8..40], &[0, 17, 0, 108], &packet[40..]].concat();
        assert_eq!(check(&pseudo), 0);
    }

    #[test]
    fn a_file_begins_with_its_magic_and_times_are_in_nanoseconds() {
        let (from, to) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
        let mut file = Vec::new();
        let mut capture = Capture::new(&mut file).unwrap();
        let datagram = Captured { from, to, ecn: None, datagram: &[0; 10] };
        capture.write(Time(2_000_000_007), &datagram).unwrap();
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(20), word(24), word(28), word(32), word(36)], [MAGIC, 101, 2, 7, 38, 38]);
        assert_eq!(file.len(), 24 + 16 + 38);
        let mixed = Captured { to: "[::1]:1".parse().unwrap(), ..datagram };
        let error = Capture::new(Vec::new()).unwrap().write(Time::ZERO, &mixed).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
