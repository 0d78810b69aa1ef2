//! The two halves of one stream: how many bytes were written to it, and how many were received.
//!
//! The receiving half only counts; the bytes are in the [`Assembler`] of the connection. Every byte of a
//! stream is in exactly one symbol, and a peer that breaks this rule is at fault. Bytes that nobody will read
//! are counted and dropped, because the count tells when the half is over. The number of gaps in a stream is
//! not limited: losses cause the gaps, and an honest peer cannot prevent losses.

use tidewire_codec::SourceId;

use crate::lane::store::Store;

use super::assembler::{Assembler, Extent, Overlap};

/// What a peer did wrong with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFault {
    /// Bytes beyond the granted credit.
    Credit,
    /// Bytes that were received before in another symbol, a different end than announced, or bytes that a
    /// lower symbol should have held.
    Contradiction,
}

impl From<Overlap> for StreamFault {
    fn from(Overlap: Overlap) -> Self {
        Self::Contradiction
    }
}

/// The sending half.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// Bytes put into symbols.
    pub written: u64,
    /// The peer accepts bytes below this offset.
    pub limit: u64,
    pub sending: Sending,
    /// Code with which the peer stopped reading.
    pub stopped: Option<u64>,
    /// The application was told that the peer stopped reading.
    pub told_stopped: bool,
    /// True if the stream waits for the peer's credit.
    pub starved: bool,
    /// End of its last request in the order of turns.
    pub served: u64,
}

/// State of the sending half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sending {
    #[default]
    Open,
    /// Nothing more will be written. Only the end must be sent, which needs no credit.
    Ends,
    /// The end was put into a symbol.
    Finished,
    /// Reset by this end.
    Reset,
}

impl Outgoing {
    /// Whether this half is complete and the application has been told everything about it.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.sending, Sending::Finished | Sending::Reset) && (self.stopped.is_none() || self.told_stopped)
    }

    /// Whether only the peer's credit prevents writing.
    pub(crate) fn lacks_credit(&self) -> bool {
        self.sending == Sending::Open && self.written >= self.limit
    }
}

/// State of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Open,
    /// This end told the peer that it reads no more.
    Stopped,
    /// The peer reset the stream with this code.
    Reset(u64),
}

/// Where the bytes of a frame lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// In the ring: in the symbol `id`, from `at` on.
    Slot { id: SourceId, at: usize },
    /// Here; they must be copied. Used only for a symbol below which all symbols are known.
    Bytes(&'a [u8]),
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The stream's id, which finds its pieces.
    id: u64,
    /// Bytes that the application has read. If nobody reads any more: bytes received.
    read: u64,
    /// All lower bytes were received.
    whole: u64,
    /// One past the highest byte received.
    highest: u64,
    end: Option<u64>,
    reading: Reading,
    /// The application was told the end, or the code of a reset.
    pub told_end: bool,
    /// Number of bytes allowed beyond `read`.
    window: u64,
    /// The limit that was sent to the peer.
    pub told: u64,
    /// Packet that carried this limit.
    pub told_in: Option<u64>,
}

impl Incoming {
    /// Up to `window` bytes of stream `id` may be unread.
    pub(crate) fn new(id: u64, window: u64) -> Self {
        Self {
            id,
            read: 0,
            whole: 0,
            highest: 0,
            end: None,
            reading: Reading::Open,
            told_end: false,
            window,
            told: window,
            told_in: None,
        }
    }

    /// Takes `len` bytes at `offset`.
    pub(crate) fn insert(
        &mut self,
        offset: u64,
        len: usize,
        fin: bool,
        source: Source<'_>,
        assembler: &mut Assembler,
    ) -> Result<(), StreamFault> {
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
        // When bytes are copied, all lower symbols are known, so no earlier byte can still be missing.
        let is_gap = matches!(source, Source::Bytes(_)) && offset != self.whole;
        if offset < self.whole || is_gap {
            return Err(StreamFault::Contradiction);
        }
        let extent = Extent { stream: self.id, offset, len };
        match source {
            Source::Slot { id, at } => assembler.insert(extent, id, at)?,
            Source::Bytes(bytes) => assembler.insert_copy(self.id, offset, bytes)?,
        }
        self.highest = self.highest.max(end);
        if offset == self.whole {
            // In nearly all cases no higher byte was received yet.
            self.whole = if self.highest == end { end } else { assembler.whole_until(self.id, end) };
        }
        Ok(())
    }

