//! One stream's two halves: what was written of it, and what arrived.
//!
//! The receiving half does not own bytes: a piece names where in the lane's ring its bytes lie, and is copied out only when
//! the ring needs the slot before the application has read it. Every byte of a stream is in exactly one symbol, so pieces
//! never overlap; a peer that breaks this is at fault. Bytes that nobody will read are counted and thrown away: how many came says
//! when the half is over.

use std::collections::VecDeque;

use tidewire_codec::{Decoder, SourceId};

/// Pieces that a stream may hold unread; a peer that needs more sends single bytes.
const MAX_PIECES: usize = 16_384;
/// Gaps between them: 8 MiB of credit in symbols of a little over 1,024 bytes, every second of them lost.
const MAX_GAPS: usize = 4_096;

/// Pieces copied out of the ring are joined up to this many bytes: else many small writes that a reader lets lie would look like
/// a peer that sends single bytes. No more, since the memory of a piece is given back when all of it was read.
const JOINED: usize = 16 << 10;

/// What a peer did wrong with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFault {
    /// Bytes beyond the credit given.
    Credit,
    /// Bytes that arrived before in another symbol, or another end than said before.
    Contradiction,
    /// More gaps than are kept.
    Gaps,
}

/// The sending half.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// Bytes put into symbols.
    pub written: u64,
    /// The peer accepts bytes below this offset.
    pub limit: u64,
    pub sending: Sending,
    /// The peer reads no more, said with this code.
    pub stopped: Option<u64>,
    /// The application knows that.
    pub told_stopped: bool,
    /// Waits for the peer's credit.
    pub starved: bool,
    /// Where it stands in the order of turns.
    pub served: u64,
}

/// How far the sending half is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sending {
    #[default]
    Open,
    /// Nothing more will be written: only the end is left, which needs no credit.
    Ends,
    /// The end is in a symbol.
    Finished,
    /// Given up.
    Reset,
}

impl Outgoing {
    /// Nothing is to be done any more for this half, and the application knows all there is to know of it.
    pub fn is_over(&self) -> bool {
        matches!(self.sending, Sending::Finished | Sending::Reset) && (self.stopped.is_none() || self.told_stopped)
    }

    /// Whether only the peer's credit keeps the stream from being written.
    pub fn lacks_credit(&self) -> bool {
        self.sending == Sending::Open && self.written >= self.limit
    }
}

#[derive(Debug)]
enum Place {
    /// In the ring: the bytes begin at `at` in the symbol `id`.
    Slot { id: SourceId, at: usize },
    /// Copied out of the ring; the bytes begin at `at`.
    Own { bytes: Vec<u8>, at: usize },
}

#[derive(Debug)]
struct Piece {
    offset: u64,
    len: usize,
    place: Place,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }
}

/// Who reads what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Open,
    /// We said that we would not.
    Stopped,
    /// The peer gave the stream up, with this code.
    Reset(u64),
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Sorted by offset; none once nobody reads.
    pieces: VecDeque<Piece>,
    /// Bytes that the application has taken; once nobody reads, bytes that came.
    read: u64,
    /// One past the highest byte that came.
    highest: u64,
    end: Option<u64>,
    reading: Reading,
    /// The application was given the end, or the code of a reset.
    pub told_end: bool,
    /// Bytes allowed beyond `read`.
    window: u64,
    /// The limit that the peer was told.
    pub told: u64,
    /// Packet that told it.
    pub told_in: Option<u64>,
    gaps: usize,
}

impl Incoming {
    /// `window` bytes may arrive unread.
    pub fn new(window: u64) -> Self {
        Self {
            pieces: VecDeque::new(),
            read: 0,
            highest: 0,
            end: None,
            reading: Reading::Open,
            told_end: false,
            window,
            told: window,
            told_in: None,
            gaps: 0,
        }
    }

