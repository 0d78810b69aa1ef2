//! Sockets: what moves datagrams between an endpoint and the network.
//!
//! A [`Port`](crate::port::Port) calls one, from one task. [`Kernel`] is the kernel's UDP socket, and
//! [`xdp`] bypasses most of the kernel (feature `xdp`). Invariant: a datagram that cannot be sent is lost, as
//! it could be anywhere on its way. The caller learns whether it was too long, and sends the next. It waits
//! only for a full buffer.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use tidewire_proto::connection::{SendFailure, Transmit};
use tidewire_proto::path::Ecn;

mod kernel;
#[cfg(all(feature = "xdp", target_os = "linux"))]
#[expect(unsafe_code, reason = "rings and memory that the kernel shares, and system calls without safe bindings")]
pub(crate) mod xdp;

pub(crate) use kernel::Kernel;
#[cfg(test)]
pub(crate) use kernel::Udp;

/// A socket; see the module.
pub(crate) trait Socket: fmt::Debug + Send {
    /// The address that it is bound to.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Whether it is one of several that get the datagrams whose connection ids name them.
    fn is_steered(&self) -> bool {
        false
    }

    /// Maximum number of segments of at most `largest` bytes in a batch.
    fn max_segments(&self, largest: usize) -> usize;

    /// Sends one batch. An error says why it was refused; the batch is then lost.
    fn poll_send(&mut self, cx: &mut Context<'_>, transmit: &Transmit, bytes: &[u8]) -> Poll<Result<(), SendFailure>>;

    /// Receives what is there, at most a batch. [`Self::take`] passes it on. The runtime may not know yet
    /// that something came; with `asks` the system is asked in any case.
    fn poll_receive(&mut self, cx: &mut Context<'_>, asks: bool) -> Poll<io::Result<()>>;

    /// Whether the last [`Self::poll_receive`] left nothing in the socket, as the system said.
    fn is_drained(&self) -> bool;

    /// Passes each train of the last [`Self::poll_receive`] on. Call it once.
    fn take(&mut self, each: &mut dyn FnMut(Train<'_>));
}

/// Datagrams of one sender that arrived together.
#[derive(Debug)]
pub(crate) struct Train<'a> {
    pub from: SocketAddr,
    /// The local address that they were sent to, if the socket accepts several.
    pub to: Option<IpAddr>,
    pub ecn: Option<Ecn>,
    /// When the kernel took them from the network, as time since 1970.
    pub stamp: Option<Duration>,
    /// Datagrams that the full socket dropped since those before, as the system says.
    pub dropped: u32,
    pub datagrams: std::slice::ChunksMut<'a, u8>,
}
