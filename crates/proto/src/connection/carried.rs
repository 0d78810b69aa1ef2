//! The lane data that a packet carries, which tells what to do when the packet is received or lost.
//!
//! `send` stores it for each packet and `feedback` reads it. The path keeps it but does not interpret it.

use tidewire_codec::SourceId;

/// What a packet carries besides control frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// The base of a lane, alone.
    Base { lane: u32 },
    /// A source symbol of a lane.
    Source { lane: u32, id: SourceId, again: bool },
    /// Part of a source symbol of a lane. `again` means that the whole symbol was sent before.
    Slice { lane: u32, id: SourceId, part: u16, again: bool },
    /// A repair symbol over `count` source symbols from `first`.
    Repair { lane: u32, first: SourceId, count: u16, on_feedback: bool },
}

/// The content of a packet: lane data, or what concerns only the path.
pub(super) type Carried = crate::path::Carried<Data>;
