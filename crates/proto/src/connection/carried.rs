//! The lane data that a packet carries, which tells what to do when the packet is received or lost.
//!
//! `send` stores it for each packet and `feedback` reads it. The path keeps it but does not interpret it.

use tidewire_codec::SourceId;

use crate::ids::LaneId;
use crate::trace::PacketContent;

/// What a packet carries besides control frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// The base of a lane, alone.
    Base { lane: u32 },
    /// A source symbol of a lane.
    Source { lane: u32, id: SourceId, again: bool },
    /// The part of a source symbol of a lane that begins at `offset`. `again` means that the whole symbol was
    /// sent before.
    Slice { lane: u32, id: SourceId, offset: u16, again: bool },
    /// A combination of a generation of the relayed lane.
    Recoded { generation: u64 },
    /// A repair symbol over `count` source symbols from `first`.
    Repair { lane: u32, first: SourceId, count: u16, on_feedback: bool },
}

/// What the trace says of a packet.
pub(super) fn content(carried: Carried) -> PacketContent {
    match carried {
        Carried::Control => PacketContent::Control,
        Carried::SizeProbe => PacketContent::SizeProbe,
        Carried::Data(Data::Base { lane }) => PacketContent::Base { lane: LaneId(lane) },
        Carried::Data(Data::Source { lane, id, again } | Data::Slice { lane, id, again, .. }) => {
            PacketContent::Source { lane: LaneId(lane), id, again }
        }
        Carried::Data(Data::Recoded { generation }) => PacketContent::Recoded { generation },
        Carried::Data(Data::Repair { lane, first, count, on_feedback }) => {
            PacketContent::Repair { lane: LaneId(lane), first, count, on_feedback }
        }
    }
}

/// The content of a packet: lane data, or what concerns only the path.
pub(super) type Carried = crate::path::Carried<Data>;
