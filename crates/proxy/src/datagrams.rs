//! A UDP socket of the proxy: datagrams with their congestion marks (ECN).
//!
//! Only [`proxy`](crate::proxy) uses it. Marks are received through `quinn-udp`, because the standard library
//! cannot read them. They are sent by the socket's option for the traffic class, which is set when the mark
//! differs from that of the datagram before. Invariant: each datagram is sent with the mark that it is given.

use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{EcnCodepoint, RecvMeta, UdpSocketState};
use rustix::net::sockopt;

/// Longest UDP payload (RFC 768), and so the most that the kernel joins.
pub(crate) const MAX_DATAGRAM: usize = 65_535;
/// Socket buffers in bytes: 300 ms at 100 Mbit/s, for the time in which the proxy's thread does not run.
const SOCKET_BUFFER: usize = 4 << 20;
/// Both bits of the ECN field: congestion (RFC 3168 section 5).
const CONGESTION: u8 = 0b11;

/// The ECN field of a datagram. 0 says that the sender does not know congestion marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark(u8);

impl Mark {
    /// Congestion, if the sender knows marks.
    pub fn congested(self) -> Self {
        if self.0 == 0 { self } else { Self(CONGESTION) }
    }

    /// Whether the sender knows marks.
    pub fn is_capable(self) -> bool {
        self.0 != 0
    }

    fn of(codepoint: Option<EcnCodepoint>) -> Self {
        Self(codepoint.map_or(0, |codepoint| codepoint as u8))
    }
}

/// A non-blocking socket with large buffers.
#[derive(Debug)]
pub(crate) struct Datagrams {
    socket: UdpSocket,
    state: UdpSocketState,
    /// The mark of the datagrams that the socket sends now.
    mark: Cell<Mark>,
}

/// Datagrams of one sender that the kernel joined.
#[derive(Debug)]
pub(crate) struct Joined {
    pub from: SocketAddr,
    pub mark: Mark,
    /// Bytes of all, and bytes of each but the last.
    pub len: usize,
    pub stride: usize,
}

impl Datagrams {
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        // Best effort: the kernel grants what its limits allow.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER);
        let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER);
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Self { socket, state, mark: Cell::default() })
    }

    pub fn connect(&self, target: SocketAddr) -> io::Result<()> {
        self.socket.connect(target)
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Receives the datagrams that the kernel has joined. `buffer` has at least [`MAX_DATAGRAM`] bytes.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Joined> {
        let mut meta = [RecvMeta::default()];
        self.state.recv((&self.socket).into(), &mut [IoSliceMut::new(buffer)], &mut meta)?;
        let [RecvMeta { addr, len, stride, ecn, .. }] = meta;
        Ok(Joined { from: addr, mark: Mark::of(ecn), len, stride: stride.max(1) })
    }

    /// Sends to the address that the socket is connected to.
    pub fn send(&self, bytes: &[u8], mark: Mark) -> io::Result<()> {
        self.set_mark(mark);
        self.socket.send(bytes).map(drop)
    }

    pub fn send_to(&self, bytes: &[u8], to: SocketAddr, mark: Mark) -> io::Result<()> {
        self.set_mark(mark);
        self.socket.send_to(bytes, to).map(drop)
    }

    /// Systems that refuse the option send without marks.
    fn set_mark(&self, mark: Mark) {
        if self.mark.replace(mark) == mark {
            return;
        }
        if self.socket.local_addr().is_ok_and(|address| matches!(address.ip(), IpAddr::V6(_))) {
            let _ = sockopt::set_ipv6_tclass(&self.socket, mark.0.into());
        }
        // A socket for IPv6 that also sends IPv4 has both options.
        let _ = sockopt::set_ip_tos(&self.socket, mark.0);
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_arrive_as_they_were_sent() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let bind = || Datagrams::bind(host.parse().unwrap());
            // A machine without IPv6 has only the first of the two.
            let (Ok(from), Ok(to)) = (bind(), bind()) else {
                assert!(host.starts_with("[::1]"), "no socket on {host}");
                continue;
            };
            let mut buffer = vec![0; MAX_DATAGRAM];
            for (n, bits) in [0, 2, 3, 3, 1, 0].into_iter().enumerate() {
                from.send_to(&[n as u8; 9], to.local_addr().unwrap(), Mark(bits)).unwrap();
                let joined = to.receive(&mut buffer).unwrap();
                assert_eq!((joined.mark, joined.len, buffer[0]), (Mark(bits), 9, n as u8), "{host}");
            }
            assert_eq!(to.receive(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn only_senders_that_know_marks_get_one() {
        assert_eq!([0, 1, 2, 3].map(|bits| Mark(bits).congested().0), [0, 3, 3, 3]);
    }
}
