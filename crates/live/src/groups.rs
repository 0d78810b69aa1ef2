//! Finds key frames in a transport stream (ISO/IEC 13818-1), and what depends on most.
//!
//! [`super::feed`] asks for each datagram, with `--protect-key-frames`. A key frame begins with a packet
//! whose adaptation field has the `random_access_indicator`, or whose payload has a parameter set or a
//! picture that needs no other: NAL types 5, 7 and 8 of H.264, 16 to 23 and 32 to 34 of H.265. All pictures
//! up to the next key frame depend on those before them, so the first part of a group counts as important
//! too. Invariant: any bytes are taken; in those that are no transport stream nothing is important.

use super::ts::{PACKET, SYNC};

/// Part of a picture group that is important, in datagrams of the group before. Chosen with a model of 10 %
/// loss and 15 % of repair, in which 0.3 and 0.6 had less SSIM (`docs/live.md`, "Key frames first").
const FIRST: f64 = 0.45;
/// Longest group that is expected, in datagrams. Chosen: ten seconds at 40 Mbit/s; none is counted longer.
const LONGEST: u32 = 40_000;
/// The packet identifier of the table of programs.
const PROGRAMS: u16 = 0;

/// The codec of a stream, by its type in the table of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    H264,
    H265,
}

/// The picture groups of one input; see the module.
#[derive(Debug, Default)]
pub struct Groups {
    /// The table of the first program, its video and codec, once they were seen.
    table: Option<u16>,
    video: Option<(u16, Codec)>,
    /// Whether the newest packet of the video belongs to a key frame.
    in_key: bool,
    /// Datagrams since the last key frame began, and those of the group before.
    position: u32,
    length: u32,
}

impl Groups {
    /// Whether many others depend on this datagram.
    pub fn is_important(&mut self, datagram: &[u8]) -> bool {
        // An RTP header of whole words stands before the packets.
        let packets = datagram.get(datagram.len() % PACKET..).unwrap_or_default().chunks_exact(PACKET);
        let mut important = false;
        for packet in packets {
            important |= self.on_packet(packet);
        }
        self.position = (self.position + 1).min(LONGEST);
        important || f64::from(self.position) <= FIRST * f64::from(self.length)
    }

    /// Whether the packet belongs to a key frame or a table.
    fn on_packet(&mut self, packet: &[u8]) -> bool {
        let &[SYNC, b1, b2, b3, ..] = packet else { return false };
        let (begins, pid) = (b1 & 0x40 != 0, u16::from_be_bytes([b1 & 0x1f, b2]));
        let adaptation = if b3 & 0x20 != 0 { packet.get(4).map_or(0, |length| 1 + usize::from(*length)) } else { 0 };
        let payload = if b3 & 0x10 != 0 { packet.get(4 + adaptation..).unwrap_or_default() } else { &[] };
        if pid == PROGRAMS || Some(pid) == self.table {
            if begins {
                self.on_table(pid, payload);
            }
            return true;
        }
        let Some((_, codec)) = self.video.filter(|(video, _)| *video == pid) else { return false };
        if begins {
            let is_random_access = adaptation > 1 && packet.get(5).is_some_and(|flags| flags & 0x40 != 0);
            let was_key = core::mem::replace(&mut self.in_key, is_random_access || codec.begins_key_frame(payload));
            if self.in_key && !was_key {
                (self.length, self.position) = (self.position, 0);
            }
        }
        self.in_key
    }

    /// Reads the table of programs, or that of a program. A table that is longer than a packet is read as far
    /// as the packet.
    fn on_table(&mut self, pid: u16, payload: &[u8]) {
        let Some(table) = payload.first().and_then(|skip| payload.get(1 + usize::from(*skip)..)) else { return };
        let &[kind, l1, l2, ..] = table else { return };
        let end = (3 + usize::from(u16::from_be_bytes([l1 & 0x0f, l2]))).saturating_sub(4);
        let table = table.get(..end.min(table.len())).unwrap_or_default();
        match (pid, kind) {
            (PROGRAMS, 0) => {
                let programs = table.get(8..).unwrap_or_default().chunks_exact(4);
                let first = programs.filter_map(|entry| match *entry {
                    [0, 0, ..] => None,
                    [_, _, p1, p2] => Some(u16::from_be_bytes([p1 & 0x1f, p2])),
                    _ => None,
                });
                self.table = first.into_iter().next();
            }
            (_, 2) => self.video = video(table),
            _ => {}
        }
    }
}

