//! A connection as the application holds it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tidewire_proto::connection::{
    CloseCode, CloseReason, LaneConfig, LaneError, LaneId, Message, MessageError, OpenError, Outgoing,
};
use tidewire_proto::crypto::PublicKey;
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};
use tidewire_proto::stats::Stats;
use tokio::task::coop::consume_budget;

use crate::shared::{NewSlot, Shared, Slot};
use crate::stream::Stream;
use crate::sync::Notify;

/// A connection to one peer. Clones refer to the same connection. It is closed when the last clone and the
/// last of its streams are dropped.
#[derive(Clone)]
pub struct Connection(Arc<Handle>);

/// Keeps a connection alive: the last handle that is dropped closes it.
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
    pub(crate) fn new(shared: Arc<Shared>, slot: NewSlot, remote: SocketAddr) -> Self {
        let NewSlot { handle: id, changed } = slot;
        // A socket for IPv6 and IPv4 reports an IPv4 address in its IPv6 form. Applications expect IPv4.
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        Self(Arc::new(Handle { shared, id, changed, remote }))
    }

    /// Opens a stream. Waits while the peer allows no more streams. The peer learns of the stream with its
    /// first bytes.
    ///
    /// # Errors
    /// [`ConnectionLost`] if the connection ends first.
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

    /// Waits for the next stream that the peer opens. Streams that were opened before the connection ended
    /// can still be accepted.
    ///
    /// # Errors
    /// [`ConnectionLost`] says why there will be no more.
    pub async fn accept(&self) -> Result<Stream, ConnectionLost> {
        let id = self
            .wait_for(|_, slot| match (slot.incoming.pop_front(), &slot.closed) {
                (Some(id), _) => Some(Ok(id)),
                (None, Some(reason)) => Some(Err(ConnectionLost(reason.clone()))),
                (None, None) => None,
            })
            .await?;
        Ok(Stream::new(Arc::clone(&self.0), id))
    }

    /// Opens a lane of messages. A connection has at most 15. The peer learns of the lane with its first
    /// message.
    ///
    /// # Errors
    /// See [`LaneError`].
    pub fn open_lane(&self, config: &LaneConfig) -> Result<LaneId, LaneError> {
        let mut state = self.0.shared.lock();
        let opened =
            state.with_slot(self.0.id, |endpoint, _| Some(endpoint.connection_mut(self.0.id)?.open_lane(config)));
        opened.unwrap_or(Err(LaneError::NotConnected))
    }

    /// Sends a message of at most 256 KiB that is useful to the peer for `lifetime` from now. After that, the
    /// whole message is given up. Waits while the lane has no room. If `lifetime` ends before there is room,
    /// the error is [`MessageError::Blocked`]. A message that was accepted can still be lost.
    ///
    /// # Errors
    /// See [`MessageError`].
    pub async fn send_message(&self, lane: LaneId, data: &[u8], lifetime: Duration) -> Result<(), MessageError> {
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

    /// Gives a lane messages from `next` while it has room for one of `most` bytes, and `next` has one.
    /// Returns whether the lane still has room.
    ///
    /// # Errors
    /// See [`MessageError`].
    pub fn fill_lane(
        &self,
        lane: LaneId,
        most: usize,
        mut next: impl FnMut() -> Option<Outgoing>,
    ) -> Result<bool, MessageError> {
        let shared = &self.0.shared;
        let (mut state, now) = (shared.lock(), shared.clock.now());
        let filled = state.with_slot(self.0.id, |endpoint, slot| {
            let connection = endpoint.connection_mut(self.0.id).filter(|_| slot.closed.is_none())?;
            Some(connection.fill_lane(now, lane, most, &mut next))
        });
        let driver = state.driver_if_needed(self.0.id, true);
        drop(state);
        driver.into_iter().for_each(Waker::wake);
        filled.unwrap_or(Err(MessageError::NotConnected))
    }

    /// Waits until a lane has room for a message of `most` bytes.
    ///
    /// # Errors
    /// [`MessageError::NotConnected`] if the connection ends first.
    pub async fn lane_room(&self, lane: LaneId, most: usize) -> Result<(), MessageError> {
        self.wait_for(|endpoint, slot| {
            let connection = endpoint.connection_mut(self.0.id).filter(|_| slot.closed.is_none());
            let Some(connection) = connection else { return Some(Err(MessageError::NotConnected)) };
            connection.has_room(self.0.shared.clock.now(), lane, most).then_some(Ok(()))
        })
        .await
    }

    /// Waits for messages as [`Self::receive_message`] does, and adds all that wait to `messages`.
    ///
    /// # Errors
    /// [`ConnectionLost`] says why there will be no more.
    pub async fn receive_messages(&self, messages: &mut Vec<Message>) -> Result<(), ConnectionLost> {
        self.wait_for(|endpoint, slot| {
            let mut connection = slot.ended.as_deref_mut().or(endpoint.connection_mut(self.0.id));
            let before = messages.len();
            messages.extend(std::iter::from_fn(|| connection.as_mut()?.take_message()));
            match &slot.closed {
                _ if messages.len() > before => Some(Ok(())),
                Some(reason) => Some(Err(ConnectionLost(reason.clone()))),
                None => None,
            }
        })
        .await
    }

    /// Waits for the next message, of any lane of the peer. Of messages that are not taken, each lane keeps
    /// the newest 1 MiB. Messages that arrived before the connection ended can still be taken.
    ///
    /// # Errors
    /// [`ConnectionLost`] says why there will be no more.
    pub async fn receive_message(&self) -> Result<Message, ConnectionLost> {
        self.wait_for(|endpoint, slot| {
            let connection = slot.ended.as_deref_mut().or(endpoint.connection_mut(self.0.id));
            match (connection.and_then(|connection| connection.take_message()), &slot.closed) {
                (Some(message), _) => Some(Ok(message)),
                (None, Some(reason)) => Some(Err(ConnectionLost(reason.clone()))),
                (None, None) => None,
            }
        })
        .await
    }

    /// Ends the connection at once, without waiting until written data has arrived. So the side that receives
    /// the last data should close. The peer sees at most 255 bytes of `reason`.
    pub fn close(&self, code: CloseCode, reason: &str) {
        self.0.shared.close(self.0.id, code, reason);
    }

    /// Waits until the connection is over, and returns why. Data that arrived before can still be read.
    pub async fn closed(&self) -> CloseReason {
        self.wait_for(|_, slot| slot.closed.clone()).await
    }

    /// Does what a worker does after its job panicked.
    #[cfg(test)]
    pub(crate) fn fail_job(&self) {
        self.0.shared.handle_job(self.0.id, None);
    }

    /// Waits until the handshake has succeeded or failed.
    pub(crate) async fn connected(&self) -> Result<(), CloseReason> {
        self.wait_for(|_, slot| match &slot.closed {
            _ if slot.connected => Some(Ok(())),
            Some(reason) => Some(Err(reason.clone())),
            None => None,
        })
        .await
    }

    /// Statistics so far; the final statistics when the connection is over.
    pub fn stats(&self) -> Stats {
        self.0.shared.lock().connection(self.0.id).map(|connection| connection.stats()).unwrap_or_default()
    }

    /// Maximum number of bytes that one write to a stream accepts: what can be sent within 1.5 ms at the
    /// present pace, at least two packets. It is 0 when the connection is over. A loop that copies into a
    /// stream and reads at most this many bytes at a time holds almost no data itself: data that the path
    /// cannot carry yet waits at the source. Before the first bytes are sent, the pace is estimated from the
    /// round trip.
    pub fn share(&self) -> usize {
        self.0.share()
    }

    /// The smoothed round trip (RFC 9002 section 5.3). Zero before the first sample, and when the connection
    /// is over.
    pub fn rtt(&self) -> Duration {
        self.0.shared.lock().connection(self.0.id).map_or(Duration::ZERO, |connection| connection.rtt())
    }

    /// Whether the peer has reported that all bytes and ends written to streams of this connection arrived.
    /// The application of the peer may not have read them yet. False if the connection ended before.
    pub fn has_delivered(&self) -> bool {
        self.0.shared.lock().connection(self.0.id).is_some_and(|connection| connection.has_delivered())
    }

    /// The public key that the peer proved to own. `None` if both sides share a secret.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.0.shared.lock().connection(self.0.id).and_then(|connection| connection.peer_key())
    }

    /// Address of the peer when the connection was made.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    /// Address of the peer now: packets to it go there. It differs from [`Self::remote`] after a move.
    /// The last one if the connection is over.
    pub fn current_remote(&self) -> SocketAddr {
        self.0.shared.lock().connection(self.0.id).map_or(self.0.remote, |connection| connection.remote())
    }

    async fn wait_for<R>(&self, mut ready: impl FnMut(&mut Endpoint, &mut Slot) -> Option<R>) -> R {
        // A task for which something is always ready yields now and then, so what it selects beside is heard.
        consume_budget().await;
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

/// The connection is over, for the contained reason. Reads and writes of its streams fail with an
/// [`io::Error`] that contains this error.
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

/// Why an endpoint accepts and opens no more connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointEnded {
    /// [`crate::Endpoint::close`] was called.
    #[error("the endpoint was closed")]
    Closed,
    /// The task that drives the endpoint has stopped: its tokio runtime was shut down, or the task panicked.
    #[error("the task that drives the endpoint has stopped: its runtime was shut down")]
    DriverStopped,
}
