//! What the network says about an address that does not answer: the messages of ICMP.
//!
//! `session` asks while it waits for a connection. A socket of its own sends one byte, which a listener of
//! ours drops without a word, and the system tells that socket alone what comes back. Invariant: anyone can
//! forge such a message, so it is only told, and ends no attempt.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

/// Time without an answer after which the network is asked. Chosen: most handshakes are over, and a user
/// still looks.
const BEFORE: Duration = Duration::from_secs(1);
/// Time for an answer, after which it is asked again: routers answer only so many of their messages in a
/// second (RFC 1812 section 4.3.2.8), and a host asks for a neighbour for three seconds.
const AGAIN: Duration = Duration::from_secs(4);

/// Waits until the network says why `address` does not answer, in words that follow "the network says that".
/// Never ends if it says nothing.
pub async fn about(address: SocketAddr) -> &'static str {
    sleep(BEFORE).await;
    match asked(address).await {
        Ok(words) => words,
        Err(_) => std::future::pending().await,
    }
}

async fn asked(address: SocketAddr) -> io::Result<&'static str> {
    let any = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    if address.is_ipv4() {
        setsockopt(&socket.as_fd(), sockopt::Ipv4RecvErr, &true)?;
    } else {
        setsockopt(&socket.as_fd(), sockopt::Ipv6RecvErr, &true)?;
    }
    socket.connect(address).await?;
    loop {
        // What the system refuses at once is told elsewhere.
        let _ = socket.send(&[0]).await;
        let _ = timeout(AGAIN, socket.ready(Interest::ERROR)).await;
        if let Some(words) = SockRef::from(&socket).take_error()?.as_ref().and_then(words) {
            return Ok(words);
        }
        // An error of another kind leaves the socket ready, and must not make this a flood.
        sleep(AGAIN).await;
    }
}

fn words(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::ConnectionRefused => Some("nothing listens at that port there"),
        ErrorKind::HostUnreachable => Some("the host cannot be reached, or a firewall refuses"),
        ErrorKind::NetworkUnreachable => Some("no way leads to its network"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_where_nothing_listens_is_named() {
        for ip in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            let port = std::net::UdpSocket::bind(SocketAddr::new(ip, 0)).unwrap().local_addr().unwrap();
            let words = timeout(Duration::from_secs(60), about(port)).await;
            assert_eq!(words, Ok("nothing listens at that port there"), "{ip}");
        }
    }

    #[tokio::test]
    async fn a_port_that_is_silent_says_nothing() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(timeout(BEFORE * 2, about(silent.local_addr().unwrap())).await.is_err());
    }
}