    /// Handles the peer's reset of the stream at length `last`. Has no effect if all bytes are here.
    pub(crate) fn on_reset(&mut self, code: u64, last: u64, assembler: &mut Assembler) -> Result<(), StreamFault> {
        if last > self.told {
            return Err(StreamFault::Credit);
        }
        if self.highest > last || self.end.is_some_and(|end| end != last) {
            return Err(StreamFault::Contradiction);
        }
        let is_whole = self.end == Some(last) && self.whole == last;
        self.end = Some(last);
        match self.reading {
            Reading::Open if is_whole => {}
            Reading::Open => self.discard(Reading::Reset(code), assembler),
            Reading::Stopped => {}
            Reading::Reset(_) => return Err(StreamFault::Contradiction),
        }
        Ok(())
    }

    /// Called when the application reads no more. Returns whether the peer should be told, because it may
    /// have more to send.
    pub(crate) fn stop(&mut self, assembler: &mut Assembler) -> bool {
        if self.reading == Reading::Open {
            self.discard(Reading::Stopped, assembler);
        }
        self.told_end = true;
        self.end.is_none()
    }

    /// Stops reading. The bytes that are here are counted and dropped.
    fn discard(&mut self, reading: Reading, assembler: &mut Assembler) {
        self.reading = reading;
        self.read += assembler.discard(self.id);
    }

    /// The peer's code, if it reset the stream.
    pub(crate) fn reset_code(&self) -> Option<u64> {
        match self.reading {
            Reading::Reset(code) => Some(code),
            Reading::Open | Reading::Stopped => None,
        }
    }

