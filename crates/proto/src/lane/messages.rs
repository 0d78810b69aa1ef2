//! The receiving half of a lane of messages: symbols in, whole messages out.
//!
//! A message reaches from a frame that begins one to the next frame that ends one, in consecutive symbols.
//! Below the lane's edge all symbols are known or skipped, so at most one message is incomplete there. Its
//! bytes are kept until it ends or one of its symbols is skipped. Above the edge, a message that needs no
//! order is delivered as soon as all its symbols are known.

mod parts;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use tidewire_codec::SourceId;

use crate::lane::store::Store;

use super::receiver::Consumer;
use crate::close::CloseCode;
use crate::ids::LaneId;
use crate::stats::MessageStats;
use crate::wire::{SymbolFrame, SymbolFrames};
use parts::{Part, Parts};

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The peer's lane that carried it.
    pub lane: LaneId,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// The longest message, in bytes: a key frame of live video at 20 Mbit/s is about 200 KiB. Chosen.
pub(crate) const MAX_MESSAGE: usize = 256 << 10;
/// Bytes of complete messages kept for an application that does not read them. Further messages push out the
/// oldest, which is the least useful.
const MAX_UNREAD: usize = 1 << 20;
/// Bytes that a message counts beyond its data, so that the number of empty messages is bounded too.
const PER_MESSAGE: usize = 64;

/// A message that began below the edge and has not ended there.
#[derive(Debug)]
struct Open {
    bytes: Vec<u8>,
    in_order: bool,
}

/// The receiving half of a lane of messages; see the module.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// The symbols from the lane's edge on.
    parts: Parts,
    open: Option<Open>,
    /// The symbol before was skipped, so a message that continues from it is lost.
    broken: bool,
    ready: VecDeque<Message>,
    unread: usize,
    lane: u32,
    pub stats: MessageStats,
}

impl Messages {
    /// Creates the receiver of messages of `lane`.
    pub(crate) fn new(lane: u32) -> Self {
        Self { lane, ..Self::default() }
    }

    /// Removes and returns the oldest waiting message.
    pub(crate) fn take(&mut self) -> Option<Message> {
        let message = self.ready.pop_front()?;
        self.unread -= message.data.len() + PER_MESSAGE;
        Some(message)
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        let open = self.open.as_ref().map_or(0, |open| open.bytes.capacity());
        self.unread + open + self.parts.memory()
    }

    /// Whether a message is waiting.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn deliver(&mut self, data: Vec<u8>) {
        self.unread += data.len() + PER_MESSAGE;
        self.ready.push_back(Message { lane: LaneId(self.lane), data });
        self.stats.delivered += 1;
        while self.unread > MAX_UNREAD && self.take().is_some() {
            self.stats.delivered -= 1;
            self.stats.dropped += 1;
        }
    }

    /// Delivers the message that begins in symbol `first`, if it needs no order and all its symbols are
    /// known.
    fn take_early(&mut self, first: u64, store: &Store) -> Result<(), CloseCode> {
        let Some(last) = self.parts.ending(first)? else { return Ok(()) };
        let Some(SymbolFrame::Message { in_order: false, data, .. }) = frames(store, first).last() else {
            return Ok(());
        };
        let mut bytes = data.to_vec();
        for id in first + 1..=last {
            let Some(SymbolFrame::Message { data, .. }) = frames(store, id).next() else { return Ok(()) };
            extend(&mut bytes, data)?;
        }
        if self.parts.mark_taken(last) {
            self.deliver(bytes);
        }
        Ok(())
    }
}

/// Adds bytes to a message. Fails if the message exceeds the maximum length.
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

impl Consumer for Messages {
    const MAY_SKIP: bool = true;

    /// Called when a symbol became known. Delivers its complete messages that need no order.
    fn on_symbol(&mut self, id: SourceId, frames: SymbolFrames<'_>, store: &Store) -> Result<(), CloseCode> {
        let (mut before, mut after, mut middle) = (false, false, false);
        for (nth, frame) in frames.enumerate() {
            let SymbolFrame::Message { begins, ends, in_order, data } = frame.map_err(|_| CloseCode::Malformed)? else {
                return Err(CloseCode::Protocol);
            };
            // A message part that continues in the next symbol must be the last frame. A part that continues
            // from the symbol before must be the first.
            if after || (!begins && nth > 0) {
                return Err(CloseCode::Protocol);
            }
            before |= !begins;
            after = !ends;
            middle = !begins && !ends;
            if begins && ends && !in_order {
                self.deliver(data.to_vec());
            }
        }
        let part = Part::new(before, after, middle);
        let Some(continued) = self.parts.insert(id.0, part, store.capacity()) else { return Ok(()) };
        if before && let Some(first) = self.parts.beginning(continued)? {
            self.take_early(first, store)?;
        }
        if part.is_first() {
            self.take_early(id.0, store)?;
        }
        Ok(())
    }

    /// Called when the edge passes symbol `id`. Delivers the messages that were not delivered early.
    fn on_passed(&mut self, id: SourceId, store: &Store) -> Result<(), CloseCode> {
        let part = self.parts.pass(id.0);
        let Some((_, frames)) = store.symbol(id).and_then(|symbol| SymbolFrames::new(symbol).ok()) else {
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
                    // If the beginning was lost, the rest is useless.
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
