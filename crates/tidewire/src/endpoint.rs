//! An endpoint as the application holds it: one address, any number of connections.
//!
//! It has one shard or several, each a socket, a driver and connections of its own; only the handles here
//! know of more than one.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::num::{NonZeroU16, NonZeroUsize};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidewire_proto::config::Config;
use tidewire_proto::connection::CloseReason;
use tidewire_proto::crypto::{AwsLc, PublicKey};
use tidewire_proto::endpoint::{EndpointConfig, EndpointStats, Shard};
use tidewire_proto::handshake::{Credentials, PeerKeyError, Unauthorized};

use crate::clock::{Clock, Timer};
use crate::connection::Connection;
use crate::driver::Driver;
use crate::mail::Mail;
use crate::shared::{Shared, State};
use crate::socket::Socket;
use crate::sync::Notify;

/// [`Endpoint::close`] waits for no longer: closing takes three probe timeouts, 3 s where no round trip was
/// ever measured.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Shards of an endpoint, at most: more than any machine of today has cores for sockets. Chosen.
const MAX_SHARDS: usize = 256;

/// A UDP socket that accepts connections and makes them, with all who hold the same secret or whose keys are
/// known.
///
/// When it is dropped no more connections are accepted; those that are held go on.
pub struct Endpoint {
    /// At least one.
    pub(crate) shards: Box<[Arc<Shared>]>,
    /// Of all shards.
    changed: Arc<Notify>,
    /// Which of them is asked first.
    turn: AtomicUsize,
}

impl Endpoint {
    /// Binds a socket and starts the task that drives it. `credentials`: a [`crate::Secret`], or a key pair.
    /// An IPv6 wildcard address takes IPv4 too.
    ///
    /// # Errors
    /// Those of the socket; [`io::ErrorKind::InvalidInput`] when a setting is outside its range.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time enabled.
    pub async fn bind(address: SocketAddr, credentials: impl Into<Credentials>, config: Config) -> io::Result<Self> {
        Self::over(vec![Socket::bind(address)?], credentials.into(), config)
    }

    /// As [`Self::bind`], with several sockets at the one address, each with a task and connections of its
    /// own, so that a listener with many peers has as many cores at work as `shards` says (at most 256 are
    /// made; more than there are cores gain nothing). The kernel spreads peers over the sockets by their
    /// addresses. Of connections and memory (see [`Config`]) each shard has an even part; other limits that
    /// are per endpoint, as that of handshakes answered without a cookie, are then per shard, and so is the
    /// number of workers.
    ///
    /// One connection never uses more than one of them, and what such an endpoint connects to itself costs
    /// one more copy where the kernel gives the answers to another socket: [`Self::bind`] is what connects
    /// best. Linux only; elsewhere there is one shard whatever is asked for.
    ///
    /// # Errors
    /// As [`Self::bind`].
    ///
    /// # Panics
    /// As [`Self::bind`].
    pub async fn bind_sharded(
        address: SocketAddr,
        credentials: impl Into<Credentials>,
        config: Config,
        shards: NonZeroUsize,
    ) -> io::Result<Self> {
        let sockets = Socket::bind_group(address, shards.get().min(MAX_SHARDS))?;
        Self::over(sockets, credentials.into(), config)
    }

    /// An endpoint that has these sockets, of one address.
    pub(crate) fn over(sockets: Vec<Socket>, credentials: Credentials, config: Config) -> io::Result<Self> {
        let (largest, workers) = (config.max_datagram, config.workers);
        let config = EndpointConfig { credentials, listen: true, connection: config, provider: Arc::new(AwsLc) };
        let count = u16::try_from(sockets.len()).ok().and_then(NonZeroU16::new).ok_or(io::ErrorKind::InvalidInput)?;
        let mut config = config;
        // Each shard has its part: shards know nothing of each other.
        config.connection.max_connections = config.connection.max_connections.div_ceil(count.get().into());
        config.connection.max_memory = config.connection.max_memory.div_ceil(count.get().into());
        let mut mail = Mail::new(count, largest.into()).into_iter().filter(|_| count > NonZeroU16::MIN);
        let (clock, changed) = (Clock::start(), Arc::<Notify>::default());
        let mut drivers = Vec::with_capacity(sockets.len());
        for (index, socket) in (0..count.get()).zip(sockets) {
            let endpoint = tidewire_proto::endpoint::Endpoint::new(config.clone(), crate::random()?)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?
                .with_shard(Shard::new(index, count).unwrap_or(Shard::ALONE));
            let shared = Arc::new(Shared::new(endpoint, socket.local_addr()?, clock, Arc::clone(&changed)));
            drivers.push(Driver::new(shared, (socket, Timer::new(clock)), mail.next(), largest, workers)?);
        }
        let shards = drivers.iter().map(|driver| Arc::clone(driver.shared())).collect();
        for driver in drivers {
            tokio::spawn(driver.run());
        }
        Ok(Self { shards, changed, turn: AtomicUsize::new(0) })
    }

