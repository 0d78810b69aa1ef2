//! The buffer of a receiver: which datagram is played out when, and what counts as missing.
//!
//! [`super::output`] owns it and has the clock. Each datagram is due at its stamp, moved to our clock
//! ([`Offset`]), plus the latency. Invariants: a program's datagrams leave in the order of their numbers;
//! none leaves more than [`GRACE`] after it is due; each number is played or missing, and never both.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::offset::Offset;
use super::wire::{Head, Played, unwrap};

/// A datagram that comes at most this much after its time is played at once. Chosen: half of the jitter that
/// an output may have.
const GRACE: i64 = 500;
/// Most bytes that wait. Chosen: 2.5 s at 200 Mbit/s.
const MOST_BYTES: usize = 64 << 20;
/// Bytes that a datagram counts beyond its own, so that the number of empty ones is bounded too.
const PER_DATAGRAM: usize = 128;

/// A datagram to be played out now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub program: u8,
    pub data: Vec<u8>,
    /// When it is due, in microseconds.
    pub at: i64,
    /// When it would have been here by the fastest way, in microseconds: the delay counts from then.
    pub sent: i64,
}

/// The datagrams of one program.
#[derive(Debug, Default)]
struct Program {
    /// The number that is played next.
    next: i64,
    highest: i64,
    waiting: BTreeMap<i64, (i64, Vec<u8>)>,
}

/// A receiver's buffer; see the module. All times are microseconds.
#[derive(Debug)]
pub struct Playout {
    latency: i64,
    offset: Offset,
    programs: BTreeMap<u8, Program>,
    bytes: usize,
    counts: Played,
}

impl Playout {
    /// A buffer with this latency beyond the path's least one-way time.
    pub fn new(latency: i64) -> Self {
        let (offset, counts) = (Offset::new(latency), Played::default());
        Self { latency, offset, programs: BTreeMap::new(), bytes: 0, counts }
    }

    /// Takes a datagram that arrived at `now`.
    pub fn push(&mut self, now: i64, head: Head, datagram: &[u8]) {
        // The arrival says how often the stamp has wrapped, however long nothing came before it.
        let stamp = unwrap(self.offset.expected(now).unwrap_or_else(|| head.stamp.into()), head.stamp);
        self.offset.on_arrival(now, now - stamp);
        let due = stamp + self.offset.current() + self.latency;
        let program = self.programs.entry(head.program).or_default();
        let number = unwrap(program.highest, head.sequence);
        program.highest = program.highest.max(number);
        if number < program.next || due + GRACE < now {
            self.counts.late += 1;
            return;
        }
        let length = datagram.len() + PER_DATAGRAM;
        // The first of two datagrams with one number counts, so that `bytes` is the sum of what waits.
        if let Entry::Vacant(place) = program.waiting.entry(number)
            && self.bytes + length <= MOST_BYTES
        {
            place.insert((stamp, datagram.to_vec()));
            self.bytes += length;
        }
    }

    /// When the next datagram is due.
    pub fn next_due(&self) -> Option<i64> {
        let (stamp, _) = self.front()?;
        Some(stamp + self.offset.current() + self.latency)
    }

    /// Removes and returns the datagram that is due longest.
    pub fn pop(&mut self, now: i64) -> Option<Due> {
        let (stamp, name) = self.front()?;
        let sent = stamp + self.offset.current();
        let at = sent + self.latency;
        if at > now {
            return None;
        }
        let program = self.programs.get_mut(&name)?;
        let (number, (_, data)) = program.waiting.pop_first()?;
        self.bytes -= data.len() + PER_DATAGRAM;
        self.counts.missing = self.counts.missing.saturating_add((number - program.next).unsigned_abs());
        self.counts.played += 1;
        program.next = number + 1;
        Some(Due { program: name, data, at, sent })
    }

