//! Port forwarding: TCP connections over the streams of one tidewire connection (`docs/forward.md`).
//!
//! [`client`] listens for TCP and opens a stream for each connection; [`server`] takes streams and connects
//! to what it allows. The verbs `forward` and `serve` call them. Invariants: nothing is reached that the
//! server's user did not name; a TCP connection that stalls stops only its stream; an end of bytes that is
//! not the sender's own reaches the application as a reset, never as an orderly end.

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

/// TCP connections that are carried at once; more wait to be accepted. Chosen: two processes at their usual
/// 1,024 open files, with room for all else.
pub const MAX_CONNECTIONS: usize = 512;
/// Streams that the server lets be open: one for each TCP connection, and a few that ask.
pub const MAX_STREAMS: u64 = MAX_CONNECTIONS as u64 + 16;
/// Bytes that are read at once of either side: what two packets of the pace of 100 Mbit/s take, 1.3 ms.
const BUFFER: usize = 16 << 10;

/// Why a stream was given up, for the far side: the TCP connection at our side failed (docs/forward.md
/// section 3).
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

/// Bytes that one TCP connection carried, as they go.
#[derive(Debug, Default)]
struct Carried {
    /// Toward the target.
    there: AtomicU64,
    /// From the target.
    back: AtomicU64,
}

/// The TCP connection failed: the far side learns that what it got is not all there was, and that what it
/// sends is not taken.
fn abandon(reader: &mut ReadHalf, writer: &mut WriteHalf) {
    writer.reset(TCP_FAILED);
    reader.stop(TCP_FAILED);
}

/// Moves bytes of a stream into its TCP connection until the end, then ends that direction; counts what was
/// written.
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

/// Moves bytes of a TCP connection into its stream until the end, then ends that direction; counts what was
/// written. It reads no more than the stream takes at once, so that the rest waits in the sockets and stops
/// the application. `on_share` learns how much that is.
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

/// Tells how a TCP connection ended: who asked for it and what for.
fn report(console: &Console, (peer, target): (SocketAddr, &str), carried: &Carried, failure: Option<&str>) {
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