    /// The socket's address, with the port that the system chose if none was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.shards[0].lock().local
    }

    /// Goes over to a new socket, as after a change of networks. The connections that this endpoint made go
    /// on from there, unrecognised by who watches both networks; those that it accepted only if their peers
    /// find it at the same address.
    ///
    /// # Errors
    /// Those of the socket; [`io::ErrorKind::InvalidInput`] when the address is of the other family, from
    /// which the peers cannot be reached.
    pub async fn rebind(&self, address: SocketAddr) -> io::Result<()> {
        let sockets = Socket::bind_group(address, self.shards.len())?;
        let (local, before) = (sockets[0].local_addr()?, self.local_addr());
        if local.is_ipv4() != before.is_ipv4() {
            let error = format!("{local} cannot follow {before}: one is IPv4, the other IPv6");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        for (shared, socket) in self.shards.iter().zip(sockets) {
            let mut state = shared.lock();
            (state.local, state.next_socket) = (local, Some(socket));
            drop(state);
            shared.wake_driver();
        }
        Ok(())
    }

    /// Connects to who holds the same secret; gives up after [`Config::handshake_timeout`].
    pub async fn connect(&self, remote: SocketAddr) -> Result<Connection, ConnectError> {
        self.begin(remote, None).await
    }

    /// Connects to who has the private key of `peer`, with a key pair of our own; gives up after
    /// [`Config::handshake_timeout`].
    pub async fn connect_to(&self, remote: SocketAddr, peer: &PublicKey) -> Result<Connection, ConnectError> {
        self.begin(remote, Some(peer)).await
    }

    async fn begin(&self, remote: SocketAddr, peer: Option<&PublicKey>) -> Result<Connection, ConnectError> {
        let remote = self.reachable(remote)?;
        let shared = &self.shards[self.turn.fetch_add(1, Ordering::Relaxed) % self.shards.len()];
        let connection = {
            let mut state = shared.lock();
            if state.shut {
                return Err(ConnectError::EndpointClosed);
            }
            let handle = state.connect(shared.clock.now(), remote, peer).map_err(ConnectError::PeerKey)?;
            Connection::new(Arc::clone(shared), handle, remote)
        };
        shared.wake_driver();
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
        let (shared, (handle, remote)) = self.next(State::accept).await?;
        Some(Connection::new(shared, handle, remote))
    }

    /// The next peer that was refused since its key is not authorized; it got no answer. Copies of one HELLO
    /// are told one by one, and only a few wait to be told. `None` after [`Self::close`].
    pub async fn unauthorized(&self) -> Option<Unauthorized> {
        self.next(|state| state.unauthorized.pop_front()).await.map(|(_, peer)| peer)
    }

    /// From now on who has one of these keys is let in, and nobody else: connections that we accepted of
    /// others are closed. Of no effect where the credentials are a secret.
    pub fn authorize(&self, keys: BTreeSet<PublicKey>) {
        let keys = Arc::new(keys);
        for shared in &self.shards {
            shared.lock().endpoint.authorize(shared.clock.now(), Arc::clone(&keys));
            shared.wake_driver();
        }
    }

    /// Datagrams that reached no connection, by reason; of all shards together.
    pub fn stats(&self) -> EndpointStats {
        let mut sum = EndpointStats::default();
        for shared in &self.shards {
            let state = shared.lock();
            sum += *state.endpoint.stats();
            (sum.passed_on, sum.overrun) = (sum.passed_on + state.passed_on, sum.overrun + state.overrun);
        }
        sum
    }

    /// Closes all connections, accepts no more, and waits until the peers were told: at most 5 s.
    pub async fn close(&self) {
        for shared in &self.shards {
            let mut state = shared.lock();
            let now = shared.clock.now();
            state.shut(now);
            state.close_all(now);
            drop(state);
            shared.wake_driver();
        }
        self.changed.notify_waiters();
        let over = |state: &State| state.stopped || state.endpoint.connections().next().is_none();
        let ended = self.wait_for(|| self.shards.iter().all(|shared| over(&shared.lock())).then_some(()));
        // Those that have not ended by then were told all the same.
        let _ = tokio::time::timeout(CLOSE_PATIENCE, ended).await;
    }

    /// The next thing that a shard has, each in its turn; `None` when none has any and all are shut.
    async fn next<R>(&self, mut take: impl FnMut(&mut State) -> Option<R>) -> Option<(Arc<Shared>, R)> {
        self.wait_for(|| {
            let first = self.turn.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            let (before, from) = self.shards.split_at(first);
            let mut shut = true;
            for shared in from.iter().chain(before) {
                let mut state = shared.lock();
                if let Some(found) = take(&mut state) {
                    return Some(Some((Arc::clone(shared), found)));
                }
                shut &= state.shut;
            }
            shut.then_some(None)
        })
        .await
    }

    async fn wait_for<R>(&self, mut ready: impl FnMut() -> Option<R>) -> R {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(result) = ready() {
                return result;
            }
            changed.await;
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        for shared in &self.shards {
            let mut state = shared.lock();
            state.shut(shared.clock.now());
            state.abandoned = true;
            drop(state);
            shared.wake_driver();
        }
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