/// The first video of H.264 or H.265 in the table of a program.
fn video(table: &[u8]) -> Option<(u16, Codec)> {
    let &[l1, l2] = table.get(10..12)? else { return None };
    let mut rest = table.get(12 + usize::from(u16::from_be_bytes([l1 & 0x0f, l2]))..)?;
    while let &[kind, p1, p2, l1, l2, ..] = rest {
        let pid = u16::from_be_bytes([p1 & 0x1f, p2]);
        match kind {
            0x1b => return Some((pid, Codec::H264)),
            0x24 => return Some((pid, Codec::H265)),
            _ => rest = rest.get(5 + usize::from(u16::from_be_bytes([l1 & 0x0f, l2]))..)?,
        }
    }
    None
}

impl Codec {
    /// Whether the first packet of a picture has a NAL unit with which a key frame begins.
    fn begins_key_frame(self, payload: &[u8]) -> bool {
        payload.windows(4).any(|bytes| match (bytes, self) {
            (&[0, 0, 1, head], Self::H264) => matches!(head & 0x1f, 5 | 7 | 8) && head & 0x80 == 0,
            (&[0, 0, 1, head], Self::H265) => matches!(head >> 1, 16..=23 | 32..=34),
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with this payload, after an adaptation field with these flags if there are any.
    fn packet(pid: u16, begins: bool, flags: Option<u8>, payload: &[u8]) -> Vec<u8> {
        let [high, low] = pid.to_be_bytes();
        let mut packet = vec![SYNC, high | u8::from(begins) << 6, low, 0x10];
        if let Some(flags) = flags {
            packet[3] |= 0x20;
            packet.extend([1, flags]);
        }
        packet.extend(payload);
        packet.resize(PACKET, 0xff);
        packet
    }

    /// The tables of one program with sound and video of this type.
    fn tables(kind: u8) -> Vec<u8> {
        let programs = [0, 0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xf0, 0x00, 0, 0, 0, 0];
        let program = [
            0, 2, 0xb0, 23, 0, 1, 0xc1, 0, 0, 0xe1, 0, 0xf0, 0, 0x0f, 0xe1, 1, 0xf0, 0, kind, 0xe1, 0, 0xf0, 0, 0, 0,
            0, 0,
        ];
        [packet(0, true, None, &programs), packet(0x1000, true, None, &program)].concat()
    }

    /// The beginning of a picture whose first NAL unit has this head.
    fn picture(head: u8) -> Vec<u8> {
        packet(0x100, true, None, &[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 0, 1, head, 1])
    }

    #[test]
    fn key_frames_are_found_by_the_indicator_or_their_nal_units() {
        for (kind, key, other) in [(0x1b, [0x67, 0x68, 0x65], [0x41, 0x06]), (0x24, [0x40, 0x42, 0x26], [0x02, 0x4e])] {
            let mut groups = Groups::default();
            assert!(!groups.is_important(&picture(key[0])), "no table told of the video");
            assert!(groups.is_important(&tables(kind)), "tables are important");
            for head in key {
                assert!(groups.is_important(&picture(head)), "{head:x}");
                assert!(groups.is_important(&packet(0x100, false, None, &[1; 9])), "it goes on");
                assert!(!groups.is_important(&packet(0x101, true, None, &[1; 9])), "sound");
                groups.length = 0;
                assert!(!groups.is_important(&picture(other[0])) && !groups.is_important(&picture(other[1])));
            }
            assert!(groups.is_important(&packet(0x100, true, Some(0x40), &[1; 9])), "the indicator alone");
        }
    }

    #[test]
    fn the_first_part_of_a_group_is_important_by_the_length_of_the_group_before() {
        let mut groups = Groups::default();
        groups.is_important(&tables(0x1b));
        let mut group = |length| {
            let mut important = u32::from(groups.is_important(&picture(0x65)));
            (1..length).for_each(|_| important += u32::from(groups.is_important(&picture(0x41))));
            important
        };
        group(100);
        assert_eq!((group(200), group(100)), (45, 90));
    }

    #[test]
    fn any_bytes_are_taken_and_rtp_headers_are_skipped() {
        let mut groups = Groups::default();
        for length in [0, 1, 12, PACKET - 1, PACKET, 1_316, 1_400] {
            for byte in [0, 0x47, 0xff] {
                assert!(!groups.is_important(&vec![byte; length]) || byte == SYNC);
            }
        }
        let mut groups = Groups::default();
        assert!(groups.is_important(&[vec![0x80; 12], tables(0x1b)].concat()));
        assert!(groups.is_important(&[vec![0x80; 12], picture(0x65)].concat()));
    }
}
