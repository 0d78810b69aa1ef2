//! An endpoint as the application holds it: one address with any number of connections.
//!
//! An endpoint has one shard or several. Each shard has its own socket, driver and connections. Only the
//! types in this file know of more than one shard.

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
use tidewire_proto::connection::{CloseReason, SendFailure};
use tidewire_proto::crypto::{AwsLc, PublicKey};
use tidewire_proto::endpoint::{EndpointConfig, EndpointStats, Shard};
use tidewire_proto::handshake::{Credentials, PeerKeyError, Unauthorized};
use tidewire_proto::recode::RelayStats;

use crate::clock::{Clock, Timer};
use crate::connection::{Connection, EndpointEnded};
use crate::driver::Driver;
use crate::log::Log;
use crate::mail::Mail;
use crate::placement::Loads;
use crate::relay::end::Hops;
use crate::relay::{self, Hop};
use crate::shared::{Shared, State};
#[cfg(all(feature = "xdp", target_os = "linux"))]
use crate::socket::xdp::XdpConfig;
use crate::socket::{Kernel, Socket};
use crate::sync::Notify;

/// Maximum time that [`Endpoint::close`] waits. Closing takes three probe timeouts: 3 s if no round trip was
/// measured.
pub(crate) const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Maximum number of shards. Chosen: more cores than any present machine can spare for sockets.
const MAX_SHARDS: usize = 256;

/// A UDP socket that accepts and opens connections. The peers are those that know the same secret, or whose
/// keys are authorized.
///
/// A dropped endpoint accepts no more connections. Connections that the application still holds continue.
pub struct Endpoint {
    /// At least one.
    pub(crate) shards: Box<[Arc<Shared>]>,
    loads: Arc<Loads>,
    /// The hops of an end of a path with relays.
    hops: Option<Arc<Hops>>,
    /// Shared by all shards.
    changed: Arc<Notify>,
    /// The shard that is asked first.
    turn: AtomicUsize,
}

impl Endpoint {
    /// Binds a socket and starts the task that drives it. `credentials` is a [`crate::Secret`] or a key pair
    /// ([`crate::KeyCredentials`]). An IPv6 wildcard address also accepts IPv4.
    ///
    /// # Errors
    /// Errors of the socket, and of the system's random source.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with I/O and time enabled.
    pub fn bind(address: SocketAddr, credentials: impl Into<Credentials>, config: Config) -> io::Result<Self> {
        Self::over(vec![Box::new(Kernel::bind(address)?)], credentials.into(), config)
    }

    /// Binds `shards` sockets to the same address, at most 256. Each has its own task and its own
    /// connections, so a listener with many peers can use as many cores. More shards than cores gain nothing.
    /// A connection goes to the shard that has the fewest, and the kernel gives its datagrams to that socket.
    ///
    /// Each shard gets an equal part of [`Config::max_connections`] and [`Config::max_memory`]. Other limits
    /// of an endpoint, such as the number of handshakes answered without a cookie, then apply to each shard,
    /// and so does [`Config::workers`].
    ///
    /// A connection uses one shard only. Linux only; on other systems the endpoint has one shard. A kernel
    /// that does not choose sockets as wanted costs one more copy of some datagrams, and a log says so.
    ///
    /// # Errors
    /// The same as [`Self::bind`].
    ///
    /// # Panics
    /// The same as [`Self::bind`].
    pub fn bind_sharded(
        address: SocketAddr,
        credentials: impl Into<Credentials>,
        config: Config,
        shards: NonZeroUsize,
    ) -> io::Result<Self> {
        let sockets = Kernel::bind_group(address, shards.get().min(MAX_SHARDS))?;
        Self::over(boxed(sockets), credentials.into(), config)
    }

    /// Binds `shards` sockets as [`Self::bind_sharded`] does, which bypass most of the kernel on one
    /// interface (AF_XDP). What does not pass that interface goes through the kernel as with other endpoints,
    /// and so does all after a [`Self::rebind`]. Needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
    ///
    /// # Errors
    /// Those of [`Self::bind`]; an interface that is missing, down, or without XDP, and a queue or a hook of
    /// it that another program has. [`Self::bind`] works in these cases.
    ///
    /// # Panics
    /// The same as [`Self::bind`].
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    pub fn bind_xdp(
        address: SocketAddr,
        credentials: impl Into<Credentials>,
        config: Config,
        shards: NonZeroUsize,
        xdp: &XdpConfig,
    ) -> io::Result<Self> {
        let sockets = crate::socket::xdp::bind(address, shards.get().min(MAX_SHARDS), xdp)?;
        let sockets = sockets.into_iter().map(|socket| Box::new(socket) as Box<dyn Socket>).collect();
        Self::over(sockets, credentials.into(), config)
    }

