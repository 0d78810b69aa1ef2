//! Port forwarding: TCP connections over the streams of one Tidewire connection, as `docs/forward.md` says.
//!
//! The caller makes and keeps the connection. At the near end, a [`Near`] opens the ports that [`Ports`]
//! names. [`Near::begin`] checks the first connection, [`Near::run`] forwards over it until it is lost; the
//! caller connects again and calls [`Near::run`] with the new connection, while the ports stay open. At the
//! far end, [`serve`] carries one connection of a [`Far`]. What happens meanwhile is told to a closure, as
//! [`News`]. [`single`] carries the standard input and output of a process instead of TCP connections.
//! `examples/port.rs` has both ends in one process.
//!
//! At either end, a TCP connection that one side accepted becomes a stream, and the other side connects to
//! the target. Invariants: only targets and ports that the user of the other end named are reached and
//! opened. A TCP connection that stalls stops only its own stream. The application sees an orderly end only
//! if the sender ended in order; any other end of the bytes is a reset.
#![forbid(unsafe_code)]

mod acceptor;
mod allowed;
mod copy;
mod error;
mod far;
pub mod header;
mod listener;
mod near;
mod news;
mod openings;
mod outward;
pub mod own;
mod places;
mod remote;
pub mod single;
mod sockets;
mod socks;
mod target;

use std::time::Duration;

pub use allowed::{Allowed, HostPattern, Rule};
pub use error::{Asked, CarryError, ForwardError};
pub use far::{Far, serve};
pub use near::{Near, Ports};
pub use news::{Carried, News, Report};
pub use target::{PortForward, SocksForward, Target, TargetError};

use tidewire::{ReadHalf, WriteHalf};

/// Limit of TCP connections carried at once that one end accepted. More of them wait to be accepted. Chosen:
/// half of the usual limit of 1,024 open files.
pub const MAX_CONNECTIONS: usize = 512;
/// Limit of ports that the far end opens for one near end. Chosen: more than a person types.
pub const MAX_PORTS: usize = 32;
/// Limit of streams that the peer may have open (`max_streams` of the settings of either end): one for each
/// TCP connection and each port, and a few for questions.
pub const MAX_STREAMS: u64 = MAX_CONNECTIONS as u64 + MAX_PORTS as u64 + 16;
/// How long a new TCP connection waits for a stream, before it is reset: for a lost connection to come back,
/// or for the peer to let streams go. Chosen: shorter than what browsers wait for, longer than most outages.
const OUTAGE_PATIENCE: Duration = Duration::from_secs(10);
/// Time for a request to arrive. It follows the opening of its stream at once, so this leaves time to repair
/// its losses.
const REQUEST_PATIENCE: Duration = Duration::from_secs(30);
/// Pause after the system failed to accept a connection, for example because no more files can be opened.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Version that each request and answer carries; other versions are refused.
pub const PROTOCOL: u8 = header::VERSION;
/// Error code of a stream whose TCP connection failed at this side (docs/forward.md section 3).
const TCP_FAILED: u64 = 1;

/// Gives up a stream after its TCP connection failed. The far side learns that the bytes it received are
/// incomplete and that its own bytes are discarded.
fn abandon(reader: &mut ReadHalf, writer: &mut WriteHalf) {
    writer.reset(TCP_FAILED);
    reader.stop(TCP_FAILED);
}
