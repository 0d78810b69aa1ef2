//! Fills symbols with bytes of streams, with frames about a stream, and with messages.
//!
//! Only one symbol is open at a time. Bytes in a symbol that was not sent yet can still be removed, for
//! example when a stream is reset.

use core::time::Duration;

use tidewire_codec::SourceId;

use super::{LaneSender, OpenSymbol};
use crate::Time;
use crate::redundancy::MAX_RUNS;
use crate::wire::{OpenStream, SYMBOL_HEADER_LEN, SymbolFrame, SymbolFrames, SymbolHeader, Writer, message_room};

/// A message does not begin in the rest of a symbol if fewer of its bytes than this would fit. Wasting the
/// end of a symbol costs less than making the message depend on one more symbol.
const LEAST_PART: usize = 128;

impl LaneSender {
    /// Number of symbols that may still be filled if `allowance` symbols may be queued, the open one
    /// included.
    pub(crate) fn room(&self, allowance: usize) -> usize {
        let stuck = self.window.is_full() && !self.may_grow();
        let fresh = if stuck { 0 } else { allowance.saturating_sub(self.queued()) };
        fresh + usize::from(self.open.is_some())
    }

    /// Appends bytes of a stream, as many as fit into `allowance` queued symbols of at most `symbol_len`
    /// bytes. `fin` means that the stream ends after the last byte. Returns the number of bytes taken, and
    /// whether the end was taken too.
    pub(crate) fn write(
        &mut self,
        stream: u64,
        offset: u64,
        data: &[u8],
        fin: bool,
        symbol_len: usize,
        allowance: usize,
    ) -> (usize, bool) {
        let mut taken = 0;
        loop {
            let rest = &data[taken..];
            if rest.is_empty() && !fin {
                return (taken, false);
            }
            if !self.ensure_open(symbol_len, allowance) {
                return (taken, false);
            }
            match self.append(stream, offset + taken as u64, rest, fin) {
                Some((n, ended)) => {
                    taken += n;
                    if ended || (taken == data.len() && !fin) {
                        return (taken, ended);
                    }
                }
                None => self.close(),
            }
        }
    }

    /// Writes into the open symbol; `None` if it has no room left.
    fn append(&mut self, stream: u64, offset: u64, data: &[u8], fin: bool) -> Option<(usize, bool)> {
        let open = self.open.as_mut()?;
        let slot = self.window.open()?.get_mut(..open.limit)?;
        let mut writer = Writer::resume(slot, open.len);
        // The frame is changed in place: a copy would wait until the bytes that were just written have left
        // the processor's store buffer, some 16 ns per symbol.
        let continued = open.stream.as_mut().filter(|frame| frame.continues(stream, offset));
        let frame = match continued {
            Some(frame) => frame,
            None => {
                let least = OpenStream::header_len(stream, offset) + usize::from(!data.is_empty());
                if writer.remaining() < least {
                    return None;
                }
                open.stream.insert(OpenStream::begin(&mut writer, stream, offset).ok()?)
            }
        };
        let n = frame.append(&mut writer, data);
        if n == 0 && !data.is_empty() {
            return None;
        }
        let ended = fin && n == data.len();
        if ended {
            frame.finish(&mut writer);
        }
        open.len = writer.len();
        Some((n, ended))
    }

    /// Writes a frame that carries no stream bytes, however many symbols are queued. Returns false if the
    /// ring is full.
    pub(crate) fn write_control(&mut self, frame: &SymbolFrame<'_>, symbol_len: usize) -> bool {
        loop {
            if !self.ensure_open(symbol_len, usize::MAX) {
                return false;
            }
            let Some((open, slot)) = self.open.as_mut().zip(self.window.open()) else { return false };
            let Some(slot) = slot.get_mut(..open.limit) else { return false };
            let mut writer = Writer::resume(slot, open.len);
            if frame.emit(&mut writer).is_ok() {
                open.len = writer.len();
                open.stream = None;
                return true;
            }
            if open.len == SYMBOL_HEADER_LEN {
                return false;
            }
            self.close();
        }
    }

    /// Removes the bytes of a stream from symbols that were not sent yet. Returns the lowest offset removed.
    pub(crate) fn withdraw(&mut self, stream: u64) -> Option<u64> {
        let mut first: Option<u64> = None;
        let mut took = |offset| first = Some(first.map_or(offset, |first| first.min(offset)));
        for id in self.ids.sent.0..self.window.ids().end.0 {
            if let Some(symbol) = self.window.symbol_mut(SourceId(id)) {
                without(stream, symbol, &mut took);
            }
        }
        if let Some((open, slot)) = self.open.as_mut().zip(self.window.open())
            && let Some(symbol) = slot.get_mut(..open.len)
            && (SymbolHeader { length: open.len as u16, time: 0 }).emit(symbol).is_ok()
        {
            // The next bytes need a new frame.
            open.stream = None;
            open.len = without(stream, symbol, &mut took);
        }
        first
    }

    /// Further symbols that this end and the peer take now.
    pub(crate) fn credit(&self) -> u64 {
        let end = self.window.ids().end;
        let most = if self.may_grow() { self.max_capacity } else { self.window.capacity() };
        (most.saturating_sub(self.held()) as u64).min(self.ids.peer_limit.since(end))
    }

    /// Opens a symbol to which nothing is written. Returns whether there was room.
    pub(super) fn open_empty(&mut self) -> bool {
        self.ensure_open(SYMBOL_HEADER_LEN, usize::MAX)
    }