    /// Takes bytes at `offset` that lie in symbol `id` from position `at` on.
    pub fn insert(&mut self, offset: u64, len: usize, fin: bool, id: SourceId, at: usize) -> Result<(), StreamFault> {
        let end = offset + len as u64;
        if end > self.told {
            return Err(StreamFault::Credit);
        }
        if self.end.is_some_and(|known| end > known || (fin && end != known)) || (fin && self.highest > end) {
            return Err(StreamFault::Contradiction);
        }
        if fin {
            self.end = Some(end);
        }
        if len == 0 {
            return Ok(());
        }
        if self.reading != Reading::Open {
            self.highest = self.highest.max(end);
            self.read += len as u64;
            return if self.read > self.highest { Err(StreamFault::Contradiction) } else { Ok(()) };
        }
        if offset < self.read {
            return Err(StreamFault::Contradiction);
        }
        // Nearly always the last place: a symbol decoded late fills a gap near the front.
        let index = self.pieces.partition_point(|piece| piece.offset < offset);
        let before_end = index.checked_sub(1).map_or(self.read, |before| self.pieces[before].end());
        let after = self.pieces.get(index).map(|piece| piece.offset);
        if before_end > offset || after.is_some_and(|after| after < end) {
            return Err(StreamFault::Contradiction);
        }
        let was_gap = after.is_some_and(|after| after > before_end);
        let gaps = self.gaps - usize::from(was_gap)
            + usize::from(offset > before_end)
            + usize::from(after.is_some_and(|after| after > end));
        if gaps > MAX_GAPS || self.pieces.len() >= MAX_PIECES {
            return Err(StreamFault::Gaps);
        }
        self.gaps = gaps;
        self.highest = self.highest.max(end);
        self.pieces.insert(index, Piece { offset, len, place: Place::Slot { id, at } });
        Ok(())
    }

    /// The peer gave the stream up at length `last`. Without meaning when all bytes are here.
    pub fn on_reset(&mut self, code: u64, last: u64) -> Result<(), StreamFault> {
        if last > self.told {
            return Err(StreamFault::Credit);
        }
        if self.highest > last || self.end.is_some_and(|end| end != last) {
            return Err(StreamFault::Contradiction);
        }
        let is_whole = self.end == Some(last) && self.highest == last && self.gaps == 0;
        self.end = Some(last);
        match self.reading {
            Reading::Open if is_whole => {}
            Reading::Open => self.discard(Reading::Reset(code)),
            Reading::Stopped => {}
            Reading::Reset(_) => return Err(StreamFault::Contradiction),
        }
        Ok(())
    }

    /// The application reads no more. Returns whether the peer should hear of it: it may have more to send.
    pub fn stop(&mut self) -> bool {
        if self.reading == Reading::Open {
            self.discard(Reading::Stopped);
        }
        self.told_end = true;
        self.end.is_none()
    }

    /// From now on nobody reads: what lies here is counted and thrown away.
    fn discard(&mut self, reading: Reading) {
        self.reading = reading;
        self.read += self.pieces.drain(..).map(|piece| piece.len as u64).sum::<u64>();
        self.pieces.shrink_to_fit();
        self.gaps = 0;
    }

    /// The peer's code, if it gave the stream up.
    pub fn reset_code(&self) -> Option<u64> {
        match self.reading {
            Reading::Reset(code) => Some(code),
            Reading::Open | Reading::Stopped => None,
        }
    }

    /// We said that we would not read.
    pub fn is_stopped(&self) -> bool {
        self.reading == Reading::Stopped
    }

    /// All bytes came and were read or thrown away, and the application knows how the half ended.
    pub fn is_over(&self) -> bool {
        self.told_end && self.is_at_end()
    }

    /// The next unread bytes, if they are here.
    pub fn chunk<'a>(&'a self, decoder: &'a Decoder) -> Option<&'a [u8]> {
        let piece = self.pieces.front().filter(|piece| piece.offset == self.read)?;
        match &piece.place {
            Place::Slot { id, at } => decoder.symbol(*id)?.get(*at..*at + piece.len),
            Place::Own { bytes, at } => bytes.get(*at..),
        }
    }

    /// The first `n` bytes of the chunk were read.
    pub fn consume(&mut self, n: usize) {
        let Some(front) = self.pieces.front_mut() else { return };
        let n = n.min(front.len);
        front.offset += n as u64;
        front.len -= n;
        self.read += n as u64;
        match &mut front.place {
            Place::Slot { at, .. } | Place::Own { at, .. } => *at += n,
        }
        if front.len == 0 {
            self.pieces.pop_front();
        }
    }

