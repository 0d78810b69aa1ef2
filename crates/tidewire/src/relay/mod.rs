//! Relays, and ends of a path with relays (`docs/relay.md`).
//!
//! [`Relay`] is a relay as the application holds it: it listens at one address, and joins each hop that it
//! accepts with one to the configured next host. The ends are [`Endpoint::via`](crate::Endpoint::via) and
//! [`Endpoint::behind`](crate::Endpoint::behind). Invariant: no datagram is sent to a host that is neither
//! configured nor a peer that proved its key or secret.

mod driver;
pub(crate) mod end;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::Waker;

use tidewire_proto::config::{Config, ConfigError};
use tidewire_proto::crypto::{AwsLc, PublicKey};
use tidewire_proto::endpoint::{Endpoint, EndpointConfig, EndpointStats};
use tidewire_proto::handshake::{Credentials, Unauthorized};
use tidewire_proto::recode::RelayStats;
use tidewire_proto::relay::{self, Report};

use crate::clock::{Clock, Timer};
use crate::connection::EndpointEnded;
use crate::endpoint::CLOSE_PATIENCE;
use crate::port::Port;
use crate::shared::MAX_UNAUTHORIZED;
use crate::socket::{Kernel, Socket as _};
use crate::sync::{Mutex, MutexGuard, Notify};

/// How to open a hop: to the next host of a relay, or to the relay of an end.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Address of the host. Nothing is ever sent to another.
    pub address: SocketAddr,
    /// Our credentials for the hop: the secret of the hop, or our key pair.
    pub credentials: Credentials,
    /// The public key of the host, if the credentials are a key pair.
    pub peer: Option<PublicKey>,
}

/// A relay: it recodes between the hops that it accepts and one next host, and reads nothing. Dropping it
/// closes all its hops.
pub struct Relay(Arc<Joined>);

/// State that the driver of a relay and its handle share.
struct Joined {
    state: Mutex<State>,
    changed: Notify,
    clock: Clock,
    local: SocketAddr,
}

struct State {
    relay: relay::Relay,
    near: Endpoint,
    far: Endpoint,
    reports: VecDeque<Report>,
    unauthorized: VecDeque<Unauthorized>,
    ended: Option<EndpointEnded>,
    driver: Option<Waker>,
}

/// Counts of a relay.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct RelayCounts {
    /// Paths that are open.
    pub paths: usize,
    /// Frames of the relayed lanes of all hops, those that are over included.
    pub frames: RelayStats,
    /// Datagrams that reached no connection, at the side that listens and at the side that connects.
    pub near: EndpointStats,
    /// See `near`.
    pub far: EndpointStats,
    /// Paths that a neighbour closed because symbols were changed on the way.
    pub polluted: u64,
}

impl Relay {
    /// Binds a socket to `address`, where peers that know `credentials` open hops, and another to open hops
    /// to `next`. [`Config::relaying`] says how the relay recodes.
    ///
    /// # Errors
    /// Errors of the sockets and of the system's random source; [`io::ErrorKind::InvalidInput`] if choices of
    /// the configuration do not fit.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with I/O and time enabled.
    pub fn bind(
        address: SocketAddr,
        credentials: impl Into<Credentials>,
        next: Hop,
        config: &Config,
    ) -> io::Result<Self> {
        let connection = relay::hop(config).map_err(unfit)?;
        let near = endpoint(credentials.into(), true, &connection)?;
        let far = endpoint(next.credentials, false, &connection)?;
        let (listening, connecting) = (Kernel::bind(address)?, Kernel::bind(unspecified(next.address))?);
        let (clock, local) = (Clock::start(), listening.local_addr()?);
        let state = State {
            relay: relay::Relay::new(next.address, next.peer),
            near,
            far,
            reports: VecDeque::new(),
            unauthorized: VecDeque::new(),
            ended: None,
            driver: None,
        };
        let joined = Arc::new(Joined { state: Mutex::new(state), changed: Notify::new(), clock, local });
        let ports =
            [listening, connecting].map(|socket| Port::new(Box::new(socket), &clock, connection.max_datagram()));
        tokio::spawn(driver::Driver::new(Arc::clone(&joined), ports, Timer::new(clock)).run());
        Ok(Self(joined))
    }

    /// The address that the relay listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local
    }

    /// Counts since the start.
    pub fn counts(&self) -> RelayCounts {
        let state = self.0.lock();
        RelayCounts {
            paths: state.relay.pairs(),
            frames: state.relay.stats(&state.near, &state.far),
            near: state.near.stats(),
            far: state.far.stats(),
            polluted: state.relay.polluted(),
        }
    }

    /// Waits for what happens next to a path through the relay. Only the newest reports are kept.
    ///
    /// # Errors
    /// [`EndpointEnded`] says why there will be no more.
    pub async fn report(&self) -> Result<Report, EndpointEnded> {
        self.next(|state| state.reports.pop_front()).await
    }

    /// See [`crate::Endpoint::unauthorized`].
    ///
    /// # Errors
    /// [`EndpointEnded`] says why there will be no more.
    pub async fn unauthorized(&self) -> Result<Unauthorized, EndpointEnded> {
        self.next(|state| state.unauthorized.pop_front()).await
    }

    /// See [`crate::Endpoint::authorize`].
    pub fn authorize(&self, keys: BTreeSet<PublicKey>) {
        let now = self.0.clock.now();
        self.0.lock().near.authorize(now, Arc::new(keys));
        self.0.wake_driver();
    }

    /// Closes all hops, accepts no more, and waits until the neighbours were told, at most 5 s.
    pub async fn close(&self) {
        self.0.end();
        let closed = self.0.wait_for(|state| state.is_over().then_some(()));
        // Neighbours that have not answered by then were told as well.
        let _ = tokio::time::timeout(CLOSE_PATIENCE, closed).await;
    }

    async fn next<R>(&self, mut take: impl FnMut(&mut State) -> Option<R>) -> Result<R, EndpointEnded> {
        self.0.wait_for(|state| take(state).map(Ok).or(state.ended.map(Err))).await
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("local", &self.0.local).finish_non_exhaustive()
    }
}

impl Joined {
    /// Locks the state. After a panic elsewhere the counts are still good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn wake_driver(&self) {
        let driver = self.lock().driver.take();
        driver.into_iter().for_each(Waker::wake);
    }

    /// Closes all hops and accepts no more.
    fn end(&self) {
        let mut state = self.lock();
        state.ended.get_or_insert(EndpointEnded::Closed);
        drop(state);
        self.wake_driver();
        self.changed.notify_waiters();
    }

    async fn wait_for<R>(&self, mut ready: impl FnMut(&mut State) -> Option<R>) -> R {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(result) = ready(&mut self.lock()) {
                return result;
            }
            changed.await;
        }
    }
}

impl State {
    /// Whether the relay was closed and no hop is left.
    fn is_over(&self) -> bool {
        let none_left = |endpoint: &Endpoint| endpoint.connections().next().is_none();
        self.ended == Some(EndpointEnded::DriverStopped)
            || (self.ended.is_some() && none_left(&self.near) && none_left(&self.far))
    }
}

/// An endpoint of the protocol with the ciphers of this crate.
fn endpoint(credentials: Credentials, listen: bool, connection: &Config) -> io::Result<Endpoint> {
    let config = EndpointConfig { credentials, listen, connection: connection.clone(), provider: Arc::new(AwsLc) };
    Ok(Endpoint::new(config, crate::random()?))
}

/// An address that a socket is bound to in order to reach `remote`.
fn unspecified(remote: SocketAddr) -> SocketAddr {
    match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn unfit(error: ConfigError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}