    fn ensure_open(&mut self, symbol_len: usize, allowance: usize) -> bool {
        if self.open.is_some() {
            return true;
        }
        if self.queued() >= allowance {
            return false;
        }
        if self.window.is_full() {
            if !self.may_grow() {
                return false;
            }
            self.spare -= self.memory();
            self.grow(self.window.capacity() * 2);
        }
        let limit = symbol_len.min(self.window.slot_len());
        self.open = Some(OpenSymbol { len: SYMBOL_HEADER_LEN, limit, stream: None });
        true
    }

    /// Whether the ring may double.
    fn may_grow(&self) -> bool {
        self.window.capacity() < self.max_capacity && self.memory() <= self.spare
    }

    /// Grows the ring and, at the same time, every list with an entry per symbol. Otherwise these lists would
    /// grow one by one, whenever more losses occur than ever before.
    fn grow(&mut self, capacity: usize) {
        self.window.grow(capacity);
        self.sources.reserve(capacity - self.sources.len());
        self.lost.reserve(capacity.saturating_sub(self.lost.len()));
        if capacity >= 2 * MAX_RUNS {
            self.reported.report.reserve_regions();
        }
        self.reserve_repairs();
    }

    /// Until when the next symbol to send is held back for more bytes; `None` if it is not held.
    ///
    /// Only an open symbol is held, only while it is less than half full, and only if the symbol before it
    /// was sent before it was full. It is held for `hold` after that symbol was sent. So the first bytes
    /// after a pause leave at once, as does the rest of a record that is longer than a packet. Small records
    /// in quick succession share a packet.
    pub(crate) fn held_until(&self, hold: impl FnOnce() -> Duration) -> Option<Time> {
        let open = self.open.as_ref()?;
        let is_next = self.ids.sent == self.window.ids().end;
        let follows_partial = self.newest_partial.is_some_and(|partial| partial.next() == self.ids.sent);
        // In a symbol that is half full, headers are at most a tenth of the packet, so waiting for more bytes
        // saves little.
        (is_next && follows_partial && open.len < open.limit / 2).then(|| self.pace.last + hold())
    }

    pub(super) fn close(&mut self) {
        if let Some(open) = self.open.take() {
            let header = SymbolHeader { length: open.len as u16, time: 0 };
            let emitted = self.window.open().is_some_and(|slot| header.emit(slot).is_ok());
            debug_assert!(emitted, "a slot holds a header");
            let committed = self.window.commit(open.len);
            debug_assert!(committed.is_ok(), "the ring had room when the symbol was opened: {committed:?}");
        }
    }

    /// Whether at least half of the ring is free. The application may then send messages again.
    pub(crate) fn is_half_free(&self) -> bool {
        self.held() <= self.max_capacity / 2
    }

    /// Number of symbols kept, without the open one.
    fn held(&self) -> usize {
        (self.window.ids().end.0 - self.window.ids().start.0) as usize
    }

    /// Whether the ring has room for a message of `len` bytes.
    pub(crate) fn fits(&self, len: usize, symbol_len: usize) -> bool {
        let part = symbol_len.min(self.window.slot_len()).checked_sub(SYMBOL_HEADER_LEN).and_then(message_room);
        part.is_some_and(|part| self.held() + len / part.max(1) + 2 <= self.max_capacity)
    }

    /// Writes a message, however many symbols are queued. Returns the id of its first symbol and one past the
    /// id of its last; `None` if the ring has no room for all of it.
    pub(super) fn write_message(
        &mut self,
        message: &[u8],
        in_order: bool,
        symbol_len: usize,
    ) -> Option<(SourceId, SourceId)> {
        if !self.fits(message.len(), symbol_len) {
            return None;
        }
        let (mut rest, mut first) = (message, None);
        loop {
            if !self.ensure_open(symbol_len, usize::MAX) {
                return None;
            }
            let id = self.window.ids().end;
            let (open, slot) = self.open.as_mut().zip(self.window.open())?;
            let mut writer = Writer::resume(slot.get_mut(..open.limit)?, open.len);
            let least = if first.is_none() { rest.len().min(LEAST_PART) } else { rest.len().min(1) };
            let Some(room) = message_room(writer.remaining()).filter(|&room| room >= least) else {
                self.close();
                continue;
            };
            let (data, behind) = rest.split_at(rest.len().min(room));
            let (begins, ends) = (first.is_none(), behind.is_empty());
            SymbolFrame::Message { begins, ends, in_order, data }.emit(&mut writer).ok()?;
            open.len = writer.len();
            let first = *first.get_or_insert(id);
            if ends {
                return Some((first, id.next()));
            }
            self.close();
            rest = behind;
        }
    }
}

/// Removes the bytes of `stream` from a symbol that was not sent yet, and calls `took` with the offset of
/// each removed frame. Returns the new length.
fn without(stream: u64, symbol: &mut [u8], mut took: impl FnMut(u64)) -> usize {
    let len = symbol.len();
    let of_stream = |frame: &SymbolFrame<'_>| matches!(frame, SymbolFrame::Stream { stream: id, .. } if *id == stream);
    let before = symbol.to_vec();
    let Ok((header, frames)) = SymbolFrames::new(&before) else { return len };
    if !frames.clone().flatten().any(|frame| of_stream(&frame)) {
        return header.length.into();
    }
    let mut w = Writer::resume(symbol, SYMBOL_HEADER_LEN);
    for frame in frames.flatten() {
        match frame {
            SymbolFrame::Stream { offset, .. } if of_stream(&frame) => took(offset),
            _ => {
                let emitted = frame.emit(&mut w);
                debug_assert!(emitted.is_ok(), "no frame becomes longer");
            }
        }
    }
    let length = w.len();
    symbol[length..].fill(0);
    let emitted = SymbolHeader { length: length as u16, ..header }.emit(symbol);
    debug_assert!(emitted.is_ok(), "a symbol holds its header");
    length
}