    /// Copies out what lies in symbols below `floor`: the ring is about to reuse their slots. Allocates for nothing but what it copies.
    pub fn copy_out(&mut self, floor: SourceId, decoder: &Decoder) {
        let mut kept = 0;
        for index in 0..self.pieces.len() {
            let Piece { offset, len, ref place } = self.pieces[index];
            if let Place::Slot { id, at } = *place
                && id < floor
            {
                let bytes = decoder.symbol(id).and_then(|symbol| symbol.get(at..at + len)).unwrap_or_default();
                let before = self.pieces.range_mut(..kept).next_back();
                if let Some(before) = before.filter(|before| before.end() == offset)
                    && let Place::Own { bytes: joined, .. } = &mut before.place
                    && joined.len() + bytes.len() <= JOINED
                {
                    joined.extend_from_slice(bytes);
                    before.len += bytes.len();
                    continue;
                }
                self.pieces[index].place = Place::Own { bytes: bytes.to_vec(), at: 0 };
            }
            self.pieces.swap(kept, index);
            kept += 1;
        }
        self.pieces.truncate(kept);
    }

    /// All bytes up to the end were read.
    pub fn is_at_end(&self) -> bool {
        self.end == Some(self.read)
    }

    /// Whether `read` would give bytes or the end, in whatever way it came.
    pub fn is_readable(&self) -> bool {
        self.is_at_end()
            || self.reading != Reading::Open
            || self.pieces.front().is_some_and(|piece| piece.offset == self.read)
    }

    /// The limit that the peer should know now. It moves once a quarter of the window was read, to spare the reverse path.
    pub fn wanted_limit(&self) -> u64 {
        let limit = self.read + self.window;
        let more = self.end.is_none() && self.reading == Reading::Open;
        if more && limit >= self.told + self.window / 4 { limit } else { self.told }
    }

    /// Lets more arrive unread: the reader keeps up and the window was the limit.
    pub fn widen(&mut self, bytes: u64) {
        self.window += bytes;
    }

    pub fn window(&self) -> u64 {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_codec::Limits;

    fn decoder() -> Decoder {
        let mut decoder = Decoder::new(Limits { slot_len: 64, capacity: 16, max_span: 16, max_rows: 16 });
        for id in 0..4_u64 {
            let symbol: Vec<u8> = (0..10).map(|n| (id * 10 + n) as u8).collect();
            decoder.receive_source(SourceId(id), &symbol).expect("accepted");
        }
        decoder
    }

    #[test]
    fn reads_in_order_whatever_the_order_of_arrival() {
        let decoder = decoder();
        let mut stream = Incoming::new(1_000);
        assert_eq!(stream.insert(20, 10, true, SourceId(2), 0), Ok(()));
        assert_eq!(stream.insert(0, 10, false, SourceId(0), 0), Ok(()));
        assert_eq!(stream.chunk(&decoder), Some(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9][..]));
        stream.consume(4);
        assert_eq!(stream.chunk(&decoder), Some(&[4, 5, 6, 7, 8, 9][..]));
        stream.consume(6);
        assert!(!stream.is_readable());
        assert_eq!(stream.insert(10, 10, false, SourceId(1), 0), Ok(()));
        stream.consume(10);
        stream.copy_out(SourceId(3), &decoder);
        assert_eq!(stream.chunk(&decoder), Some(&[20, 21, 22, 23, 24, 25, 26, 27, 28, 29][..]));
        stream.consume(10);
        assert!(stream.is_at_end());
    }

    #[test]
    fn contradictions_and_overruns_are_faults() {
        let mut stream = Incoming::new(100);
        assert_eq!(stream.insert(95, 10, false, SourceId(0), 0), Err(StreamFault::Credit));
        assert_eq!(stream.insert(10, 10, false, SourceId(0), 0), Ok(()));
        for (offset, len) in [(10, 10), (5, 6), (19, 2), (0, 30)] {
            assert_eq!(stream.insert(offset, len, false, SourceId(1), 0), Err(StreamFault::Contradiction), "{offset}");
        }
        assert_eq!(stream.insert(15, 0, true, SourceId(1), 0), Err(StreamFault::Contradiction));
        assert_eq!(stream.insert(20, 5, true, SourceId(1), 0), Ok(()));
        assert_eq!(stream.insert(25, 1, false, SourceId(1), 0), Err(StreamFault::Contradiction));
        assert_eq!(stream.insert(20, 6, true, SourceId(1), 0), Err(StreamFault::Contradiction));
    }