    /// Counts the rest as missing, of so many datagrams of each program. Nothing waits any more.
    pub fn finish(&mut self, sent: &[u64]) {
        for (name, &sent) in (0..=u8::MAX).zip(sent) {
            let next = self.programs.get(&name).map_or(0, |program| program.next);
            self.counts.missing = self.counts.missing.saturating_add(sent.saturating_sub(next.unsigned_abs()));
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    /// What was played so far.
    pub fn counts(&self) -> Played {
        self.counts
    }

    /// How often the sender's clock, or the path's one-way time, changed by more than a queue explains.
    pub fn jumps(&self) -> u64 {
        self.offset.jumps()
    }

    /// The stamp and program of the datagram that is due first.
    fn front(&self) -> Option<(i64, u8)> {
        let fronts = self
            .programs
            .iter()
            .filter_map(|(&name, program)| program.waiting.first_key_value().map(|(_, (stamp, _))| (*stamp, name)));
        fronts.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Datagram number n has the stamp n ms; the path takes 30 ms.
    fn head(n: u32) -> Head {
        Head { program: 0, sequence: n, stamp: 1_000 * n }
    }

    #[test]
    fn a_peer_may_name_any_number_of_datagrams() {
        let mut playout = Playout::new(100_000);
        playout.finish(&[u64::MAX; 3]);
        assert_eq!(playout.counts().missing, u64::MAX);
    }

    fn numbers(playout: &mut Playout, now: i64) -> Vec<(u8, i64)> {
        std::iter::from_fn(|| playout.pop(now)).map(|due| (due.data[0], due.at)).collect()
    }

    #[test]
    fn datagrams_leave_in_order_and_exactly_the_latency_after_the_fastest_way() {
        let mut playout = Playout::new(80_000);
        for (n, arrival) in [(0, 30_000), (2, 32_000), (1, 95_000), (3, 33_000)] {
            playout.push(arrival, head(n), &[n as u8]);
        }
        assert_eq!(playout.next_due(), Some(110_000));
        assert!(numbers(&mut playout, 109_999).is_empty());
        assert_eq!(numbers(&mut playout, 112_000), [(0, 110_000), (1, 111_000), (2, 112_000)]);
        assert_eq!(numbers(&mut playout, 120_000), [(3, 113_000)]);
        assert_eq!(playout.counts(), Played { played: 4, missing: 0, late: 0 });
    }

    #[test]
    fn what_is_late_is_missing_and_never_played() {
        let mut playout = Playout::new(80_000);
        playout.push(30_000, head(0), &[0]);
        playout.push(33_000, head(3), &[3]);
        assert_eq!(numbers(&mut playout, 113_000), [(0, 110_000), (3, 113_000)]);
        playout.push(113_100, head(2), &[2]);
        playout.push(115_400, head(5), &[5]);
        playout.push(115_501, head(4), &[4]);
        assert_eq!(numbers(&mut playout, 116_000), [(5, 115_000)]);
        assert_eq!(playout.counts(), Played { played: 3, missing: 3, late: 2 });
        playout.finish(&[8]);
        assert_eq!(playout.counts().missing, 5);
    }

    #[test]
    fn a_second_copy_is_ignored_and_numbers_wrap() {
        let mut playout = Playout::new(10_000);
        let high = u32::MAX - 1;
        playout.programs.insert(0, Program { next: high.into(), highest: high.into(), ..Program::default() });
        for (n, sequence) in [(0, high), (0, high), (1, u32::MAX), (2, 0)] {
            playout.push(1_000 * n, Head { program: 0, sequence, stamp: 1_000 * n as u32 }, &[n as u8]);
        }
        assert_eq!(numbers(&mut playout, 20_000), [(0, 10_000), (1, 11_000), (2, 12_000)]);
        assert_eq!(playout.counts(), Played { played: 3, missing: 0, late: 0 });
    }

    /// Stamps wrap after 2^32 us, so those of two datagrams say no more about the time between them than
    /// their distance modulo 71.6 minutes.
    #[test]
    fn a_silence_of_any_length_makes_no_datagram_late() {
        const MINUTE: i64 = 60_000_000;
        for silence in [1, 35, 36, 39, 70, 72, 107, 108, 600, 60 * 24 * 7].map(|minutes| minutes * MINUTE) {
            let mut playout = Playout::new(80_000);
            let sent = |n: u32| i64::from(n) * 10_000 + if n < 100 { 0 } else { silence };
            for n in 0..200 {
                let head = Head { program: 0, sequence: n, stamp: sent(n) as u32 };
                playout.push(sent(n) + 30_000, head, &[n as u8]);
                assert_eq!(numbers(&mut playout, sent(n) + 110_000), [(n as u8, sent(n) + 110_000)], "{silence}");
            }
            assert_eq!((playout.counts().late, playout.jumps()), (0, 0), "{silence}");
        }
    }

    /// The sender's machine sleeps, and its clock with it.
    #[test]
    fn a_sender_that_slept_loses_nothing() {
        const MINUTE: i64 = 60_000_000;
        for (silence, counted) in [(10, 0), (40, 0), (100, 60), (300, 0)].map(|(s, c)| (s * MINUTE, c * MINUTE)) {
            let mut playout = Playout::new(80_000);
            for n in 0..200_u32 {
                let (passed, on_clock) = if n < 100 { (0, 0) } else { (silence, counted) };
                let sent = i64::from(n) * 10_000;
                let head = Head { program: 0, sequence: n, stamp: (sent + on_clock) as u32 };
                playout.push(sent + passed + 30_000, head, &[n as u8]);
                assert_eq!(numbers(&mut playout, sent + passed + 110_000).len(), 1, "{silence}: {n}");
            }
            assert_eq!((playout.counts().late, playout.jumps()), (0, 1), "{silence}");
        }
    }

    #[test]
    fn programs_have_numbers_of_their_own_and_share_the_clock() {
        let mut playout = Playout::new(10_000);
        playout.push(0, Head { program: 1, sequence: 0, stamp: 0 }, &[10]);
        playout.push(1_000, Head { program: 0, sequence: 1, stamp: 1_000 }, &[1]);
        playout.push(1_500, Head { program: 1, sequence: 1, stamp: 1_500 }, &[11]);
        assert_eq!(numbers(&mut playout, 20_000), [(10, 10_000), (1, 11_000), (11, 11_500)]);
        assert_eq!(playout.counts().missing, 1);
        playout.finish(&[2, 4]);
        assert_eq!(playout.counts().missing, 3);
    }

    #[test]
    fn a_peer_cannot_fill_the_memory() {
        let mut playout = Playout::new(60_000_000);
        let datagram = vec![0; 1 << 16];
        for n in 0..3_000 {
            playout.push(n.into(), Head { program: n as u8, sequence: n, stamp: 0 }, &datagram);
        }
        assert!(playout.bytes <= MOST_BYTES);
    }

    /// A peer sends each number without data, and then with much. Before the fix, the second replaced the
    /// first and was not counted.
    #[test]
    fn a_peer_cannot_fill_the_memory_with_numbers_that_come_twice() {
        let mut playout = Playout::new(60_000_000);
        let datagram = vec![0; 1 << 16];
        for sequence in 0..1_100 {
            let head = Head { program: 0, sequence, stamp: 0 };
            playout.push(0, head, &[]);
            playout.push(0, head, &datagram);
        }
        let waiting = playout.programs.values().flat_map(|program| program.waiting.values());
        let held: usize = waiting.map(|(_, data)| data.len() + PER_DATAGRAM).sum();
        assert_eq!(held, playout.bytes);
        assert!(playout.pop(i64::MAX / 2).is_some_and(|due| due.data.is_empty()));
    }
}
