//! From a stream to its target: connects, answers, and carries the bytes.
//!
//! [`crate::far`] calls it for CONNECT streams, [`crate::remote`] for ACCEPTED streams.
//! Invariant: a name leads to this host only if the rules name it, and to its loopback or network segment
//! only if they name that address.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tidewire::{Stream, names};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::allowed::{Allowed, Reach};
use crate::copy::{Copied, Copier};
use crate::error::CarryError;
use crate::header::{Answer, Code, write_answer};
use crate::own::is_own;
use crate::sockets;
use crate::target::{Target, is_private_to_host};

/// Time for a target to accept, over all its addresses. Chosen: the first three SYNs of TCP (RFC 6298: 1, 2
/// and 4 s) and an answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Carries a stream whose request names `target`, for a path whose streams take `share` bytes at once.
///
/// # Errors
/// Why the TCP connection failed or was refused.
pub(crate) async fn carry(
    stream: Stream,
    target: &Target,
    allowed: &Allowed,
    share: usize,
    carried: &Copied,
) -> Result<(), CarryError> {
    match connect(target, allowed, share).await {
        Ok(tcp) => Copier::new(tcp, stream).answer(carried).await.map_err(Into::into),
        Err(answer) => {
            end(stream, &answer).await;
            Err(CarryError::Refused(answer))
        }
    }
}

/// Sends an answer that nothing follows. If the answer is lost with the connection, the peer sees that
/// instead.
pub(crate) async fn end(mut stream: Stream, answer: &Answer) {
    if write_answer(&mut stream, answer).await.is_ok() {
        let _ = stream.shutdown().await;
    }
}

/// Connects to the first address of the target that accepts (RFC 8305).
async fn connect(target: &Target, allowed: &Allowed, share: usize) -> Result<TcpStream, Answer> {
    let reach = allowed.target(target)?;
    let try_all = async {
        let addresses = names::resolve(target.host(), target.port())
            .await
            .map_err(|error| Answer::new(Code::Unreachable, error.to_string()))?;
        let attempt = |address| connect_to(address, reach, share);
        match names::race(addresses, names::STAGGER, attempt).await {
            Ok(connected) => connected.into_iter().next().ok_or_else(none),
            Err(failures) => Err(failures.into_iter().next_back().unwrap_or_else(none)),
        }
    };
    let late = |_| Answer::new(Code::Unreachable, format!("it did not answer within {} s", CONNECT_PATIENCE.as_secs()));
    timeout(CONNECT_PATIENCE, try_all).await.map_err(late)?
}

/// The answer for a name that leads nowhere.
fn none() -> Answer {
    Answer::new(Code::Unreachable, "its name has no address")
}

/// Connects to one address of a target, if the target may lead there.
async fn connect_to(address: SocketAddr, reach: Reach, share: usize) -> Result<TcpStream, Answer> {
    let is_refused = match reach {
        Reach::Everywhere => false,
        Reach::Named => is_private_to_host(address.ip()),
        Reach::OtherHosts => is_private_to_host(address.ip()) || is_own(address.ip()),
    };
    if is_refused {
        let why = format!("its name leads to {}: name that address", address.ip());
        return Err(Answer::new(Code::NotAllowed, why));
    }
    sockets::connect(address, share).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => Answer::new(Code::Refused, address.to_string()),
        _ => Answer::new(Code::Unreachable, format!("{address}: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_no_rule_covers_is_refused_before_it_is_tried() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        for reach in [Reach::OtherHosts, Reach::Named] {
            let refused = connect_to(address, reach, 2_400).await.unwrap_err();
            assert!(refused.is(Code::NotAllowed) && refused.detail.contains("127.0.0.1"), "{refused}");
            assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "nothing was sent");
        }
        assert!(connect_to(address, Reach::Everywhere, 2_400).await.is_ok());
        assert!(listener.accept().is_ok());
    }
}
