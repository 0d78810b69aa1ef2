//! One track of the ledger: the marks of packets that were sent, or of symbols that were delivered.
//!
//! A connection's meter adds marks and settles their fates. Two readers take them: the channel of pages that
//! are open ([`Track::news`]), and a page that opens later ([`Track::all`]). Invariants: numbers ascend; a
//! mark is news when it is added and again when its fate changes; the owner bounds the length.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::channel::MARK_BYTES;

/// What a mark stands for, by the numbers of the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Content {
    /// A packet with control frames only.
    Control = 0,
    /// A probe of the packet size.
    SizeProbe = 1,
    /// The base of a lane.
    Base = 2,
    /// A source symbol.
    Source = 3,
    /// A source symbol that was sent before.
    Again = 4,
    /// A proactive repair.
    Ahead = 5,
    /// A repair for a reported deficit.
    Asked = 6,
    /// A combination of a relay.
    Recoded = 7,
    /// A symbol of the peer.
    Symbol = 8,
}

/// What became of it, by the numbers of the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fate {
    /// Not known yet.
    Flying = 0,
    /// The peer has the packet.
    Arrived = 1,
    /// The packet was declared lost.
    Lost = 2,
    /// The packet was declared lost and arrived after all.
    Late = 3,
    /// The symbol came in its first transmission.
    Direct = 4,
    /// The symbol came in a retransmission.
    Resent = 5,
    /// The symbol was computed from repairs.
    Repaired = 6,
    /// The symbol was given up.
    GivenUp = 7,
    /// The packet was declared lost, and was dropped at our own rate.
    Dropped = 8,
}

/// A packet that was sent, or a symbol that was delivered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// When the packet was sent, or the symbol delivered, since the job began.
    pub at: Duration,
    /// Number of the packet, or of the symbol in the order of delivery.
    pub number: u64,
    /// The symbol, or the first of a span.
    pub symbol: u64,
    /// Number of symbols that a repair spans.
    pub span: u16,
    /// Bytes on the wire; zero for a symbol.
    pub bytes: u32,
    /// What it stands for.
    pub content: Content,
    pub lane: u32,
    /// What became of it.
    pub fate: Fate,
    /// Time from sending until the fate was known; of a symbol its in-order delay.
    pub after: Duration,
    /// Number of the packet that repaired the symbol.
    pub by: u64,
}

impl Mark {
    /// The record of the channel. Numbers are cut to their width there.
    pub fn record(&self, connection: u16, track: u8) -> [u8; MARK_BYTES] {
        let mut record = [0; MARK_BYTES];
        let mut put = |place: usize, bytes: &[u8]| record[place..place + bytes.len()].copy_from_slice(bytes);
        put(0, &self.at.as_secs_f64().to_le_bytes());
        put(8, &(self.number as u32).to_le_bytes());
        put(12, &(self.symbol as u32).to_le_bytes());
        put(16, &self.span.to_le_bytes());
        put(18, &u16::try_from(self.bytes).unwrap_or(u16::MAX).to_le_bytes());
        put(20, &[(self.content as u8) | ((self.fate as u8) << 4)]);
        put(21, &[(self.lane as u8 & 0x7f) | (track << 7)]);
        put(22, &connection.to_le_bytes());
        put(24, &((self.after.as_secs_f64() * 1e3) as f32).to_le_bytes());
        put(28, &(self.by as u32).to_le_bytes());
        record
    }
}

/// Steps from the guessed place of a mark before all marks are searched. Chosen: a FEEDBACK packet, which has
/// no mark, comes at most after every second packet, and packets overtake each other by a few.
const STEPS: usize = 16;

/// The marks of one kind of a connection.
#[derive(Debug, Default)]
pub struct Track {
    marks: VecDeque<Mark>,
    /// Number of marks that were forgotten: the place of the first one.
    gone: u64,
    /// Place behind the newest mark that was told as news.
    told: u64,
    /// Places of marks that were told and have changed since.
    changed: BTreeSet<u64>,
    /// Numbers that have no mark, from the first mark to the one that was found last.
    gaps: u64,
}

impl Track {
    /// Number of marks.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Adds a mark. Numbers ascend; another number is ignored.
    pub fn add(&mut self, mark: Mark) {
        if self.marks.back().is_none_or(|last| last.number < mark.number) {
            self.marks.push_back(mark);
        }
    }

    /// Settles the fate of a packet, and returns its mark as it was before. `None` if the mark was forgotten.
    pub fn settle(&mut self, number: u64, fate: Fate, now: Duration) -> Option<Mark> {
        let index = self.find(number)?;
        let mark = self.marks.get_mut(index)?;
        let before = *mark;
        mark.fate = fate;
        mark.after = now.saturating_sub(mark.at);
        let place = self.gone + index as u64;
        if place < self.told {
            self.changed.insert(place);
        }
        Some(before)
    }

    /// Looks where the number lies if as many numbers before it have no mark as before the one that was found
    /// last, and a few steps around there: fates come nearly in the order of the numbers.
    fn find(&mut self, number: u64) -> Option<usize> {
        let ahead = number.checked_sub(self.marks.front()?.number)?;
        let mut index = usize::try_from(ahead.saturating_sub(self.gaps)).ok()?;
        for _ in 0..STEPS {
            match self.marks.get(index).map_or(Ordering::Greater, |mark| mark.number.cmp(&number)) {
                Ordering::Less => index += 1,
                Ordering::Equal => {
                    self.gaps = ahead - index as u64;
                    return Some(index);
                }
                Ordering::Greater => index = index.checked_sub(1)?,
            }
        }
        let index = self.marks.binary_search_by_key(&number, |mark| mark.number).ok()?;
        self.gaps = ahead - index as u64;
        Some(index)
    }