    #[test]
    fn a_reset_throws_away_what_came_and_waits_for_what_will() {
        let mut stream = Incoming::new(100);
        assert_eq!(stream.insert(0, 10, false, SourceId(0), 0), Ok(()));
        assert_eq!(stream.insert(30, 10, false, SourceId(1), 0), Ok(()));
        assert_eq!(stream.on_reset(7, 101), Err(StreamFault::Credit));
        assert_eq!(stream.on_reset(7, 39), Err(StreamFault::Contradiction));
        assert_eq!(stream.on_reset(7, 50), Ok(()));
        assert_eq!((stream.reset_code(), stream.is_readable(), stream.is_over()), (Some(7), true, false));
        assert_eq!(stream.on_reset(7, 50), Err(StreamFault::Contradiction));
        stream.told_end = true;
        assert_eq!(stream.insert(45, 10, false, SourceId(2), 0), Err(StreamFault::Contradiction));
        assert_eq!(stream.insert(40, 10, true, SourceId(2), 0), Ok(()));
        assert!(!stream.is_over(), "20 bytes are on their way");
        assert_eq!(stream.insert(10, 20, false, SourceId(3), 0), Ok(()));
        assert!(stream.is_over());
        assert_eq!(stream.insert(10, 1, false, SourceId(3), 0), Err(StreamFault::Contradiction), "more than there are");
    }

    #[test]
    fn a_reset_of_what_is_whole_changes_nothing() {
        let decoder = decoder();
        let mut stream = Incoming::new(100);
        assert_eq!(stream.insert(0, 10, true, SourceId(0), 0), Ok(()));
        assert_eq!(stream.on_reset(7, 10), Ok(()));
        assert_eq!((stream.reset_code(), stream.chunk(&decoder).map(<[u8]>::len)), (None, Some(10)));
        let mut early = Incoming::new(100);
        assert_eq!(early.insert(10, 10, true, SourceId(1), 0), Ok(()));
        assert_eq!(early.on_reset(7, 20), Ok(()));
        assert_eq!((early.reset_code(), early.chunk(&decoder)), (Some(7), None));
    }

    #[test]
    fn a_stopped_stream_takes_no_more_credit_and_is_over_with_its_last_byte() {
        let mut stream = Incoming::new(100);
        assert_eq!(stream.insert(0, 90, false, SourceId(0), 0), Ok(()));
        assert!(stream.stop(), "the peer does not know");
        assert_eq!(stream.wanted_limit(), 100);
        assert_eq!(stream.on_reset(7, 95), Ok(()));
        assert_eq!((stream.reset_code(), stream.is_over()), (None, false));
        assert_eq!(stream.insert(90, 5, false, SourceId(1), 0), Ok(()));
        assert!(stream.is_over() && !stream.stop());
    }

    #[test]
    fn any_number_of_small_writes_may_lie_unread() {
        let mut decoder = decoder();
        let mut stream = Incoming::new(1 << 20);
        let count = 3 * MAX_PIECES as u64;
        for n in 0..count {
            decoder.receive_source(SourceId(4 + n), &[n as u8]).expect("accepted");
            assert_eq!(stream.insert(n, 1, false, SourceId(4 + n), 0), Ok(()), "{n}");
            stream.copy_out(SourceId(n), &decoder);
        }
        for n in 0..count {
            assert_eq!(stream.chunk(&decoder).and_then(|chunk| chunk.first()), Some(&(n as u8)), "{n}");
            stream.consume(1);
        }
        assert!(!stream.is_readable());
    }

    #[test]
    fn gaps_are_bounded() {
        let mut stream = Incoming::new(1 << 20);
        for n in 0..MAX_GAPS as u64 {
            assert_eq!(stream.insert(2 * n + 1, 1, false, SourceId(0), 0), Ok(()));
        }
        assert_eq!(stream.insert(1 << 16, 1, false, SourceId(0), 0), Err(StreamFault::Gaps));
        assert_eq!(stream.insert(2, 1, false, SourceId(0), 0), Ok(()));
        assert_eq!(stream.insert(1 << 16, 1, false, SourceId(0), 0), Ok(()));
    }
}
