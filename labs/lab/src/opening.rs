//! The two sockets of a run: where records enter at the near host, and where they leave at the far one.
//!
//! [`Trial`](crate::trial::Trial) and the flows of networks open them after the peer's programs were started.
//! Invariant: the returned sockets have carried data from one end to the other, so no record waits until a
//! connection is made.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::nodes::Nodes;
use crate::records::Way;

/// Longest time for a peer to connect. Chosen: a dozen retries of a handshake.
const OPENING: Duration = Duration::from_secs(20);
/// Interval of polling.
const LOOK: Duration = Duration::from_millis(20);
/// Interval between the datagrams that try the path: some are lost before it is open.
const TRY: Duration = Duration::from_millis(50);
/// Receive buffer for the time in which the receiving thread does not run, as far as the system grants it.
const SOCKET_BUFFER: usize = 4 << 20;
/// The byte that tries a path.
const HELLO: [u8; 1] = [0x5a];

/// A socket at the far host that waits for data of a peer.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Waits for a TCP connection.
    Stream(TcpListener),
    /// Waits for UDP datagrams.
    Datagrams(UdpSocket),
}

impl Sink {
    /// Waits at `port` of the node `far`, on all its addresses, for a stream or for datagrams.
    pub(crate) fn open(nodes: &Nodes, far: usize, port: u16, is_stream: bool) -> anyhow::Result<Self> {
        let at = (Ipv4Addr::UNSPECIFIED, port);
        if is_stream {
            let listener = nodes.inside(far, || TcpListener::bind(at))??;
            listener.set_nonblocking(true)?;
            return Ok(Self::Stream(listener));
        }
        let socket = nodes.inside(far, || UdpSocket::bind(at))??;
        // Best effort: the kernel grants what its limits allow.
        let _ = set_socket_recv_buffer_size(&socket, SOCKET_BUFFER);
        socket.set_read_timeout(Some(TRY))?;
        Ok(Self::Datagrams(socket))
    }

    /// Sends data to `entry` from the node `near` until it arrives here. Returns the near and the far end.
    pub(crate) fn meet(self, nodes: &Nodes, near: usize, entry: SocketAddrV4) -> anyhow::Result<(Way, Way)> {
        let deadline = Instant::now() + OPENING;
        match self {
            Self::Stream(listener) => {
                let mut near = nodes.inside(near, || until(deadline, || TcpStream::connect(entry).ok()))?;
                let near_end = near.as_mut().with_context(|| format!("nobody listens at {entry} of the near host"))?;
                near_end.write_all(&HELLO)?;
                let accepted = until(deadline, || listener.accept().ok()).context("nothing came to the far host")?;
                let mut far = accepted.0;
                far.set_nonblocking(false)?;
                far.set_read_timeout(Some(OPENING))?;
                let mut hello = HELLO;
                far.read_exact(&mut hello).context("nothing came through the far host's connection")?;
                let near = near.context("no near end")?;
                Ok((Way::Stream(near), Way::Stream(far)))
            }
            Self::Datagrams(far) => {
                let near = nodes.inside(near, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
                near.connect(entry)?;
                let mut hello = HELLO;
                while far.recv(&mut hello).is_err() {
                    if Instant::now() >= deadline {
                        bail!("no datagram came to the far host");
                    }
                    // Refused as long as no program listens.
                    let _ = near.send(&HELLO);
                }
                Ok((Way::Datagrams(near), Way::Datagrams(far)))
            }
        }
    }
}

/// Waits until a program listens at `port` of the node `far`.
pub(crate) fn await_listener(nodes: &Nodes, far: usize, port: u16) -> anyhow::Result<()> {
    let deadline = Instant::now() + OPENING;
    let listens = || {
        let tables = ["/proc/thread-self/net/udp", "/proc/thread-self/net/tcp"];
        tables.iter().any(|table| has_port(&std::fs::read_to_string(table).unwrap_or_default(), port)).then_some(())
    };
    nodes
        .inside(far, || until(deadline, listens))?
        .with_context(|| format!("nobody listens at port {port} of the far host"))
}

/// Whether a table of sockets (proc(5)) has one at this local port.
fn has_port(table: &str, port: u16) -> bool {
    let ends = format!(":{port:04X}");
    table.lines().skip(1).any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&ends)))
}

/// Polls `look` until it returns a value or the deadline has passed.
fn until<T>(deadline: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        match look() {
            None if Instant::now() < deadline => std::thread::sleep(LOOK),
            found => return found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_by_its_local_port() {
        let table = "  sl  local_address rem_address   st\n   0: 0200630A:1068 00000000:0000 07\n";
        assert!(has_port(table, 4_200) && !has_port(table, 0) && !has_port("", 4_200));
    }
}
