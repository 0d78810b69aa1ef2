//! An endpoint as the application holds it: one socket, any number of connections.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tidewire_proto::config::Config;
use tidewire_proto::connection::CloseReason;
use tidewire_proto::crypto::{AwsLc, PublicKey};
use tidewire_proto::endpoint::{EndpointConfig, EndpointStats};
use tidewire_proto::handshake::{Credentials, PeerKeyError, Unauthorized};

use crate::clock::{Clock, Timer};
use crate::connection::Connection;
use crate::driver::Driver;
use crate::shared::{Shared, State};
use crate::socket::Socket;

/// [`Endpoint::close`] waits for no longer: closing takes three probe timeouts, 3 s where no round trip was ever measured.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// A UDP socket that accepts connections and makes them, with all who hold the same secret or whose keys are known.
///
/// When it is dropped no more connections are accepted; those that are held go on.
pub struct Endpoint {
    shared: Arc<Shared>,
}

impl Endpoint {
    /// Binds a socket and starts the task that drives it. `credentials`: a [`crate::Secret`], or a key pair. An IPv6 wildcard address takes IPv4 too.
    ///
    /// # Errors
    /// Those of the socket; [`io::ErrorKind::InvalidInput`] when a setting is outside its range.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time enabled.
    pub async fn bind(address: SocketAddr, credentials: impl Into<Credentials>, config: Config) -> io::Result<Self> {
        Self::over(Socket::bind(address)?, credentials.into(), config)
    }

    /// An endpoint that has this socket.
    pub(crate) fn over(socket: Socket, credentials: Credentials, config: Config) -> io::Result<Self> {
        let largest = config.max_datagram;
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        let config = EndpointConfig { credentials, listen: true, connection: config, provider: Arc::new(AwsLc) };
        let endpoint = tidewire_proto::endpoint::Endpoint::new(config, seed)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let local = socket.local_addr()?;
        let clock = Clock::start();
        let timer = Timer::new(clock);
        let shared = Arc::new(Shared::new(endpoint, local, clock));
        tokio::spawn(Driver::new(Arc::clone(&shared), socket, timer, largest).run());
        Ok(Self { shared })
    }

