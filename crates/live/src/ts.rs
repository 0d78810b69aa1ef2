//! What `live` reads of an MPEG transport stream (ISO/IEC 13818-1): the clock that paces a file.
//!
//! [`super::input`] calls it; it also tells a stream from other files. Invariant: any bytes are taken; those
//! that are no transport stream have no clock.

use std::time::{Duration, Instant};

/// Bytes, as the standard fixes them.
pub const PACKET: usize = 188;
/// First byte of each packet.
pub const SYNC: u8 = 0x47;
/// Ticks of the base of a program clock reference in a second.
const BASE_HZ: u64 = 90_000;
/// Bits of that base, which wraps after 26.5 hours.
const BASE_BITS: u32 = 33;
/// A reference that differs by more than this from the one before begins a new clock. Chosen: encoders send
/// one each 0.1 s (section 2.7.2 of the standard), so anything longer is a cut.
const CUT: Duration = Duration::from_secs(1);

/// Whether bytes are whole packets of a transport stream, and the beginning of one. No bytes are, too.
pub fn is_stream(bytes: &[u8]) -> bool {
    bytes.chunks(PACKET).all(|packet| packet.first() == Some(&SYNC))
}

/// The program clock reference of a packet: its process identifier, and the base.
pub fn clock_reference(packet: &[u8]) -> Option<(u16, u64)> {
    let &[SYNC, b1, b2, b3, length, flags, p0, p1, p2, p3, p4, ..] = packet else { return None };
    let (has_adaptation, has_reference) = (b3 & 0x20 != 0, length >= 7 && flags & 0x10 != 0);
    if !has_adaptation || !has_reference {
        return None;
    }
    let pid = u16::from_be_bytes([b1 & 0x1f, b2]);
    let high = u64::from(u32::from_be_bytes([p0, p1, p2, p3]));
    Some((pid, high << 1 | u64::from(p4 >> 7)))
}

/// When the groups of packets of a file are due, by the first clock in it.
#[derive(Debug)]
pub struct Pacer {
    start: Instant,
    pid: Option<u16>,
    /// The last reference, when it was due, and the packets since.
    last: Option<(u64, Duration)>,
    packets: u32,
    /// Time of a packet, from the last two references.
    each: Duration,
}

impl Pacer {
    /// A pacer whose first packet is due at `start`.
    pub fn new(start: Instant) -> Self {
        Self { start, pid: None, last: None, packets: 0, each: Duration::ZERO }
    }

    /// When the next group of packets is due.
    pub fn due(&mut self, group: &[u8]) -> Instant {
        for packet in group.chunks(PACKET) {
            self.packets += 1;
            let reference = clock_reference(packet).filter(|(pid, _)| *self.pid.get_or_insert(*pid) == *pid);
            if let Some((_, base)) = reference {
                self.on_reference(base);
            }
        }
        let last = self.last.map_or(Duration::ZERO, |(_, at)| at);
        self.start + last + self.each * self.packets
    }

    /// Delays all packets that follow by this time, because the file could not be read in time.
    pub fn put_off(&mut self, by: Duration) {
        self.start += by;
    }

    fn on_reference(&mut self, base: u64) {
        let expected = self.last.map_or(Duration::ZERO, |(_, at)| at) + self.each * self.packets;
        let mut at = expected;
        if let Some((before, due)) = self.last {
            let ticks = base.wrapping_sub(before) & ((1 << BASE_BITS) - 1);
            let passed = Duration::from_micros(ticks * 1_000_000 / BASE_HZ);
            if passed <= CUT {
                self.each = passed / self.packets.max(1);
                at = due + passed;
            }
        }
        (self.last, self.packets) = (Some((base, at)), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with a reference of this base, or without one.
    fn packet(pid: u16, base: Option<u64>) -> Vec<u8> {
        let mut packet = vec![0xff; PACKET];
        let [high, low] = pid.to_be_bytes();
        packet[..4].copy_from_slice(&[SYNC, high, low, 0x10]);
        if let Some(base) = base {
            packet[3] = 0x30;
            packet[4..6].copy_from_slice(&[7, 0x10]);
            packet[6..10].copy_from_slice(&((base >> 1) as u32).to_be_bytes());
            packet[10] = (base as u8) << 7 | 0x7e;
        }
        packet
    }

    #[test]
    fn a_reference_is_read_and_other_bytes_have_none() {
        assert_eq!(clock_reference(&packet(0x1abc, Some(0x1_2345_6789))), Some((0x1abc, 0x1_2345_6789)));
        assert_eq!(clock_reference(&packet(7, None)), None);
        assert_eq!(clock_reference(&[SYNC; 8]), None);
        let mut other = packet(7, Some(5));
        other[0] = 0;
        assert_eq!(clock_reference(&other), None);
    }

    #[test]
    fn a_transport_stream_has_a_sync_byte_in_each_packet() {
        let stream = [packet(7, None), packet(8, Some(1)), packet(9, None)].concat();
        for length in [0, 1, PACKET, PACKET + 1, 3 * PACKET] {
            assert!(is_stream(&stream[..length]), "{length}");
        }
        // Any other file: packets of 192 bytes, text that begins with the byte, a part without the first
        // bytes.
        let long = [&stream[..PACKET], &[0; 4], &stream[PACKET..]].concat();
        for other in
            [&long[..], &[b"G".repeat(PACKET), b"no".repeat(PACKET)].concat(), &stream[1..], b"\0\0\0\x1cftypisom"]
        {
            assert!(!is_stream(other));
        }
    }

    #[test]
    fn packets_are_due_by_the_first_clock_and_a_cut_goes_on_at_the_same_pace() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start);
        // A reference of 10 ms every tenth packet, another program's clock beside it, a cut in the middle.
        let mut due = Vec::new();
        for n in 0..400_u64 {
            let jump = if n < 200 { 0 } else { 5_000_000 };
            let reference = (n % 10 == 0).then_some((1 << 33) - 900 + n * 90 + jump);
            let other = (n % 10 == 5).then(|| packet(9, Some(n)));
            let own = packet(7, reference.map(|base| base % (1 << 33)));
            due.push(pacer.due(&other.unwrap_or(own)).duration_since(start).as_micros() as u64);
        }
        // A file that stood still goes on at the same pace.
        let before = pacer.due(&packet(7, None));
        pacer.put_off(Duration::from_secs(3));
        let after = pacer.due(&packet(7, None)).duration_since(before);
        assert!(after.abs_diff(Duration::from_millis(3_001)) < Duration::from_micros(10), "{after:?}");
        // After two references, packet n is due at n ms.
        assert!((20..400).all(|n| due[n].abs_diff(due[20] + 1_000 * (n as u64 - 20)) < 1_100), "{due:?}");
    }
}
