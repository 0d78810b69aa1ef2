//! What `live` reads of RTP packets (RFC 3550): when they were meant to leave, and which are missing already.
//!
//! [`super::input`] asks it about each datagram of `rtp://`. The packets themselves stay as they are.
//! Invariant: any bytes are taken; those that are no RTP packet are named; a stamp is never in the future,
//! and always leaves half of the latency or more. So a clock that stands still, runs slowly or jumps makes no
//! packet late.

use std::collections::BTreeMap;

use super::offset::Offset;
use super::wire::unwrap;

/// Length of the fixed header (RFC 3550 section 5.1).
const HEADER: usize = 12;
/// Payload type of MPEG transport streams (RFC 3551 section 6). Only there is the timestamp the time at which
/// the packet was meant to leave (RFC 2250 section 2); elsewhere all packets of a picture have one timestamp.
const TRANSPORT_STREAM: u8 = 33;
/// Sources that are followed at a time. Chosen: a mixer sends a few.
const MOST_SOURCES: usize = 16;
/// The part of the latency in which jitter is removed. Chosen: the other half is left for the path and its
/// repair.
const JITTER: i64 = 2;
/// The part of the latency beyond which a whole second that is late begins the offset anew. Chosen: half of
/// [`JITTER`], so that a pause which the clock does not count takes time from repair for two seconds.
const LIMIT: i64 = 4;
/// Microseconds in a second.
const SECOND: i64 = 1_000_000;
/// Sequence numbers that jump by more than this begin a new sequence (`MAX_DROPOUT` of RFC 3550 appendix
/// A.1).
const MOST_GAP: u16 = 3_000;

/// One source of an input.
#[derive(Debug)]
struct Source {
    offset: Offset,
    sequence: u16,
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// When it was meant to leave, in microseconds of the clock that gave `now`.
    pub stamp: i64,
    /// It came later than that by more than half of the latency, so the stamp is later than what it says.
    pub is_late: bool,
    /// Packets before it that did not come.
    pub gap: u64,
}

/// The sources of an input; see the module.
#[derive(Debug)]
pub struct Timeline {
    clock: i64,
    sources: BTreeMap<u32, Source>,
}

impl Timeline {
    /// A timeline of timestamps with a clock of so many hertz.
    pub fn new(clock: u32) -> Self {
        Self { clock: clock.max(1).into(), sources: BTreeMap::new() }
    }

    /// Reads a packet that came at `now` and is played out `latency` later; `None` if it is no RTP packet.
    pub fn read(&mut self, now: i64, latency: i64, packet: &[u8]) -> Option<Read> {
        let &[first, second, s0, s1, t0, t1, t2, t3, r0, r1, r2, r3] = packet.first_chunk::<HEADER>()?;
        if first >> 6 != 2 {
            return None;
        }
        let (sequence, timestamp) = (u16::from_be_bytes([s0, s1]), u32::from_be_bytes([t0, t1, t2, t3]));
        let name = u32::from_be_bytes([r0, r1, r2, r3]);
        if self.sources.len() >= MOST_SOURCES && !self.sources.contains_key(&name) {
            // Sources that have ended make room.
            self.sources.clear();
        }
        let source = self
            .sources
            .entry(name)
            .or_insert_with(|| Source { offset: Offset::new(latency / LIMIT), sequence: sequence.wrapping_sub(1) });
        let gap = sequence.wrapping_sub(source.sequence).wrapping_sub(1);
        // A packet out of order fills a gap that was counted, so it does not move the sequence back.
        let is_old = gap > u16::MAX / 2;
        if !is_old || gap < u16::MAX - MOST_GAP {
            source.sequence = sequence;
        }
        let gap = if gap <= MOST_GAP { gap.into() } else { 0 };
        let is_clocked = second & 0x7f == TRANSPORT_STREAM;
        let meant = if is_clocked { source.meant(now, latency, timestamp, self.clock) } else { now };
        let least = now - latency / JITTER;
        // A clock that is further behind than the latency says nothing.
        let stamp = if meant < now - latency { now } else { meant.clamp(least, now) };
        Some(Read { stamp, is_late: meant < least, gap })
    }
}

