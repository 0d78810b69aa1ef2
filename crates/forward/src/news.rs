//! What happens while TCP connections are forwarded, told to the caller.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::copy::Copied;
use crate::error::CarryError;
use crate::header::Answer;
use crate::target::Target;

/// Takes the news of one end, from several tasks. It should return soon, because the telling task waits.
pub type Report = Arc<dyn Fn(&News<'_>) + Send + Sync>;

/// Something that the user of an end may want to know.
#[derive(Debug)]
pub enum News<'a> {
    /// A port of this side accepts TCP connections.
    Listening {
        /// The port of this side.
        port: SocketAddr,
        /// At the near end its target, or `socks5`; at the far end the address of the peer.
        to: &'a str,
    },
    /// The far side has opened a port of `-R`.
    FarListening {
        /// The port there, as the far side names it.
        port: &'a str,
        /// The target of this side.
        to: &'a Target,
    },
    /// The peer has let a port of this side go.
    Closed {
        /// The port of this side.
        port: SocketAddr,
    },
    /// The far side has closed a port of `-R`. This side asks for it again.
    FarClosed {
        /// The port, as the user named it.
        port: SocketAddr,
    },
    /// The far side does not open a port of `-R` now. This side goes on to ask, and tells this once.
    FarRefused {
        /// The port, as the user named it.
        port: SocketAddr,
        /// The reason.
        answer: &'a Answer,
    },
    /// The system could not accept a TCP connection. The port tries again.
    CannotAccept {
        /// At the near end where the port leads to, at the far end the port.
        port: &'a str,
        /// The reason.
        error: &'a io::Error,
    },
    /// As many TCP connections are carried as one end carries at once; further ones wait. Told once a minute.
    Full {
        /// That number.
        most: usize,
    },
    /// The peer asked for something that this side does not understand.
    NotUnderstood {
        /// The address of the peer.
        peer: SocketAddr,
        /// What this side answers.
        answer: &'a Answer,
    },
    /// A TCP connection ended, or a request for one was refused.
    Carried(Carried<'a>),
}

/// How a TCP connection was carried.
#[derive(Debug)]
pub struct Carried<'a> {
    /// At the near end the TCP client, at the far end the peer.
    pub peer: SocketAddr,
    /// The target that it asked for. At the far end, a TCP connection to an open port has that port here.
    pub target: &'a str,
    /// Bytes written toward the target.
    pub there_bytes: u64,
    /// Bytes written back from the target.
    pub back_bytes: u64,
    /// Whether both directions ended in order, or why not.
    pub ended: Result<(), CarryError>,
}

/// Tells how a TCP connection ended.
pub(crate) fn tell(report: &Report, peer: SocketAddr, target: &str, carried: &Copied, ended: Result<(), CarryError>) {
    let (there_bytes, back_bytes) = (carried.there.load(Ordering::Relaxed), carried.back.load(Ordering::Relaxed));
    report(&News::Carried(Carried { peer, target, there_bytes, back_bytes, ended }));
}