    /// Makes an endpoint of these sockets, which have the same address.
    pub(crate) fn over(sockets: Vec<Box<dyn Socket>>, credentials: Credentials, config: Config) -> io::Result<Self> {
        let (largest, workers) = (config.max_datagram(), config.workers());
        let count = u16::try_from(sockets.len()).ok().and_then(NonZeroU16::new).ok_or(io::ErrorKind::InvalidInput)?;
        let mut connection = config.part(count);
        if connection.trace().is_none() && Log::is_wanted() {
            connection = connection.with_trace(Arc::<Log>::default());
        }
        let config = EndpointConfig { credentials, listen: true, connection, provider: Arc::new(AwsLc) };
        let is_steered = sockets.iter().all(|socket| socket.is_steered());
        let loads = Arc::new(Loads::new(count.get().into(), is_steered));
        let mut mail = Mail::new(count, largest.into(), &loads).into_iter().filter(|_| count > NonZeroU16::MIN);
        let (clock, changed) = (Clock::start(), Arc::<Notify>::default());
        let mut drivers = Vec::with_capacity(sockets.len());
        for (index, socket) in (0..count.get()).zip(sockets) {
            let mut config = config.clone();
            if let Some(trace) = config.connection.trace().and_then(|trace| trace.of_endpoint(clock.now())) {
                config.connection = config.connection.with_trace(trace);
            }
            let endpoint = tidewire_proto::endpoint::Endpoint::new(config, crate::random()?)
                .with_shard(Shard::new(index, count).unwrap_or(Shard::ALONE));
            let shared = Arc::new(Shared::new(endpoint, socket.local_addr()?, clock, Arc::clone(&changed)));
            drivers.push(Driver::new(shared, socket, Timer::new(clock), mail.next(), largest, workers)?);
        }
        let shards = drivers.iter().map(|driver| Arc::clone(driver.shared())).collect();
        for driver in drivers {
            tokio::spawn(driver.run());
        }
        Ok(Self { shards, loads, hops: None, changed, turn: AtomicUsize::new(0) })
    }

    /// An end of a path with relays that connects: opens a hop to the relay, over which
    /// [`Self::connect_via`] connects to the other end. `credentials` are those of the ends, and must not be
    /// those of the hop. [`Config::relaying`] says how the hop recodes, and the rate control of `config`
    /// applies to the hop. Code and redundancy of `config` have no use: each hop repairs its own losses.
    ///
    /// # Errors
    /// Errors of the socket and of the system's random source; [`io::ErrorKind::InvalidInput`] if choices of
    /// the configuration or the credentials do not fit.
    ///
    /// # Panics
    /// The same as [`Self::bind`].
    pub fn via(hop: Hop, credentials: impl Into<Credentials>, config: &Config) -> io::Result<Self> {
        let changed = Arc::<Notify>::default();
        Ok(Self::relayed(relay::end::connect(hop, credentials.into(), config, &changed)?, changed))
    }

    /// An end of a path with relays that listens: relays that know `hop` open hops to `address`, and other
    /// ends that know `credentials` connect over them. At most 64 hops are open at once. See [`Self::via`].
    ///
    /// # Errors
    /// The same as [`Self::via`].
    ///
    /// # Panics
    /// The same as [`Self::bind`].
    pub fn behind(
        address: SocketAddr,
        hop: impl Into<Credentials>,
        credentials: impl Into<Credentials>,
        config: &Config,
    ) -> io::Result<Self> {
        let changed = Arc::<Notify>::default();
        Ok(Self::relayed(relay::end::listen(address, hop.into(), credentials.into(), config, &changed)?, changed))
    }

    fn relayed((hops, first): (Arc<Hops>, Arc<Shared>), changed: Arc<Notify>) -> Self {
        let loads = Arc::new(Loads::new(1, false));
        Self { shards: [first].into(), loads, hops: Some(hops), changed, turn: AtomicUsize::new(0) }
    }

    /// All shards, and the sessions over accepted hops.
    fn all(&self) -> Vec<Arc<Shared>> {
        let over_hops = self.hops.iter().flat_map(|hops| hops.accepted());
        self.shards.iter().cloned().chain(over_hops).collect()
    }

