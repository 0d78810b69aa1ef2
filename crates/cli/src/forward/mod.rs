//! Port forwarding: TCP connections over the streams of one tidewire connection (`docs/forward.md`).
//!
//! [`client`] listens for TCP and opens a stream for each connection. [`server`] accepts streams and connects
//! to the allowed targets. The verbs `forward` and `serve` call them. Invariants: only targets that the user
//! of the server named are reached. A TCP connection that stalls stops only its own stream. The application
//! sees an orderly end only if the sender ended in order; any other end of the bytes is a reset.

pub mod client;
pub mod header;
pub mod server;
mod sockets;
mod target;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
pub use target::{LocalForward, Target, TargetError};
use tidewire::{ReadHalf, WriteHalf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp;

use self::sockets::ReceiveBuffer;
use crate::report::Console;

/// Limit of TCP connections carried at once. More of them wait to be accepted. Chosen: two processes with the
/// usual limit of 1,024 open files, with room for everything else.
pub const MAX_CONNECTIONS: usize = 512;
/// Limit of open streams at the server: one for each TCP connection, and a few for CHECK requests.
pub const MAX_STREAMS: u64 = MAX_CONNECTIONS as u64 + 16;
/// Size of a read from either side: the bytes that leave in 1.3 ms at 100 Mbit/s.
const BUFFER: usize = 16 << 10;

/// Error code of a stream whose TCP connection failed at this side (docs/forward.md section 3).
const TCP_FAILED: u64 = 1;

/// The event of a forwarded connection, written by `forward` and `serve`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// A forwarded TCP connection ended, or a request for one was refused.
    Forwarded {
        /// At the near end the TCP client, at the far end the tidewire client.
        peer: String,
        /// The target that it asked for.
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

/// Counts of the bytes that one TCP connection has carried so far.
#[derive(Debug, Default)]
struct Relayed {
    /// Bytes written toward the target.
    there: AtomicU64,
    /// Bytes written back from the target.
    back: AtomicU64,
}

/// Gives up a stream after its TCP connection failed. The far side learns that the bytes it received are
/// incomplete and that its own bytes are discarded.
fn abandon(reader: &mut ReadHalf, writer: &mut WriteHalf) {
    writer.reset(TCP_FAILED);
    reader.stop(TCP_FAILED);
}

/// Copies bytes of a stream into its TCP connection until their end, then ends that direction. `written`
/// counts them.
async fn stream_to_tcp(from: &mut ReadHalf, to: &mut tcp::WriteHalf<'_>, written: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        written.fetch_add(length as u64, Ordering::Relaxed);
    }
}

/// Copies bytes of a TCP connection into its stream until their end, then ends that direction. `written`
/// counts them. It reads only what the stream takes at once, so that the rest waits in the sockets and blocks
/// the application. `on_share` is told how much the stream takes.
async fn tcp_to_stream(
    from: &mut tcp::ReadHalf<'_>,
    to: &mut WriteHalf,
    written: &AtomicU64,
    on_share: impl Fn(usize),
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut receive_buffer = ReceiveBuffer::of(from.as_ref());
    loop {
        let share = to.share();
        on_share(share);
        receive_buffer.follow(from.as_ref(), share);
        let length = from.read(&mut buffer[..share.clamp(1, BUFFER)]).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        written.fetch_add(length as u64, Ordering::Relaxed);
    }
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
