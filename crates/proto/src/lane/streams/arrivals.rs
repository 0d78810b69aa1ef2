//! Handles the frames of received symbols.
//!
//! The frames of a symbol are handled as soon as it is known, so no stream waits for the losses of another.
//! The ring bounds the memory for this: there are at most [`MOST_AHEAD`] unread pieces per symbol in it, and
//! the streams' windows bound the bytes copied out of it. A symbol with more frames waits until all lower
//! symbols are known. Its bytes then neither end nor begin a gap, because a sender puts the bytes of a stream
//! into symbols in order. They are copied and joined to the bytes before them.

use tidewire_codec::SourceId;

use crate::lane::store::Store;

use super::Streams;
use crate::close::CloseCode;
use crate::ids::StreamId;
use crate::lane::receiver::Consumer;
use crate::lane::stream::{Source, StreamFault};
use crate::wire::{Malformed, SymbolFrame, SymbolFrames};

/// Maximum number of frames of a symbol that is delivered before all lower symbols are known. The record of a
/// piece takes 56 bytes, in blocks that may be half empty, so the records of a symbol take no more memory
/// than its slot. In a symbol with more frames, each frame is shorter than 90 bytes. Chosen.
pub(super) const MOST_AHEAD: usize = 16;

impl Streams {
    /// Handles the frames of symbol `id`, which became known. If `copies` is true, their bytes are copied out
    /// of the symbol.
    fn on_frames(&mut self, id: SourceId, frames: SymbolFrames<'_>, copies: bool) -> Result<(), CloseCode> {
        for frame in frames {
            self.on_frame(id, frame, copies)?;
        }
        Ok(())
    }

    fn on_frame(
        &mut self,
        id: SourceId,
        frame: Result<SymbolFrame<'_>, Malformed>,
        copies: bool,
    ) -> Result<(), CloseCode> {
        match frame.map_err(|_| CloseCode::Malformed)? {
            SymbolFrame::Stream { stream, offset, fin, data, data_at } => {
                let source = if copies { Source::Bytes(data) } else { Source::Slot { id, at: data_at } };
                self.on_bytes(stream, offset, data.len(), fin, source)
            }
            control => self.on_control(&control),
        }
    }

    fn on_bytes(&mut self, id: u64, offset: u64, len: usize, fin: bool, source: Source<'_>) -> Result<(), CloseCode> {
        self.ensure(id)?;
        // A forgotten stream has received all its bytes.
        let stream = self.open.get_mut(&id).ok_or(CloseCode::Protocol)?;
        stream.incoming.insert(offset, len, fin, source, &mut self.unread.assembler).map_err(fault)?;
        self.came(id);
        Ok(())
    }

    fn on_control(&mut self, frame: &SymbolFrame<'_>) -> Result<(), CloseCode> {
        match *frame {
            SymbolFrame::Reset { stream: id, code, last } => {
                self.ensure(id)?;
                let Some(stream) = self.open.get_mut(&id) else { return Ok(()) };
                stream.incoming.on_reset(code, last, &mut self.unread.assembler).map_err(fault)?;
                self.came(id);
            }
            SymbolFrame::Stop { stream: id, code } => {
                self.ensure(id)?;
                let Some(stream) = self.open.get_mut(&id) else { return Ok(()) };
                if stream.outgoing.stopped.replace(code).is_some() {
                    return Err(CloseCode::Protocol);
                }
                self.stopped.push_back(StreamId(id));
            }
            SymbolFrame::Stream { .. } | SymbolFrame::Message { .. } => return Err(CloseCode::Protocol),
        }
        Ok(())
    }
}

impl Consumer for Streams {
    const MAY_SKIP: bool = false;

    fn on_symbol(&mut self, id: SourceId, frames: SymbolFrames<'_>, _: &Store) -> Result<(), CloseCode> {
        let mut rest = frames.clone();
        if let Some(first) = rest.next()
            && rest.is_over()
        {
            // Nearly all symbols have one frame. It is parsed once.
            return self.on_frame(id, first, false);
        }
        if is_crowded(frames.clone()) {
            self.unread.crowded += 1;
            return Ok(());
        }
        self.on_frames(id, frames, false)
    }

    fn on_passed(&mut self, id: SourceId, store: &Store) -> Result<(), CloseCode> {
        if self.unread.crowded == 0 {
            return Ok(());
        }
        let (_, frames) = SymbolFrames::new(store.symbol(id).unwrap_or_default()).map_err(|_| CloseCode::Malformed)?;
        if !is_crowded(frames.clone()) {
            return Ok(());
        }
        self.unread.crowded -= 1;
        self.on_frames(id, frames, true)
    }

    /// Copies the unread bytes of symbols below `floor` before the ring reuses their slots.
    fn before_reuse(&mut self, floor: SourceId, store: &Store) -> Result<(), CloseCode> {
        while let Some(id) = self.unread.assembler.lowest_in_slots(floor) {
            let frames = store.symbol(id).and_then(|symbol| SymbolFrames::new(symbol).ok()).map(|(_, frames)| frames);
            for frame in frames.into_iter().flatten().flatten() {
                if let SymbolFrame::Stream { stream, offset, data, .. } = frame
                    && let Some(stream) = self.open.get(&stream)
                {
                    let len = data.len();
                    stream.incoming.copy_out(offset, len, id, &mut self.unread.assembler, store).map_err(fault)?;
                }
            }
            self.unread.assembler.forget_slots_before(id.next());
        }
        self.unread.assembler.forget_slots_before(floor);
        Ok(())
    }
}

/// Whether a symbol has too many frames to be delivered before the lower symbols.
fn is_crowded(frames: SymbolFrames<'_>) -> bool {
    frames.take(MOST_AHEAD + 1).count() > MOST_AHEAD
}

/// The close code for a fault of the peer.
fn fault(fault: StreamFault) -> CloseCode {
    match fault {
        StreamFault::Credit => CloseCode::FlowControl,
        StreamFault::Contradiction => CloseCode::Protocol,
    }
}
