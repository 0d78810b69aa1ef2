//! A connection as the application holds it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tidewire_proto::connection::{CloseCode, CloseReason, LaneConfig, LaneError, Message, MessageError, OpenError};
use tidewire_proto::crypto::PublicKey;
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};
use tidewire_proto::stats::Stats;

use crate::shared::{Shared, Slot};
use crate::stream::Stream;
use crate::sync::Notify;

/// A connection to one peer. Clones are handles of the same connection; it is closed when the last of them
/// and of its streams is dropped.
#[derive(Clone)]
pub struct Connection(Arc<Handle>);

/// What keeps a connection alive.
pub(crate) struct Handle {
    pub shared: Arc<Shared>,
    pub id: ConnectionHandle,
    changed: Arc<Notify>,
    remote: SocketAddr,
}

impl Handle {
    /// See [`Connection::share`].
    pub(crate) fn share(&self) -> usize {
        self.shared.lock().connection(self.id).map_or(0, |connection| connection.share())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.forget(self.id);
    }
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, (id, changed): (ConnectionHandle, Arc<Notify>), remote: SocketAddr) -> Self {
        // The IPv4 address of a peer may come in its IPv6 form; nobody wants to see that.
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        Self(Arc::new(Handle { shared, id, changed, remote }))
    }

    /// Opens a stream; waits while the peer allows no more. The peer hears of it with its first bytes.
    pub async fn open(&self) -> Result<Stream, ConnectionLost> {
        let id = self
            .wait_for(|endpoint, slot| {
                if let Some(reason) = &slot.closed {
                    return Some(Err(ConnectionLost(reason.clone())));
                }
                match endpoint.connection_mut(self.0.id)?.open_stream() {
                    Ok(id) => Some(Ok(id)),
                    Err(OpenError::Limit | OpenError::NotConnected) => None,
                }
            })
            .await?;
        Ok(Stream::new(Arc::clone(&self.0), id))
    }

    /// The next stream that the peer opened; `None` when the connection is over.
    pub async fn accept(&self) -> Option<Stream> {
        let id = self
            .wait_for(|_, slot| match slot.incoming.pop_front() {
                None if slot.closed.is_none() => None,
                end_or_id => Some(end_or_id),
            })
            .await?;
        Some(Stream::new(Arc::clone(&self.0), id))
    }

    /// Opens a lane of messages, one of at most 15, and returns its number; the peer hears of it with its
    /// first message.
    ///
    /// # Errors
    /// See [`LaneError`].
    pub fn open_lane(&self, config: &LaneConfig) -> Result<u32, LaneError> {
        let mut state = self.0.shared.lock();
        let opened =
            state.with_slot(self.0.id, |endpoint, _| Some(endpoint.connection_mut(self.0.id)?.open_lane(config)));
        opened.unwrap_or(Err(LaneError::NotConnected))
    }

    /// Sends a message of at most 256 KiB that is worth something to the peer for `lifetime` from now; later
    /// it is given up, as a whole. Waits while the lane has no room, and gives up with
    /// [`MessageError::Blocked`] when the message's own time is over by then. A message that was taken may
    /// still be lost.
    ///
    /// # Errors
    /// See [`MessageError`].
    pub async fn send_message(&self, lane: u32, data: &[u8], lifetime: Duration) -> Result<(), MessageError> {
        let deadline = self.0.shared.clock.now() + lifetime;
        let taken = self.wait_for(|endpoint, slot| {
            let now = self.0.shared.clock.now();
            let connection = endpoint.connection_mut(self.0.id).filter(|_| slot.closed.is_none());
            let Some(connection) = connection else { return Some(Err(MessageError::NotConnected)) };
            match connection.send_message(now, lane, data, deadline.since(now)) {
                Err(MessageError::Blocked) => None,
                result => Some(result),
            }
        });
        let taken = tokio::time::timeout(lifetime, taken).await.unwrap_or(Err(MessageError::Blocked));
        self.0.shared.wake_driver();
        taken
    }

    /// The next message that came, whole, on whatever lane of the peer's; `None` when the connection is over.
    /// Who does not take messages loses the oldest beyond 1 MiB of each lane.
    pub async fn receive_message(&self) -> Option<Message> {
        self.wait_for(|endpoint, slot| {
            let ended = slot.closed.is_some();
            let connection = slot.ended.as_deref_mut().or(endpoint.connection_mut(self.0.id));
            match connection.and_then(|connection| connection.take_message()) {
                None if !ended => None,
                message => Some(message),
            }
        })
        .await
    }

    /// Ends the connection at once, without waiting for what was written to arrive: the side that received
    /// last closes. Of `reason` the peer sees at most 255 bytes.
    pub fn close(&self, code: CloseCode, reason: &str) {
        self.0.shared.close(self.0.id, code, reason);
    }

    /// Waits until the connection is over; tells why. What arrived before can still be read.
    pub async fn closed(&self) -> CloseReason {
        self.wait_for(|_, slot| slot.closed.clone()).await
    }

    /// What a worker does whose job panicked.
    #[cfg(test)]
    pub(crate) fn fail_job(&self) {
        self.0.shared.handle_job(self.0.id, None);
    }

    /// Waits until the handshake has ended, well or not.
    pub(crate) async fn connected(&self) -> Result<(), CloseReason> {
        self.wait_for(|_, slot| match &slot.closed {
            _ if slot.connected => Some(Ok(())),
            Some(reason) => Some(Err(reason.clone())),
            None => None,
        })
        .await
    }

    /// Counts so far; the last ones when the connection is over.
    pub fn stats(&self) -> Stats {
        self.0.shared.lock().connection(self.0.id).map(|connection| connection.stats()).unwrap_or_default()
    }

    /// The most bytes that a write to a stream takes at once: what leaves within 1.5 ms at the present pace,
    /// at least two packets; 0 when the connection is over. A loop that copies into a stream and reads no
    /// more than this elsewhere holds almost nothing itself: what the path cannot carry yet waits where the
    /// loop reads. Before the first bytes the pace is a guess from the round trip.
    pub fn share(&self) -> usize {
        self.0.share()
    }

    /// The public key that the peer proved to have; none where both sides share a secret.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.0.shared.lock().connection(self.0.id).and_then(|connection| connection.peer_key())
    }

    /// The peer's address when the connection was made.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    async fn wait_for<R>(&self, mut ready: impl FnMut(&mut Endpoint, &mut Slot) -> Option<R>) -> R {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let result = self.0.shared.lock().with_slot(self.0.id, &mut ready);
            if let Some(result) = result {
                return result;
            }
            changed.await;
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("remote", &self.0.remote).finish_non_exhaustive()
    }
}

/// The connection is over. Reads and writes of its streams fail with an [`io::Error`] that carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLost(pub CloseReason);

impl fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ConnectionLost {}

impl From<ConnectionLost> for io::Error {
    fn from(lost: ConnectionLost) -> Self {
        let kind = match lost.0 {
            CloseReason::Local => io::ErrorKind::NotConnected,
            CloseReason::Peer { .. } => io::ErrorKind::ConnectionReset,
            CloseReason::Idle | CloseReason::NoAnswer => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::ConnectionAborted,
        };
        Self::new(kind, lost)
    }
}