    /// The socket's address, with the port that the system chose if none was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.lock().local
    }

    /// Goes over to a new socket, as after a change of networks. The connections that this endpoint made go on from there, unrecognised by who
    /// watches both networks; those that it accepted only if their peers find it at the same address.
    ///
    /// # Errors
    /// Those of the socket; [`io::ErrorKind::InvalidInput`] when the address is of the other family, from which the peers cannot be reached.
    pub async fn rebind(&self, address: SocketAddr) -> io::Result<()> {
        let socket = Socket::bind(address)?;
        let local = socket.local_addr()?;
        let mut state = self.shared.lock();
        if local.is_ipv4() != state.local.is_ipv4() {
            let error = format!("{local} cannot follow {}: one is IPv4, the other IPv6", state.local);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        (state.local, state.next_socket) = (local, Some(socket));
        drop(state);
        self.shared.wake_driver();
        Ok(())
    }

    /// Connects to who holds the same secret; gives up after [`Config::handshake_timeout`].
    pub async fn connect(&self, remote: SocketAddr) -> Result<Connection, ConnectError> {
        self.begin(remote, None).await
    }

    /// Connects to who has the private key of `peer`, with a key pair of our own; gives up after [`Config::handshake_timeout`].
    pub async fn connect_to(&self, remote: SocketAddr, peer: &PublicKey) -> Result<Connection, ConnectError> {
        self.begin(remote, Some(peer)).await
    }

    async fn begin(&self, remote: SocketAddr, peer: Option<&PublicKey>) -> Result<Connection, ConnectError> {
        let remote = self.reachable(remote)?;
        let connection = {
            let mut state = self.shared.lock();
            if state.shut {
                return Err(ConnectError::EndpointClosed);
            }
            let handle = state.connect(self.shared.clock.now(), remote, peer).map_err(ConnectError::PeerKey)?;
            Connection::new(Arc::clone(&self.shared), handle, remote)
        };
        self.shared.wake_driver();
        connection.connected().await.map_err(|reason| match reason {
            CloseReason::NoAnswer => ConnectError::NoAnswer,
            CloseReason::Local => ConnectError::EndpointClosed,
            other => ConnectError::Lost(other),
        })?;
        Ok(connection)
    }

    /// The address as our socket can name it.
    fn reachable(&self, remote: SocketAddr) -> Result<SocketAddr, ConnectError> {
        match (self.local_addr(), remote) {
            (_, remote) if remote.port() == 0 || remote.ip().is_unspecified() => Err(ConnectError::NoAddress(remote)),
            (SocketAddr::V6(local), SocketAddr::V4(v4)) if *local.ip() == Ipv6Addr::UNSPECIFIED => {
                Ok((v4.ip().to_ipv6_mapped(), v4.port()).into())
            }
            (local, remote) if local.is_ipv4() != remote.is_ipv4() => {
                Err(ConnectError::AddressFamily { local, remote })
            }
            (_, remote) => Ok(remote),
        }
    }

    /// The next connection that came; `None` after [`Self::close`].
    pub async fn accept(&self) -> Option<Connection> {
        self.wait_for(|state| match state.accept() {
            None if !state.shut => None,
            end_or_connection => Some(end_or_connection),
        })
        .await
        .map(|(handle, remote)| Connection::new(Arc::clone(&self.shared), handle, remote))
    }

    /// The next peer that was refused since its key is not authorized; it got no answer. Copies of one HELLO are told one by one, and only
    /// a few wait to be told. `None` after [`Self::close`].
    pub async fn unauthorized(&self) -> Option<Unauthorized> {
        self.wait_for(|state| match state.unauthorized.pop_front() {
            None if !state.shut => None,
            end_or_peer => Some(end_or_peer),
        })
        .await
    }

    /// From now on who has one of these keys is let in, and nobody else: connections that we accepted of others are closed. Of no effect
    /// where the credentials are a secret.
    pub fn authorize(&self, keys: BTreeSet<PublicKey>) {
        self.shared.lock().endpoint.authorize(self.shared.clock.now(), Arc::new(keys));
        self.shared.wake_driver();
    }

    /// Datagrams that reached no connection, by reason.
    pub fn stats(&self) -> EndpointStats {
        *self.shared.lock().endpoint.stats()
    }

    /// Closes all connections, accepts no more, and waits until the peers were told: at most 5 s.
    pub async fn close(&self) {
        {
            let mut state = self.shared.lock();
            let now = self.shared.clock.now();
            state.shut(now);
            state.close_all(now);
        }
        self.shared.changed.notify_waiters();
        self.shared.wake_driver();
        let ended = self.wait_for(|state| {
            let over = state.stopped || state.endpoint.connections().next().is_none();
            over.then_some(())
        });
        // Those that have not ended by then were told all the same.
        let _ = tokio::time::timeout(CLOSE_PATIENCE, ended).await;
    }

    async fn wait_for<R>(&self, mut ready: impl FnMut(&mut State) -> Option<R>) -> R {
        loop {
            let mut changed = pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            let result = ready(&mut self.shared.lock());
            if let Some(result) = result {
                return result;
            }
            changed.await;
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.shut(self.shared.clock.now());
        state.abandoned = true;
        drop(state);
        self.shared.wake_driver();
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("local", &self.local_addr()).finish_non_exhaustive()
    }
}

/// A connection could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nothing came back; a listener does not answer who has another secret, or a key that is not authorized.
    NoAnswer,
    /// The socket cannot send to such an address.
    AddressFamily {
        /// Ours.
        local: SocketAddr,
        /// The one to connect to.
        remote: SocketAddr,
    },
    /// The address names no host or no port.
    NoAddress(SocketAddr),
    /// The peer's key is missing, or not needed.
    PeerKey(PeerKeyError),
    /// We closed the endpoint.
    EndpointClosed,
    /// The handshake was broken off.
    Lost(CloseReason),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer => CloseReason::NoAnswer.fmt(f),
            Self::AddressFamily { local, remote } => {
                write!(f, "{remote} cannot be reached from {local}: bind to [::]:0, which takes IPv4 and IPv6")
            }
            Self::NoAddress(remote) => write!(f, "{remote} names no host or no port: give both, as in 192.0.2.7:7700"),
            Self::PeerKey(error) => error.fmt(f),
            Self::EndpointClosed => f.write_str("the endpoint was closed"),
            Self::Lost(reason) => reason.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {}
