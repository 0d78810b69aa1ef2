//! Port forwarding: TCP connections over the streams of one tidewire connection (`docs/forward.md`).
//!
//! The verb `forward` calls [`client`], the verb `serve` calls [`server`]. At either end, a TCP connection
//! that one side accepted becomes a stream, and the other side connects to the target. [`single`] carries
//! standard input and output instead. Invariants: only targets and ports that the user of the other end named
//! are reached and opened. A TCP connection that stalls stops only its own stream. The application sees an
//! orderly end only if the sender ended in order; any other end of the bytes is a reset.

mod allowed;
pub mod client;
mod gate;
pub mod header;
mod listener;
mod outward;
mod relay;
mod remote;
pub mod server;
pub mod single;
mod sockets;
mod socks;
mod target;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use allowed::{Allowed, HostPattern, Rule};
use serde::Serialize;
pub use target::{PortForward, SocksForward, Target, TargetError};
use tidewire::{ReadHalf, WriteHalf};

use self::relay::Relayed;
use tidewire_command::report::Console;

/// Limit of TCP connections carried at once that one end accepted. More of them wait to be accepted. Chosen:
/// half of the usual limit of 1,024 open files.
pub const MAX_CONNECTIONS: usize = 512;
/// Limit of ports that the server opens for one client. Chosen: more than a person types.
pub const MAX_PORTS: usize = 32;
/// Limit of streams that the peer may have open: one for each TCP connection and each port, and a few for
/// questions.
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

/// The event of a forwarded connection, written by `forward` and `serve`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// A forwarded TCP connection ended, or a request for one was refused.
    Forwarded {
        /// At `forward` the TCP client, at `serve` the tidewire client.
        peer: String,
        /// The target that it asked for. At `serve`, a TCP connection to an open port has that port here.
        target: &'a str,
        /// Whether both directions ended in order.
        ok: bool,
        /// Bytes written toward the target.
        there_bytes: u64,
        /// Bytes written back from the target.
        back_bytes: u64,
        /// The error, if there was one.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
    },
}

/// Gives up a stream after its TCP connection failed. The far side learns that the bytes it received are
/// incomplete and that its own bytes are discarded.
fn abandon(reader: &mut ReadHalf, writer: &mut WriteHalf) {
    writer.reset(TCP_FAILED);
    reader.stop(TCP_FAILED);
}

/// Reports how a TCP connection ended, with its client and target.
fn report(console: &Console, peer: SocketAddr, target: &str, carried: &Relayed, failure: Option<&str>) {
    console.event(&Event::Forwarded {
        peer: peer.to_string(),
        target,
        ok: failure.is_none(),
        there_bytes: carried.there.load(Ordering::Relaxed),
        back_bytes: carried.back.load(Ordering::Relaxed),
        detail: failure,
    });
    if let (Some(failure), false) = (failure, console.json()) {
        console.warn(&format!("{peer} -> {target}: {failure}"));
    }
}