    /// Whether this end told the peer that it reads no more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.reading == Reading::Stopped
    }

    /// Whether all bytes were received and were read or dropped, and the application was told how the half
    /// ended.
    pub(crate) fn is_over(&self) -> bool {
        self.told_end && self.is_at_end()
    }

    /// The next unread bytes, if they are here.
    pub(crate) fn chunk<'a>(&self, assembler: &'a Assembler, store: &'a Store) -> Option<&'a [u8]> {
        assembler.chunk(self.id, self.read, store)
    }

    /// Records that the first `n` bytes of the chunk were read.
    pub(crate) fn consume(&mut self, n: usize, assembler: &mut Assembler) {
        if self.reading == Reading::Open {
            self.read += assembler.consume(self.id, self.read, n) as u64;
        }
    }

    /// Copies the bytes at `offset` out of the symbol `id`, whose slot the ring is about to reuse. All
    /// symbols below `id` are known.
    pub(crate) fn copy_out(
        &self,
        offset: u64,
        len: usize,
        id: SourceId,
        assembler: &mut Assembler,
        store: &Store,
    ) -> Result<(), StreamFault> {
        let extent = Extent { stream: self.id, offset, len };
        if self.reading != Reading::Open {
            return Ok(());
        }
        if offset + len as u64 > self.whole {
            return Err(StreamFault::Contradiction);
        }
        assembler.copy_out(extent, id, store);
        Ok(())
    }

    /// Whether all bytes up to the end were read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.end == Some(self.read)
    }

    /// Whether `read` would return bytes, the end, or the code of a reset.
    pub(crate) fn is_readable(&self) -> bool {
        self.is_at_end() || self.reading != Reading::Open || self.whole > self.read
    }

    /// The limit that the peer should be told now. It moves only after a quarter of the window was read, to
    /// save packets on the reverse path.
    pub(crate) fn wanted_limit(&self) -> u64 {
        let limit = self.read + self.window;
        let more = self.end.is_none() && self.reading == Reading::Open;
        if more && limit >= self.told + self.window / 4 { limit } else { self.told }
    }

    /// Allows `bytes` more to be unread, because the reader keeps up and the window was the limit.
    pub(crate) fn widen(&mut self, bytes: u64) {
        self.window += bytes;
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_codec::{Elimination, Limits};

    /// A stream with a window of `window` bytes, and its unread pieces.
    struct Reader {
        stream: Incoming,
        assembler: Assembler,
    }

    impl Reader {
        fn new(window: u64) -> Self {
            Self { stream: Incoming::new(4, window), assembler: Assembler::default() }
        }

        fn insert(&mut self, offset: u64, len: usize, fin: bool, id: u64) -> Result<(), StreamFault> {
            let source = Source::Slot { id: SourceId(id), at: 0 };
            self.stream.insert(offset, len, fin, source, &mut self.assembler)
        }

        fn on_reset(&mut self, code: u64, last: u64) -> Result<(), StreamFault> {
            self.stream.on_reset(code, last, &mut self.assembler)
        }

        fn chunk<'a>(&'a self, decoder: &'a Store) -> Option<&'a [u8]> {
            self.stream.chunk(&self.assembler, decoder)
        }

        fn consume(&mut self, n: usize) {
            self.stream.consume(n, &mut self.assembler);
        }
    }

    fn decoder() -> Store {
        let mut decoder =
            Store::new(Limits { slot_len: 64, capacity: 16, max_span: 16, max_rows: 16 }, Elimination::WhenStuck);
        for id in 0..4_u64 {
            let symbol: Vec<u8> = (0..10).map(|n| (id * 10 + n) as u8).collect();
            decoder.receive_source(SourceId(id), &symbol).expect("accepted");
        }
        decoder
    }

    #[test]
    fn reads_in_order_whatever_the_order_of_arrival() {
        let decoder = decoder();
        let mut reader = Reader::new(1_000);
        assert_eq!(reader.insert(20, 10, true, 2), Ok(()));
        assert_eq!(reader.insert(0, 10, false, 0), Ok(()));
        assert_eq!(reader.chunk(&decoder), Some(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9][..]));
        reader.consume(4);
        assert_eq!(reader.chunk(&decoder), Some(&[4, 5, 6, 7, 8, 9][..]));
        reader.consume(6);
        assert!(!reader.stream.is_readable());
        assert_eq!(reader.insert(10, 10, false, 1), Ok(()));
        reader.consume(10);
        assert_eq!(reader.stream.copy_out(20, 10, SourceId(2), &mut reader.assembler, &decoder), Ok(()));
        assert_eq!(reader.assembler.lowest_in_slots(SourceId(u64::MAX)), None);
        assert_eq!(reader.chunk(&decoder), Some(&[20, 21, 22, 23, 24, 25, 26, 27, 28, 29][..]));
        reader.consume(10);
        assert!(reader.stream.is_at_end());
    }

    #[test]
    fn contradictions_and_overruns_are_faults() {
        let mut reader = Reader::new(100);
        assert_eq!(reader.insert(95, 10, false, 0), Err(StreamFault::Credit));
        assert_eq!(reader.insert(10, 10, false, 0), Ok(()));
        for (offset, len) in [(10, 10), (5, 6), (19, 2), (0, 30)] {
            assert_eq!(reader.insert(offset, len, false, 1), Err(StreamFault::Contradiction), "{offset}");
        }
        assert_eq!(reader.insert(15, 0, true, 1), Err(StreamFault::Contradiction));
        assert_eq!(reader.insert(20, 5, true, 1), Ok(()));
        assert_eq!(reader.insert(25, 1, false, 1), Err(StreamFault::Contradiction));
        assert_eq!(reader.insert(20, 6, true, 1), Err(StreamFault::Contradiction));
    }

    /// An honest sender puts bytes into symbols in order. Once all symbols up to one are known, no byte below
    /// its bytes can be missing.
    #[test]
    fn bytes_beyond_a_gap_that_nothing_can_close_are_a_fault() {
        let decoder = decoder();
        let mut reader = Reader::new(100);
        assert_eq!(reader.insert(20, 10, false, 0), Ok(()));
        let copied = reader.stream.copy_out(20, 10, SourceId(0), &mut reader.assembler, &decoder);
        assert_eq!(copied, Err(StreamFault::Contradiction));
    }

    #[test]
    fn a_reset_throws_away_what_came_and_waits_for_what_will() {
        let mut reader = Reader::new(100);
        assert_eq!(reader.insert(0, 10, false, 0), Ok(()));
        assert_eq!(reader.insert(30, 10, false, 1), Ok(()));
        assert_eq!(reader.on_reset(7, 101), Err(StreamFault::Credit));
        assert_eq!(reader.on_reset(7, 39), Err(StreamFault::Contradiction));
        assert_eq!(reader.on_reset(7, 50), Ok(()));
        let stream = &reader.stream;
        assert_eq!((stream.reset_code(), stream.is_readable(), stream.is_over()), (Some(7), true, false));
        assert_eq!(reader.on_reset(7, 50), Err(StreamFault::Contradiction));
        reader.stream.told_end = true;
        assert_eq!(reader.insert(45, 10, false, 2), Err(StreamFault::Contradiction));
        assert_eq!(reader.insert(40, 10, true, 2), Ok(()));
        assert!(!reader.stream.is_over(), "20 bytes are on their way");
        assert_eq!(reader.insert(10, 20, false, 3), Ok(()));
        assert!(reader.stream.is_over());
        assert_eq!(reader.insert(10, 1, false, 3), Err(StreamFault::Contradiction), "more than there are");
    }

    #[test]
    fn a_reset_of_what_is_whole_changes_nothing() {
        let decoder = decoder();
        let mut reader = Reader::new(100);
        assert_eq!(reader.insert(0, 10, true, 0), Ok(()));
        assert_eq!(reader.on_reset(7, 10), Ok(()));
        assert_eq!((reader.stream.reset_code(), reader.chunk(&decoder).map(<[u8]>::len)), (None, Some(10)));
        let mut early = Reader::new(100);
        assert_eq!(early.insert(10, 10, true, 1), Ok(()));
        assert_eq!(early.on_reset(7, 20), Ok(()));
        assert_eq!((early.stream.reset_code(), early.chunk(&decoder)), (Some(7), None));
    }

    #[test]
    fn a_stopped_stream_takes_no_more_credit_and_is_over_with_its_last_byte() {
        let mut reader = Reader::new(100);
        assert_eq!(reader.insert(0, 90, false, 0), Ok(()));
        assert!(reader.stream.stop(&mut reader.assembler), "the peer does not know");
        assert_eq!(reader.stream.wanted_limit(), 100);
        assert_eq!(reader.on_reset(7, 95), Ok(()));
        assert_eq!((reader.stream.reset_code(), reader.stream.is_over()), (None, false));
        assert_eq!(reader.insert(90, 5, false, 1), Ok(()));
        assert!(reader.stream.is_over() && !reader.stream.stop(&mut reader.assembler));
    }

    #[test]
    fn any_number_of_small_writes_may_lie_unread() {
        let mut decoder = decoder();
        let mut reader = Reader::new(1 << 20);
        let count = 50_000;
        for n in 0..count {
            decoder.receive_source(SourceId(4 + n), &[n as u8]).expect("accepted");
            assert_eq!(reader.insert(n, 1, false, 4 + n), Ok(()), "{n}");
            let copied = reader.stream.copy_out(n, 1, SourceId(4 + n), &mut reader.assembler, &decoder);
            assert_eq!(copied, Ok(()), "{n}");
        }
        let memory = reader.assembler.memory();
        assert!(memory < 60_000, "{memory} bytes for {count}");
        for n in 0..count {
            assert_eq!(reader.chunk(&decoder).and_then(|chunk| chunk.first()), Some(&(n as u8)), "{n}");
            reader.consume(1);
        }
        assert!(!reader.stream.is_readable());
    }
}
