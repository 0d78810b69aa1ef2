//! What a packet carries of the lanes: what to do when its fate is known.
//!
//! `send` notes it for each packet, `feedback` reads it. The path keeps it without looking into it.

use tidewire_codec::SourceId;

/// What a packet carries besides control frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// The base of a lane, alone.
    Base { lane: u32 },
    /// A source symbol of a lane.
    Source { lane: u32, id: SourceId, again: bool },
    /// Part of a source symbol of a lane; `again`: of one that was out before.
    Slice { lane: u32, id: SourceId, part: u16, again: bool },
    /// A repair symbol over `count` source symbols from `first`.
    Repair { lane: u32, first: SourceId, count: u16, on_feedback: bool },
}

/// The same, with what concerns the path alone.
pub(super) type Carried = crate::path::Carried<Data>;
