//! How the two ends of a connection meet: the end that connected greets, the other finds the peer by its key.
//!
//! Both ends call it before [`crate::hub::Hub::carry`]. Invariant: a peer whose own address is in its
//! networks is none, because the packets of its connection would go into the tunnel.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidewire::{CloseCode, Connection};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::greeting::{Answer, read_answer, read_greeting, write_answer, write_greeting};
use crate::hub::Hub;
use crate::peers::{Listed, Peer};

/// Time for the answer to the greeting, beyond its round trip and repair.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// Time for a greeting to arrive. It follows the handshake at once, so this leaves time to repair its losses.
const GREETING_PATIENCE: Duration = Duration::from_secs(30);
/// What a peer that sends no greeting is told, and its user.
const NO_GREETING: &str = "no greeting of a tunnel came";

/// Why the far side takes no packets of this end.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// The far side refuses.
    #[error("{0}")]
    Refused(Answer),
    /// The far side is no tunnel.
    #[error(transparent)]
    NoTunnel(io::Error),
    /// The connection, or the stream, is lost.
    #[error(transparent)]
    Lost(io::Error),
    /// The far side does not answer.
    #[error("the far side does not answer the greeting of a tunnel")]
    Silent,
}

/// Why this end takes no packets of a peer.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// The peer's key has no networks here, or its own address is in them.
    #[error("it has no networks here, or its own address is in them")]
    NoPeer,
    /// The peer speaks another version.
    #[error("it does not speak version 1 of the tunnel; connect with tidewire tunnel up")]
    NotUnderstood,
    /// The connection, or the stream, is lost.
    #[error(transparent)]
    Lost(#[from] io::Error),
    /// The peer sent nothing. Its connection is closed.
    #[error("{NO_GREETING}")]
    Silent,
}

/// Greets at the end that connected, for packets of at most `mtu` bytes. Returns the listener's longest
/// packet.
///
/// # Errors
/// See [`GreetError`].
pub async fn greet(connection: &Connection, mtu: u16) -> Result<u16, GreetError> {
    let greeting = async {
        let mut stream = connection.open().await?;
        write_greeting(&mut stream, mtu).await?;
        let answer = read_answer(&mut stream).await;
        // The stream has done its work; the end of its other direction follows by itself.
        let _ = stream.shutdown().await;
        answer
    };
    match timeout(ANSWER_PATIENCE, greeting).await {
        Ok(Ok(Answer::Ready { mtu })) => Ok(mtu),
        Ok(Ok(answer)) => Err(GreetError::Refused(answer)),
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => Err(GreetError::NoTunnel(error)),
        Ok(Err(error)) => Err(GreetError::Lost(error)),
        Err(_) => Err(GreetError::Silent),
    }
}

/// Answers the greeting of a peer that has connected. Returns the peer, and its longest packet.
///
/// # Errors
/// See [`AdmitError`]. A peer that was refused has been answered, and closes the connection when it has the
/// answer: the caller waits a moment for that.
pub async fn admit(connection: &Connection, hub: &Hub) -> Result<(Arc<Peer>, u16), AdmitError> {
    let greeted = async {
        let mut stream = connection.accept().await?;
        let greeting = read_greeting(&mut stream).await?;
        let found = greeting.and_then(|mtu| Ok((find(connection, hub).ok_or(Answer::NoPeer)?, mtu)));
        let answer = found.as_ref().err().copied().unwrap_or(Answer::Ready { mtu: hub.mtu() });
        write_answer(&mut stream, answer).await?;
        let _ = stream.shutdown().await;
        Ok(found)
    };
    match timeout(GREETING_PATIENCE, greeted).await {
        Ok(found) => found.map_err(AdmitError::Lost)?.map_err(|answer| match answer {
            Answer::NoPeer => AdmitError::NoPeer,
            _ => AdmitError::NotUnderstood,
        }),
        Err(_) => {
            connection.close(CloseCode::Protocol, NO_GREETING);
            Err(AdmitError::Silent)
        }
    }
}

/// The peer of a connection. A peer whose own address is in its networks is none: the packets of its
/// connection would go into the tunnel. They do not if the network is the default route (`crate::routes`).
fn find(connection: &Connection, hub: &Hub) -> Option<Arc<Peer>> {
    let (peers, from) = (hub.peers(), connection.remote().ip().to_canonical());
    let Listed { entry, peer } = peers.with_key(connection.peer_key())?;
    let leads_back = entry.networks.iter().any(|network| network.prefix_len() > 0 && network.contains(&from));
    (!leads_back).then(|| Arc::clone(peer))
}