impl Source {
    /// When the packet was meant to leave, by the clock of the source.
    fn meant(&mut self, now: i64, latency: i64, timestamp: u32, clock: i64) -> i64 {
        // The arrival says how often the timestamp has wrapped, however long nothing came before it.
        let near = self.offset.expected(now).map_or_else(|| timestamp.into(), |sent| scale(sent, clock, SECOND));
        let sent = scale(unwrap(near, timestamp), SECOND, clock);
        self.offset.limit(latency / LIMIT);
        self.offset.on_arrival(now, now - sent);
        sent + self.offset.current()
    }
}

/// `value` times `to` over `from`. Their product would not fit after months.
fn scale(value: i64, to: i64, from: i64) -> i64 {
    i64::try_from(i128::from(value) * i128::from(to) / i128::from(from)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: i64 = 120_000;

    fn packet(source: u32, sequence: u16, timestamp: u32, payload_type: u8) -> Vec<u8> {
        let mut packet = vec![0x80, payload_type];
        packet.extend(sequence.to_be_bytes());
        packet.extend(timestamp.to_be_bytes());
        packet.extend(source.to_be_bytes());
        packet.extend([0x47; 188]);
        packet
    }

    #[test]
    fn jitter_of_a_transport_stream_is_removed_and_timestamps_wrap() {
        let mut timeline = Timeline::new(90_000);
        for n in 0..3_000_i64 {
            // A packet each 2 ms, up to 1.5 ms late; the first of all has no delay.
            let (sent, late) = (2_000 * n, n % 4 * 500);
            let timestamp = (u32::MAX - 90_000).wrapping_add(180 * n as u32);
            let read = timeline.read(sent + late, LATENCY, &packet(7, n as u16, timestamp, 33)).expect("RTP");
            assert!((read.stamp - sent).abs() <= 1 && read.gap == 0, "{n}: {read:?}");
        }
    }

    #[test]
    fn pictures_are_stamped_as_they_come_and_sources_are_apart() {
        let mut timeline = Timeline::new(90_000);
        for n in 0..100_i64 {
            for source in [1, 2] {
                let packet = packet(source, 10 * source as u16 + n as u16, 3_000, 96);
                let wanted = Read { stamp: 1_000 * n, is_late: false, gap: 0 };
                assert_eq!(timeline.read(1_000 * n, LATENCY, &packet), Some(wanted));
            }
        }
    }

    #[test]
    fn gaps_are_counted_and_jumps_begin_anew() {
        let mut timeline = Timeline::new(90_000);
        let mut gap = |sequence| timeline.read(0, LATENCY, &packet(1, sequence, 0, 96)).map(|read| read.gap);
        let gaps = [65_534, 65_535, 2, 1, 3, 20_003, 20_004, 19_000, 20_005].map(&mut gap);
        assert_eq!(gaps, [0, 0, 2, 0, 0, 0, 0, 0, 0].map(Some));
    }

    #[test]
    fn a_clock_that_jumps_makes_no_stamp_of_another_time() {
        let mut timeline = Timeline::new(90_000);
        for n in 0..4_000_i64 {
            let jump = if n < 1_000 { 0 } else { 900_000_000 };
            let packet = packet(7, n as u16, (90 * n + jump) as u32, 33);
            let read = timeline.read(1_000 * n, LATENCY, &packet).expect("RTP");
            assert!((1_000 * n - read.stamp).abs() <= 1, "{n}: {read:?}");
        }
    }

    /// Feeds 200 packets a second for `seconds`. `at` gives, for the time at which a packet is made, when it
    /// comes and what its clock says. Returns the age of each stamp, and how many were late.
    fn ages(latency: i64, seconds: i64, at: impl Fn(i64) -> (i64, i64)) -> (Vec<i64>, usize) {
        let mut timeline = Timeline::new(90_000);
        let mut late = 0;
        let ages = (0..200 * seconds).map(|n| {
            let (now, clock) = at(5_000 * n);
            let packet = packet(7, n as u16, (clock * 9 / 100 + 1_000) as u32, 33);
            let read = timeline.read(now, latency, &packet).expect("RTP");
            late += usize::from(read.is_late);
            now - read.stamp
        });
        (ages.collect(), late)
    }

    /// A pause that the clock does not count made all packets of minutes late if it was between the latency
    /// and a second.
    #[test]
    fn a_pause_that_the_clock_does_not_count_leaves_repair_its_time() {
        for latency in [20_000, 120_000, 2_000_000] {
            for pause in [10, 25, 50, 115, 125, 300, 500, 900, 999, 1_001, 1_500, 5_000, 90_000].map(|ms| ms * 1_000) {
                let (ages, _) = ages(latency, 45, |at| (if at < 5_300_000 { at } else { at + pause }, at));
                assert!(ages.iter().all(|age| (0..=latency / 2).contains(age)), "{latency}, {pause}");
                // Two seconds later, and half a minute later if the pause was short.
                let settled = &ages[200 * 8..];
                assert!(
                    settled.iter().all(|age| *age <= latency / 4),
                    "{latency}, {pause}: {:?}",
                    settled.iter().max()
                );
                let settled = &ages[200 * 38..];
                assert!(
                    settled.iter().all(|age| *age <= latency / 16 + 20),
                    "{latency}, {pause}: {:?}",
                    settled.iter().max()
                );
            }
        }
    }

    #[test]
    fn a_clock_that_runs_slowly_or_fast_or_not_at_all_leaves_repair_its_time() {
        // Clocks that are wrong by 1 % or less take a quarter of the latency, and what it grows by in two
        // seconds.
        let clocks =
            [(999, 45), (990, 51), (950, 60), (500, 60), (0, 60), (1_001, 0), (1_010, 0), (1_050, 0), (2_000, 0)];
        for (speed, most) in clocks {
            let (ages, _) = ages(LATENCY, 120, |at| (at, at * speed / 1_000));
            assert!(ages.iter().all(|age| (0..=1_000 * most + 20).contains(age)), "{speed}: {:?}", ages.iter().max());
        }
    }

    /// What a queue before this end holds up has true timestamps: it is late for a moment, and nothing after.
    #[test]
    fn a_stall_on_the_way_leaves_no_delay_and_its_jitter_is_removed() {
        for begin in (0..1_000_000).step_by(50_000).map(|part| 5_000_000 + part) {
            let (ages, late) =
                ages(LATENCY, 20, |at| (if (begin..begin + 500_000).contains(&at) { begin + 500_000 } else { at }, at));
            let first = (begin / 5_000) as usize;
            assert!(ages[..first].iter().chain(&ages[first + 100..]).all(|age| *age <= 20), "{begin}");
            // Those up to 60 ms old keep their stamps.
            assert_eq!((late, ages[first + 90]), (88, 50_000), "{begin}");
        }
    }

    /// A clock of 90 kHz wraps after 13.3 hours, one of 1 MHz after 71.6 minutes.
    #[test]
    fn a_silence_of_any_length_keeps_the_stamps() {
        for clock in [90_000, 1_000_000] {
            for hours in [1, 7, 14, 20, 24 * 7, 24 * 365_i64] {
                let mut timeline = Timeline::new(clock);
                for n in 0..400_i64 {
                    let sent = 10_000 * n + if n < 200 { 0 } else { hours * 3_600_000_000 };
                    let timestamp = scale(sent, clock.into(), SECOND) as u32;
                    // Each packet but the first of all is 5 ms late in turn.
                    let packet = packet(7, n as u16, timestamp, 33);
                    let read = timeline.read(sent + n % 2 * 5_000, LATENCY, &packet).expect("RTP");
                    assert!((read.stamp - sent).abs() <= 200, "{clock}, {hours}: {n}: {read:?}");
                }
            }
        }
    }

    #[test]
    fn other_bytes_are_no_packet_and_many_sources_are_bounded() {
        let mut timeline = Timeline::new(90_000);
        assert_eq!(timeline.read(0, LATENCY, &[0x47; 188]), None);
        assert_eq!(timeline.read(0, LATENCY, &packet(1, 0, 0, 33)[..11]), None);
        (0..1_000).for_each(|source| {
            timeline.read(0, LATENCY, &packet(source, 0, 0, 33)).expect("RTP");
        });
        assert!(timeline.sources.len() <= MOST_SOURCES);
    }
}