    /// Counts of the relayed lanes of the hops, if this is an end of a path with relays.
    pub fn relay_stats(&self) -> Option<RelayStats> {
        self.hops.as_ref().map(|hops| hops.counts())
    }

    /// The address of the socket. If the requested port was 0, it has the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.shards[0].lock().local
    }

    /// Replaces the socket by a new one, for example after a change of network. Connections that this
    /// endpoint opened continue from the new address. They use new connection ids, so that an observer of
    /// both networks cannot link them. Connections that it accepted continue only if their peers can still
    /// reach it at the same address.
    ///
    /// # Errors
    /// Errors of the socket; [`io::ErrorKind::InvalidInput`] if the address family differs, because the peers
    /// cannot be reached from the other family; [`io::ErrorKind::Unsupported`] for [`Self::via`] and
    /// [`Self::behind`].
    pub fn rebind(&self, address: SocketAddr) -> io::Result<()> {
        if self.hops.is_some() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "an end of a path with relays has a fixed socket"));
        }
        let sockets = boxed(Kernel::bind_group(address, self.shards.len())?);
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

    /// Connects to a peer that knows the same secret. Gives up after [`Config::handshake_timeout`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(&self, remote: SocketAddr) -> Result<Connection, ConnectError> {
        self.begin(remote, None).await
    }

    /// Connects to the owner of the private key of `peer`. The credentials of this endpoint must be a key
    /// pair. Gives up after [`Config::handshake_timeout`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect_to(&self, remote: SocketAddr, peer: &PublicKey) -> Result<Connection, ConnectError> {
        self.begin(remote, Some(peer)).await
    }

    /// Connects to the other end of a path with relays; `peer` is its public key, if the credentials of this
    /// endpoint are a key pair. The connection names the relay as its remote address.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect_via(&self, peer: Option<&PublicKey>) -> Result<Connection, ConnectError> {
        let (Some(hops), Some(relay)) = (&self.hops, self.hops.as_ref().and_then(|hops| hops.relay())) else {
            return Err(ConnectError::Endpoint(self.shards[0].lock().ended.unwrap_or(EndpointEnded::DriverStopped)));
        };
        self.start(relay, peer).await.map_err(|error| match error {
            ConnectError::NoAnswer if !hops.is_connected() => ConnectError::Lost(hop_silent()),
            error => error,
        })
    }

    async fn begin(&self, remote: SocketAddr, peer: Option<&PublicKey>) -> Result<Connection, ConnectError> {
        self.start(self.reachable(remote)?, peer).await
    }

    async fn start(&self, remote: SocketAddr, peer: Option<&PublicKey>) -> Result<Connection, ConnectError> {
        let place = self.loads.choose(self.turn.fetch_add(1, Ordering::Relaxed));
        let shared = &self.shards[place];
        let connection = {
            let mut state = shared.lock();
            let slot = match state.ended {
                Some(ended) => Err(ConnectError::Endpoint(ended)),
                None => state.connect(shared.clock.now(), remote, peer).map_err(ConnectError::PeerKey),
            };
            self.loads.tell(place, state.endpoint.load(), Some(place));
            Connection::new(Arc::clone(shared), slot?, remote)
        };
        shared.wake_driver();
        connection.connected().await.map_err(|reason| match reason {
            CloseReason::NoAnswer => ConnectError::NoAnswer,
            CloseReason::Local => ConnectError::Endpoint(shared.lock().ended.unwrap_or(EndpointEnded::Closed)),
            other => ConnectError::Lost(other),
        })?;
        Ok(connection)
    }

    /// The form of the address that our socket understands.
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

    /// Waits for the next connection of a peer.
    ///
    /// # Errors
    /// [`EndpointEnded`] says why there will be no more.
    pub async fn accept(&self) -> Result<Connection, EndpointEnded> {
        let (shared, (slot, remote)) = self.next(State::accept).await?;
        Ok(Connection::new(shared, slot, remote))
    }

    /// Waits until this machine refuses to send a datagram, and says why: [`SendFailure::NoRoute`] or
    /// [`SendFailure::NotPermitted`]. Connections go on to try, but know nothing of it. Only the machine
    /// itself says so, never a message of the network. [`Self::via`] and [`Self::behind`] do not tell.
    pub async fn refused(&self) -> SendFailure {
        self.wait_for(|| self.shards.iter().find_map(|shared| shared.lock().refusal)).await
    }

    /// Waits for the next peer that is refused because its key is not authorized. Such a peer gets no answer.
    /// Every copy of its HELLO is reported, and only a few reports are kept.
    ///
    /// # Errors
    /// [`EndpointEnded`] says why there will be no more.
    pub async fn unauthorized(&self) -> Result<Unauthorized, EndpointEnded> {
        self.next(|state| state.unauthorized.pop_front()).await.map(|(_, peer)| peer)
    }

    /// From now on admits only peers with one of these keys. Connections accepted from other peers are
    /// closed. Has no effect if the credentials are a secret.
    pub fn authorize(&self, keys: BTreeSet<PublicKey>) {
        let keys = Arc::new(keys);
        self.hops.iter().for_each(|hops| hops.authorize(&keys));
        for shared in &self.all() {
            shared.lock().endpoint.authorize(shared.clock.now(), Arc::clone(&keys));
            shared.wake_driver();
        }
    }

    /// Counts of datagrams that reached no connection, by reason, over all shards.
    pub fn stats(&self) -> EndpointStats {
        let mut sum = EndpointStats::default();
        for shared in &self.all() {
            let state = shared.lock();
            sum += state.endpoint.stats();
            (sum.passed_on, sum.overrun) = (sum.passed_on + state.passed_on, sum.overrun + state.overrun);
        }
        sum
    }

    /// Closes all connections, accepts no more, and waits until the peers were told, at most 5 s.
    pub async fn close(&self) {
        let shards = self.all();
        for shared in &shards {
            let mut state = shared.lock();
            let now = shared.clock.now();
            state.shut(now);
            state.close_all(now);
            drop(state);
            shared.wake_driver();
        }
        self.changed.notify_waiters();
        let over = |state: &State| state.stopped || state.endpoint.connections().next().is_none();
        let hops_over = || self.hops.as_ref().is_none_or(|hops| hops.is_over());
        let ended = self.wait_for(|| (shards.iter().all(|shared| over(&shared.lock())) && hops_over()).then_some(()));
        // Peers of the connections that have not ended by then were told as well.
        let _ = tokio::time::timeout(CLOSE_PATIENCE, ended).await;
    }

    /// Waits for the next value that `take` finds in a shard. The shards take turns in being asked first.
    async fn next<R>(&self, mut take: impl FnMut(&mut State) -> Option<R>) -> Result<(Arc<Shared>, R), EndpointEnded> {
        self.wait_for(|| {
            let shards = self.all();
            let first = self.turn.fetch_add(1, Ordering::Relaxed) % shards.len();
            let (before, from) = shards.split_at(first);
            let mut all_ended = Some(EndpointEnded::Closed);
            for shared in from.iter().chain(before) {
                let mut state = shared.lock();
                if let Some(found) = take(&mut state) {
                    return Some(Ok((Arc::clone(shared), found)));
                }
                all_ended = all_ended.and(state.ended);
            }
            all_ended.map(Err)
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
        for shared in &self.all() {
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

/// A relay that does not answer.
fn hop_silent() -> CloseReason {
    CloseReason::Hop(Box::new(CloseReason::NoAnswer))
}

/// Why a connection cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No answer arrived. A listener does not answer peers that have another secret or a key that is not
    /// authorized.
    #[error("{}", CloseReason::NoAnswer)]
    NoAnswer,
    /// The socket cannot send to an address of this family.
    #[error("{remote} cannot be reached from {local}: bind to [::]:0, which takes IPv4 and IPv6")]
    AddressFamily {
        /// Address of the socket.
        local: SocketAddr,
        /// Address of the peer.
        remote: SocketAddr,
    },
    /// The address has no host or no port.
    #[error("{0} has no host or no port: give both, as in 192.0.2.7:7700")]
    NoAddress(SocketAddr),
    /// The peer's key is missing, or is not needed.
    #[error("{0}")]
    PeerKey(PeerKeyError),
    /// The endpoint has ended.
    #[error("{0}")]
    Endpoint(EndpointEnded),
    /// The handshake failed.
    #[error("{0}")]
    Lost(CloseReason),
}

fn boxed(sockets: Vec<Kernel>) -> Vec<Box<dyn Socket>> {
    sockets.into_iter().map(|socket| Box::new(socket) as Box<dyn Socket>).collect()
}
