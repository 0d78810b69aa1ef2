//! The receiving half of a lane of messages: symbols in, whole messages out.
//!
//! A message is what lies between a frame that begins one and the next that ends one, in consecutive symbols. Below the lane's edge all
//! is known, so that at most one message is open there: its bytes so far are kept, until it ends or a symbol of it is skipped. Above the edge
//! a message that needs no order is taken out of the ring as soon as all its symbols are there.

use std::collections::VecDeque;

use tidewire_codec::SourceId;

use crate::lane::store::Store;

use super::receiver::Delivery;
use crate::close::CloseCode;
use crate::stats::MessageStats;
use crate::wire::{SymbolFrame, SymbolFrames};

/// A message that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The peer's lane that carried it.
    pub lane: u32,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// The longest message, in bytes: a key frame of live video at 20 Mbit/s is about 200 KiB. Chosen.
pub const MAX_MESSAGE: usize = 256 << 10;
/// Bytes of whole messages kept for an application that does not take them; more push out the oldest, which is the least of use.
const MAX_UNREAD: usize = 1 << 20;
/// What a message costs beside its bytes, so that many empty ones are bounded too.
const PER_MESSAGE: usize = 64;

/// What is known of a symbol above the edge.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    known: bool,
    /// Its first frame goes on with the message of the symbol before.
    before: bool,
    /// Its last frame is gone on with by the symbol behind.
    after: bool,
    /// Both, in one frame.
    middle: bool,
    /// The message that ends in its first frame was delivered before its turn.
    taken: bool,
}

/// The message whose end the edge has not passed.
#[derive(Debug)]
struct Open {
    bytes: Vec<u8>,
    in_order: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// The lane's edge, and the symbols from there on.
    edge: u64,
    parts: VecDeque<Part>,
    open: Option<Open>,
    /// The symbol before was skipped: what the next goes on with is lost.
    broken: bool,
    ready: VecDeque<Message>,
    unread: usize,
    lane: u32,
    pub stats: MessageStats,
}

impl Messages {
    /// Of this lane.
    pub fn new(lane: u32) -> Self {
        Self { lane, ..Self::default() }
    }

    /// The oldest message that waits.
    pub fn take(&mut self) -> Option<Message> {
        let message = self.ready.pop_front()?;
        self.unread -= message.data.len() + PER_MESSAGE;
        Some(message)
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        let open = self.open.as_ref().map_or(0, |open| open.bytes.capacity());
        self.unread + open + self.parts.capacity() * size_of::<Part>()
    }

    /// Whether a message waits.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn deliver(&mut self, data: Vec<u8>) {
        self.unread += data.len() + PER_MESSAGE;
        self.ready.push_back(Message { lane: self.lane, data });
        self.stats.delivered += 1;
        while self.unread > MAX_UNREAD && self.take().is_some() {
            self.stats.delivered -= 1;
            self.stats.dropped += 1;
        }
    }

    fn part(&self, id: u64) -> Option<&Part> {
        self.parts.get(usize::try_from(id.checked_sub(self.edge)?).ok()?).filter(|part| part.known)
    }

    /// Where the message begins that symbol `id` goes on with, as far as that is above the edge and known.
    fn beginning(&self, id: u64) -> Result<Option<u64>, CloseCode> {
        let mut first = id;
        loop {
            let Some(before) = first.checked_sub(1) else { return Err(CloseCode::Protocol) };
            match self.part(before) {
                None => return Ok(None),
                Some(part) if !part.after => return Err(CloseCode::Protocol),
                Some(part) if !part.middle => return Ok(Some(before)),
                Some(_) => first = before,
            }
        }
    }

    /// Where the message ends that begins in symbol `id`, as far as that is known.
    fn ending(&self, id: u64) -> Result<Option<u64>, CloseCode> {
        let mut last = id;
        loop {
            last += 1;
            match self.part(last) {
                None => return Ok(None),
                Some(part) if !part.before => return Err(CloseCode::Protocol),
                Some(part) if !part.middle => return Ok(Some(last)),
                Some(_) => {}
            }
        }
    }

    /// Delivers the message that begins in symbol `first`, if it needs no order and all of it is there.
    fn take_early(&mut self, first: u64, store: &Store) -> Result<(), CloseCode> {
        let Some(last) = self.ending(first)? else { return Ok(()) };
        let Some(SymbolFrame::Message { in_order: false, data, .. }) = frames(store, first).last() else {
            return Ok(());
        };
        let mut bytes = data.to_vec();
        for id in first + 1..=last {
            let Some(SymbolFrame::Message { data, .. }) = frames(store, id).next() else { return Ok(()) };
            extend(&mut bytes, data)?;
        }
        let index = (last - self.edge) as usize;
        if let Some(part) = self.parts.get_mut(index).filter(|part| !part.taken) {
            part.taken = true;
            self.deliver(bytes);
        }
        Ok(())
    }
}

