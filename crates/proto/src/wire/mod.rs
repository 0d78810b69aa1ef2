//! Every byte on the wire: `docs/wire.md` in code.
//!
//! There are two levels, as in smoltcp: views that borrow a packet and are checked once ([`Datagram`],
//! [`Frames`], [`SymbolFrames`]), and values that can be written if they can be constructed. The parser is
//! total: any bytes give a value or a named error. It never panics, allocates nothing, and its work is linear
//! in the number of bytes. The lints below enforce this, because malformed control fields that panic have
//! broken other transports of this kind.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

mod bytes;
mod code;
mod feedback;
mod feedback_repr;
mod frame;
mod header;
mod recoded;
mod symbol;
mod time;
mod train;

pub use bytes::{Full, Reader, Truncated, VARINT_MAX, Writer, varint_len};
pub(crate) use code::longest_parameters;
pub use code::{CodeName, CodeSet, code_name, parse_code};
pub use feedback::{EcnCounts, Feedback, LaneReport, Lanes, Received, Regions, Runs, StreamLimits};
pub use feedback_repr::{FeedbackRepr, LaneRepr, StreamCreditRepr};
pub use frame::{
    Frame, FrameError, Frames, Layout, Malformed, pad, repair_header_len, source_header_len, write_grease,
    write_repair_header, write_source_header,
};
pub(crate) use frame::{MAX_SYMBOL, MAX_TEXT};
pub(crate) use header::{Auth, COOKIE_NONCE_LEN, LongRepr};
pub use header::{
    COOKIE_LEN, ConnectionId, Datagram, HELLO_LEN, HeaderError, LONG_HEADER_LEN, LongHeader, LongKind, MAC_LEN,
    PACKET_NUMBER_AT, REPLY_MAX, SHORT_HEADER_LEN, Suite, TAG_LEN, VERSION, write_short_header,
};
pub(crate) use header::{PHASE_BIT, WAIT_BIT};
pub(crate) use recoded::{MAX_GENERATION, MAX_GENERATIONS};
pub use recoded::{Ranks, Recoded};
pub(crate) use symbol::message_room;
pub use symbol::{OpenStream, SYMBOL_HEADER_LEN, SymbolFrame, SymbolFrames, SymbolHeader};
pub use time::TIME_MODULUS;
pub(crate) use time::{TIME_UNIT, time_units, units_between};
pub use train::{MAX_TRAIN, TrainReport};
