//! The TCP sockets of both ends: how many bytes the kernels keep between an application and its stream.
//!
//! Either end listens through a [`Port`] and connects through [`connect`], and the copying loop raises a
//! [`ReceiveBuffer`] as the stream's pace grows. Linux sizes the buffers of a TCP connection over loopback
//! for many Gbit/s: there an application could write 2.6 MB ahead, which is 20 s of a 1 Mbit/s path. It
//! derives the application's send buffer from the segment size and the window that our socket announces, so
//! both follow the pace of the path. Invariant: a socket that refuses an option works without it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use rustix::net::sockopt::set_socket_keepalive;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A path is fast if its streams take at least this many bytes at once: 1.5 ms at 200 Mbit/s. Linux's largest
/// send buffer (`net.ipv4.tcp_wmem`: 4 MiB by default) leaves within 168 ms at this pace.
const FAST_SHARE: usize = 37_500;
/// The segment size that we announce while the path is not fast. Linux reserves a power of two for each
/// segment and its bookkeeping (some 640 bytes): 1,400 is below the step from 2,048 to 4,096 bytes. A
/// loopback device would announce 65,483.
const SHORT_SEGMENT: u32 = 1_400;
/// The receive buffer of a loopback connection that begins while the path is not fast; Linux doubles it.
/// Measured at 1 Mbit/s and 80 ms with an application under BBR, median wait of a byte: 2.7 s with 8,192, 1.2
/// s with 4,096.
const LEAST_RECEIVE: u32 = 4 << 10;
/// The receive buffer of a loopback connection over a fast path; Linux grants at most `net.core.rmem_max`
/// (208 KiB by default) and doubles it. Measured: 207 KiB, 256 KiB, 1 MB and Linux's own measure are equally
/// fast.
const MOST_RECEIVE: u32 = 256 << 10;
/// A receive buffer holds this many times what the stream takes at once (1.5 ms of its pace). Chosen: 6 ms,
/// so that the stream does not run dry when the application's process wakes some milliseconds late.
const SHARES: usize = 4;
/// Maximum number of bytes that wait unsent in our socket while the path is not fast. Data beyond that stays
/// in the stream and stops its sender. Linux's BBR takes a connection with 2,400 bytes for limited by its
/// application, one with 32 KiB not (docs/lab.md). Over a fast path Linux limits it.
const MOST_UNSENT: u32 = 32 << 10;
/// Connections that wait to be accepted: as many as `std` and tokio ask for.
const BACKLOG: u32 = 1_024;

/// A listening port. The connections that it accepts get the segment size and the receive buffer that suit
/// the path's pace.
#[derive(Debug)]
pub(crate) struct Port {
    listener: TcpListener,
    address: SocketAddr,
    /// Whether the socket's options are those of a fast path.
    is_fast: Mutex<bool>,
}

impl Port {
    /// Listens for applications, at first as for a slow path.
    pub(crate) fn listen(address: SocketAddr) -> io::Result<Self> {
        let socket = socket(address, false)?;
        #[cfg(unix)]
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        Ok(Self { address: listener.local_addr()?, listener, is_fast: Mutex::new(false) })
    }

    /// Where the port listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next connection.
    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.listener.accept().await
    }

    /// Adjusts to a path whose streams take `share` bytes at once. Only later connections use the new segment
    /// size, because the first packet of a connection announces it.
    pub(crate) fn follow(&self, share: usize) {
        let mut is_fast = self.is_fast.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_fast != (share >= FAST_SHARE) {
            *is_fast = !*is_fast;
            shape(SockRef::from(&self.listener), self.address.ip(), *is_fast);
        }
    }
}

/// Connects to a target, for a path whose streams take `share` bytes at once.
pub(crate) async fn connect(address: SocketAddr, share: usize) -> io::Result<TcpStream> {
    socket(address, share >= FAST_SHARE)?.connect(address).await
}

/// A socket whose options are set before its first packet: the peer learns the segment size and the window
/// from that.
fn socket(address: SocketAddr, is_fast: bool) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    shape(SockRef::from(&socket), address.ip(), is_fast);
    Ok(socket)
}