/// Adds bytes to a message, which has a longest length.
fn extend(message: &mut Vec<u8>, bytes: &[u8]) -> Result<(), CloseCode> {
    if message.len() + bytes.len() > MAX_MESSAGE {
        return Err(CloseCode::Protocol);
    }
    message.extend_from_slice(bytes);
    Ok(())
}

fn frames<'a>(store: &'a Store, id: u64) -> impl Iterator<Item = SymbolFrame<'a>> + use<'a> {
    let symbol = store.symbol(SourceId(id)).and_then(|symbol| SymbolFrames::new(symbol).ok());
    symbol.into_iter().flat_map(|(_, frames)| frames.flatten())
}

impl Delivery for Messages {
    const MAY_SKIP: bool = true;

    /// A symbol became known: its whole messages without order are delivered.
    fn on_symbol(&mut self, id: SourceId, frames: SymbolFrames<'_>, store: &Store) -> Result<(), CloseCode> {
        let mut part = Part { known: true, ..Part::default() };
        for (nth, frame) in frames.enumerate() {
            let SymbolFrame::Message { begins, ends, in_order, data } = frame.map_err(|_| CloseCode::Malformed)? else {
                return Err(CloseCode::Protocol);
            };
            // Nothing stands behind a part that goes on, nor before one that goes on with another.
            if part.after || (!begins && nth > 0) {
                return Err(CloseCode::Protocol);
            }
            part.before |= !begins;
            part.after = !ends;
            part.middle = !begins && !ends;
            if begins && ends && !in_order {
                self.deliver(data.to_vec());
            }
        }
        let index = usize::try_from(id.0.saturating_sub(self.edge)).unwrap_or(usize::MAX);
        if id.0 < self.edge || index >= store.capacity() {
            return Ok(());
        }
        if index >= self.parts.len() {
            self.parts.resize(index + 1, Part::default());
        }
        self.parts[index] = part;
        if part.before
            && let Some(first) = self.beginning(id.0)?
        {
            self.take_early(first, store)?;
        }
        if part.after && !part.middle {
            self.take_early(id.0, store)?;
        }
        Ok(())
    }

    /// The edge passes symbol `id`: in order is what is left.
    fn on_passed(&mut self, id: SourceId, symbol: Option<&[u8]>) -> Result<(), CloseCode> {
        self.edge = id.0 + 1;
        let part = self.parts.pop_front().unwrap_or_default();
        let Some((_, frames)) = symbol.and_then(|symbol| SymbolFrames::new(symbol).ok()) else {
            self.stats.dropped += u64::from(self.open.take().is_some());
            self.broken = true;
            return Ok(());
        };
        for frame in frames.flatten() {
            let SymbolFrame::Message { begins, ends, in_order, data } = frame else { continue };
            if begins && self.open.is_some() || !begins && self.open.is_none() && !self.broken {
                return Err(CloseCode::Protocol);
            }
            self.broken &= !begins && !ends;
            match (begins, ends) {
                (true, true) if in_order => self.deliver(data.to_vec()),
                (true, true) => {}
                (true, false) => self.open = Some(Open { bytes: data.to_vec(), in_order }),
                (false, _) => {
                    // Without what came before, the rest is of no use.
                    let Some(mut open) = self.open.take() else { continue };
                    extend(&mut open.bytes, data)?;
                    match ends {
                        false => self.open = Some(open),
                        true if part.taken && !open.in_order => {}
                        true => self.deliver(open.bytes),
                    }
                }
            }
        }
        Ok(())
    }
}