    /// The marks that changed, and then those that are new. New marks that are still in flight wait for their
    /// fate until they are older than `hold`, and later ones with them, so that most are told once.
    pub fn news(&mut self, now: Duration, hold: Duration) -> Vec<Mark> {
        let changed = std::mem::take(&mut self.changed);
        let places = changed.into_iter().filter_map(|place| usize::try_from(place.checked_sub(self.gone)?).ok());
        let mut news: Vec<Mark> = places.filter_map(|index| self.marks.get(index).copied()).collect();
        let from = usize::try_from(self.told.saturating_sub(self.gone)).unwrap_or(usize::MAX);
        let fresh = self.marks.iter().skip(from);
        let before = news.len();
        news.extend(fresh.take_while(|mark| mark.fate != Fate::Flying || mark.at + hold <= now));
        self.told = self.told.max(self.gone) + (news.len() - before) as u64;
        news
    }

    /// All marks that were told as news, with their fates of now.
    pub fn all(&self) -> impl Iterator<Item = &Mark> {
        let told = usize::try_from(self.told.saturating_sub(self.gone)).unwrap_or(usize::MAX);
        self.marks.iter().take(told)
    }

    /// Forgets the oldest `count` marks.
    pub fn forget(&mut self, count: usize) {
        let count = count.min(self.marks.len());
        self.marks.drain(..count);
        self.gone += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn sent(number: u64) -> Mark {
        Mark {
            at: SECOND * number as u32,
            number,
            symbol: number,
            span: 1,
            bytes: 1_200,
            content: Content::Source,
            lane: 0,
            fate: Fate::Flying,
            after: Duration::ZERO,
            by: 0,
        }
    }

    fn numbers(marks: &[Mark]) -> Vec<(u64, Fate)> {
        marks.iter().map(|mark| (mark.number, mark.fate)).collect()
    }

    #[test]
    fn a_mark_is_news_when_it_is_new_and_when_its_fate_changes() {
        let mut track = Track::default();
        (0..3).for_each(|number| track.add(sent(number)));
        let all = [(0, Fate::Flying), (1, Fate::Flying), (2, Fate::Flying)];
        assert_eq!(numbers(&track.news(SECOND * 2, Duration::ZERO)), all);
        track.settle(1, Fate::Lost, SECOND * 3).unwrap();
        track.add(sent(3));
        assert_eq!(numbers(&track.news(SECOND * 3, Duration::ZERO)), [(1, Fate::Lost), (3, Fate::Flying)]);
        assert!(track.news(SECOND * 3, Duration::ZERO).is_empty());
        let settled = track.all().nth(1).unwrap();
        assert_eq!((settled.fate, settled.after), (Fate::Lost, SECOND * 2));
    }

    #[test]
    fn a_recording_holds_marks_until_their_fate_is_known() {
        let mut track = Track::default();
        (0..4).for_each(|number| track.add(sent(number)));
        track.settle(0, Fate::Arrived, SECOND).unwrap();
        track.settle(2, Fate::Arrived, SECOND * 3).unwrap();
        assert_eq!(numbers(&track.news(SECOND * 3, SECOND * 3)), [(0, Fate::Arrived)]);
        let rest = [(1, Fate::Flying), (2, Fate::Arrived)];
        assert_eq!(numbers(&track.news(SECOND * 4, SECOND * 3)), rest);
    }

    #[test]
    fn forgotten_marks_are_neither_found_nor_told() {
        let mut track = Track::default();
        (0..6).for_each(|number| track.add(sent(2 * number)));
        track.news(SECOND * 20, Duration::ZERO);
        track.settle(0, Fate::Lost, SECOND * 20).unwrap();
        track.settle(8, Fate::Lost, SECOND * 20).unwrap();
        track.forget(2);
        assert_eq!((track.len(), track.settle(0, Fate::Arrived, SECOND * 21)), (4, None));
        assert_eq!(numbers(&track.news(SECOND * 20, Duration::ZERO)), [(8, Fate::Lost)]);
        assert_eq!(track.all().count(), 4);
    }

    #[test]
    fn marks_are_found_whatever_numbers_have_none() {
        let mut track = Track::default();
        // Every third number has no mark, later every second, and then there is a gap of a thousand.
        let numbers = (0..600).filter(|n| n % 3 != 0).chain((600..1_000).step_by(2)).chain(2_000..2_100);
        let numbers: Vec<u64> = numbers.collect();
        numbers.iter().for_each(|&number| track.add(sent(number)));
        for number in (0..2_200).chain([5, 2_050, 0, 999, 1_500, 1, u64::MAX]) {
            let found = track.find(number);
            assert_eq!(found, numbers.binary_search(&number).ok(), "{number}");
        }
        track.forget(500);
        assert_eq!((track.find(numbers[499]), track.find(numbers[510])), (None, Some(10)));
    }

    #[test]
    fn a_record_has_its_fields_where_the_page_reads_them() {
        let mark = Mark { fate: Fate::Lost, content: Content::Asked, span: 300, lane: 2, by: 9, ..sent(70_000) };
        let record = mark.record(515, 1);
        assert_eq!(f64::from_le_bytes(record[..8].try_into().unwrap()), 70_000.0);
        assert_eq!(record[8..12], 70_000u32.to_le_bytes());
        assert_eq!((&record[16..18], &record[18..20]), (&300u16.to_le_bytes()[..], &1_200u16.to_le_bytes()[..]));
        assert_eq!((record[20], record[21], &record[22..24]), (0x26, 0x82, &515u16.to_le_bytes()[..]));
        assert_eq!(record[28], 9);
    }
}