/// Sets what `socket` announces when a connection begins, and how much waits unsent in it; accepted sockets
/// inherit both. The sizes were measured on Linux, so that other systems keep their own.
fn shape(socket: SockRef<'_>, address: IpAddr, is_fast: bool) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // 0 is the system's own choice. An application at the other end of an Ethernet has segments of 1,460
        // bytes anyway.
        let _ = socket.set_tcp_mss(if is_fast { 0 } else { SHORT_SEGMENT });
        let _ = socket.set_tcp_notsent_lowat(if is_fast { 0 } else { MOST_UNSENT });
        // Over a network the round trip is unknown: a short buffer would limit the rate.
        if address.to_canonical().is_loopback() {
            let _ = socket.set_recv_buffer_size(if is_fast { MOST_RECEIVE } else { LEAST_RECEIVE } as usize);
        }
    }
}

/// Sends small writes at once, and detects a peer that has vanished.
pub(crate) fn tune(tcp: &TcpStream) {
    let _ = tcp.set_nodelay(true);
    let _ = set_socket_keepalive(tcp, true);
}

/// The receive buffer of one TCP connection, as large as the pace of its stream needs. It never shrinks,
/// because a kernel cannot take back a window that it announced.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    size: usize,
}

impl ReceiveBuffer {
    /// The present buffer of `tcp`. Over a network the kernel sizes it.
    pub(crate) fn of(tcp: &TcpStream) -> Self {
        let is_local = tcp.peer_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
        let size = if is_local { SockRef::from(tcp).recv_buffer_size().ok() } else { None };
        Self { size: size.unwrap_or(usize::MAX) }
    }

    /// Raises the buffer of `tcp` for a stream that takes `share` bytes at once, if it becomes at least twice
    /// as large.
    pub(crate) fn follow(&mut self, tcp: &TcpStream, share: usize) {
        let wanted = share.saturating_mul(SHARES).min(MOST_RECEIVE as usize);
        if wanted / 2 >= self.size {
            let _ = SockRef::from(tcp).set_recv_buffer_size(wanted);
            self.size = wanted;
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Shares of 1 Mbit/s (two packets) and of 1 Gbit/s.
    const SLOW: usize = 2_400;
    const FAST: usize = 187_500;

    fn receive_buffer(tcp: &TcpStream) -> usize {
        SockRef::from(tcp).recv_buffer_size().unwrap()
    }

    /// Whether our end told the application to send short segments.
    fn is_short(application: &TcpStream) -> bool {
        SockRef::from(application).tcp_mss().unwrap() <= SHORT_SEGMENT
    }

    /// An application connects; its socket and ours.
    async fn connected(port: &Port) -> (TcpStream, TcpStream) {
        let application = TcpStream::connect(port.address()).await.unwrap();
        (application, port.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn issue_13_applications_get_small_buffers_while_the_path_is_slow() {
        let port = Port::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let (application, ours) = connected(&port).await;
        assert!(is_short(&application), "the pace is not known yet");
        assert_eq!(receive_buffer(&ours), 2 * LEAST_RECEIVE as usize);
        assert_eq!(SockRef::from(&ours).tcp_notsent_lowat().unwrap(), MOST_UNSENT);
        port.follow(FAST);
        let (application, ours) = connected(&port).await;
        assert!(!is_short(&application), "short segments cost speed");
        assert!(receive_buffer(&ours) >= 2 * (200 << 10), "{}", receive_buffer(&ours));
        port.follow(SLOW);
        let (application, ours) = connected(&port).await;
        assert!(is_short(&application), "the path became slow");
        assert_eq!(receive_buffer(&ours), 2 * LEAST_RECEIVE as usize);
    }

    #[tokio::test]
    async fn issue_13_targets_get_small_buffers_while_the_path_is_slow() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (share, short) in [(SLOW, true), (FAST, false)] {
            let _ours = connect(listener.local_addr().unwrap(), share).await.unwrap();
            let (target, _) = listener.accept().await.unwrap();
            assert_eq!(is_short(&target), short, "{share}");
        }
    }

    #[tokio::test]
    async fn the_receive_buffer_follows_the_pace_and_never_shrinks() {
        let port = Port::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let (_application, ours) = connected(&port).await;
        let mut buffer = ReceiveBuffer::of(&ours);
        let mut after = |share| {
            buffer.follow(&ours, share);
            receive_buffer(&ours)
        };
        // 1, 25 and 1,000 Mbit/s, then slow again.
        assert_eq!(after(SLOW), 2 * LEAST_RECEIVE as usize);
        assert_eq!(after(4_700), 2 * SHARES * 4_700);
        let most = after(FAST);
        assert!(most >= 2 * (200 << 10), "{most}");
        assert_eq!(after(SLOW), most);
    }
}
