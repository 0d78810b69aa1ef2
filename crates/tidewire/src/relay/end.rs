//! The driver of an end of a path with relays: one socket for its hops, and an end-to-end session over each.
//!
//! The sessions have no socket: each is the endpoint of a [`Shared`], so connections and streams use it as
//! they use any other, and this driver does what [`crate::driver`] does, with a hop in place of the network.
//! An end that connects has one hop and one session. An end that listens makes a session for each hop that it
//! accepts; its first `Shared` has no hop and only says whether the application still holds the endpoint.
//! Invariant: a session whose hop is over is told the reason.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseCode, CloseReason, Event, Received};
use tidewire_proto::crypto::{AwsLc, PublicKey};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint, EndpointConfig};
use tidewire_proto::handshake::Credentials;
use tidewire_proto::recode::{RELAYED_DATAGRAM, RelayStats};
use tidewire_proto::relay;

use super::{Hop, endpoint, unfit, unspecified};
use crate::clock::{Clock, Timer};
use crate::driver::{BATCHES, LEAST_SLEEP, ROUNDS};
use crate::port::Port;
use crate::shared::Shared;
use crate::socket::{Kernel, Socket as _};
use crate::sync::{Mutex, MutexGuard, Notify};

/// What the handle of an end and its driver share, beside the sessions.
pub(crate) struct Hops {
    state: Mutex<State>,
    changed: Arc<Notify>,
    clock: Clock,
}

struct State {
    hops: Endpoint,
    open: BTreeMap<ConnectionHandle, Open>,
    /// Makes the sessions of an end that listens.
    session: Option<EndpointConfig>,
    /// Counts of hops that are over.
    passed: RelayStats,
    /// Whether the endpoint was closed, so that no further hop is accepted.
    is_closed: bool,
}

/// A hop, and the session over it.
struct Open {
    end: relay::End,
    session: Arc<Shared>,
    is_connected: bool,
}

/// The driver of an end; see the module.
struct Driver {
    hops: Arc<Hops>,
    /// The session of an end that connects. At an end that listens it has no connections.
    first: Arc<Shared>,
    port: Port,
    timer: Timer,
    wake: Vec<Waker>,
}

/// Result of a round.
enum Round {
    More,
    Until(Time),
    Over,
}

/// Opens a hop, and returns the session over it.
pub(crate) fn connect(
    hop: Hop,
    credentials: Credentials,
    config: &Config,
    changed: &Arc<Notify>,
) -> io::Result<(Arc<Hops>, Arc<Shared>)> {
    let (link, session) = configs(config)?;
    let mut hops = endpoint(hop.credentials, false, &link)?;
    let (socket, clock) = (Kernel::bind(unspecified(hop.address))?, Clock::start());
    let shared = Arc::new(Shared::new(
        endpoint(credentials, false, &session)?,
        socket.local_addr()?,
        clock,
        Arc::clone(changed),
    ));
    let handle = match &hop.peer {
        Some(key) => hops.connect_to(clock.now(), hop.address, key),
        None => hops.connect(clock.now(), hop.address),
    };
    let handle = handle.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    let open = Open { end: relay::End::new(hop.address), session: Arc::clone(&shared), is_connected: false };
    let state =
        State { hops, open: [(handle, open)].into(), session: None, passed: RelayStats::default(), is_closed: false };
    Ok((start(state, socket, &shared, &link), shared))
}

/// Listens for hops, and returns the shared state that has no session.
pub(crate) fn listen(
    address: SocketAddr,
    hop: Credentials,
    credentials: Credentials,
    config: &Config,
    changed: &Arc<Notify>,
) -> io::Result<(Arc<Hops>, Arc<Shared>)> {
    let (link, session) = configs(config)?;
    let link = link.to_builder().max_connections(relay::MOST_PAIRS).build().map_err(unfit)?;
    let hops = endpoint(hop, true, &link)?;
    let (socket, clock) = (Kernel::bind(address)?, Clock::start());
    let shared = Arc::new(Shared::new(
        endpoint(credentials.clone(), false, &session)?,
        socket.local_addr()?,
        clock,
        Arc::clone(changed),
    ));
    let session = EndpointConfig { credentials, listen: true, connection: session, provider: Arc::new(AwsLc) };
    let state =
        State { hops, open: BTreeMap::new(), session: Some(session), passed: RelayStats::default(), is_closed: false };
    Ok((start(state, socket, &shared, &link), shared))
}

/// The configurations of the hops and of the session.
fn configs(config: &Config) -> io::Result<(Config, Config)> {
    let session = relay::end_to_end(config, RELAYED_DATAGRAM).map_err(unfit)?;
    Ok((relay::hop(config).map_err(unfit)?, session))
}

fn start(state: State, socket: Kernel, first: &Arc<Shared>, link: &Config) -> Arc<Hops> {
    let (clock, changed) = (first.clock, Arc::clone(&first.changed));
    let hops = Arc::new(Hops { state: Mutex::new(state), changed, clock });
    let driver = Driver {
        hops: Arc::clone(&hops),
        first: Arc::clone(first),
        port: Port::new(Box::new(socket), &clock, link.max_datagram()),
        timer: Timer::new(clock),
        wake: Vec::new(),
    };
    tokio::spawn(driver.run());
    hops
}

impl Hops {
    /// Locks the state. After a panic elsewhere the driver has ended, and told all sessions.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The sessions of an end that listens.
    pub fn accepted(&self) -> Vec<Arc<Shared>> {
        let state = self.lock();
        let is_listening = state.session.is_some();
        state.open.values().filter(|_| is_listening).map(|open| Arc::clone(&open.session)).collect()
    }

    /// Address of the relay, while the hop of an end that connects is open.
    pub fn relay(&self) -> Option<SocketAddr> {
        let state = self.lock();
        let handle = state.open.keys().next().filter(|_| state.session.is_none())?;
        state.hops.connection(*handle).map(|hop| hop.remote())
    }

    /// Whether the hop of an end that connects was established.
    pub fn is_connected(&self) -> bool {
        self.lock().open.values().any(|open| open.is_connected)
    }

    /// Whether no hop is left.
    pub fn is_over(&self) -> bool {
        self.lock().hops.connections().next().is_none()
    }

    /// Counts of the relayed lanes of all hops.
    pub fn counts(&self) -> RelayStats {
        let state = self.lock();
        let mut sum = state.passed;
        state.hops.connections().for_each(|(_, hop)| sum += hop.relay_stats());
        sum
    }

    /// From now on admits only peers with one of these keys.
    pub fn authorize(&self, keys: &Arc<std::collections::BTreeSet<PublicKey>>) {
        if let Some(EndpointConfig { credentials: Credentials::Key(own), .. }) = &mut self.lock().session {
            own.authorized = Arc::clone(keys);
        }
    }
}

impl Driver {
    /// Runs until the endpoint was dropped, its connections have ended and the hops are closed.
    async fn run(mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS {
            let received = self.receive(cx);
            let round = self.send(cx);
            self.wake.drain(..).for_each(Waker::wake);
            match round {
                Round::Over => return Poll::Ready(()),
                Round::Until(at) if !received && self.timer.poll(cx, at).is_pending() => return Poll::Pending,
                Round::Until(_) | Round::More => {}
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Receives what one system call returns. Returns whether there may be more.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let Self { hops, port, wake, .. } = self;
        port.receive(cx, &hops.clock, Time::ZERO, |at, train| {
            let mut state = hops.lock();
            if train.dropped > 0 {
                state.hops.handle_host_drops(at, train.dropped.into());
            }
            for datagram in train.datagrams {
                let received = Received { at, from: train.from, to: train.to, ecn: train.ecn, datagram };
                state.hops.handle_datagram(received);
            }
            // Few rows may wait in a hop, so each train is delivered before the next.
            state.turn(hops, wake);
        })
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Round {
        for batch in 0..BATCHES {
            let flushed = self.port.flush(cx);
            let hops = Arc::clone(&self.hops);
            let mut state = hops.lock();
            let now = hops.clock.now();
            if let Poll::Ready(Some((transmit, failure))) = &flushed {
                state.hops.handle_send_failure(now, transmit, *failure);
            }
            if batch == 0 {
                state.hops.handle_read(self.port.read());
                state.handle_timeouts(now);
            }
            let again = state.turn(&hops, &mut self.wake);
            if flushed.is_pending() {
                return self.settle(&mut state, now, true, cx);
            }
            if !self.port.fill(now, &mut state.hops) && !again {
                return self.settle(&mut state, now, false, cx);
            }
        }
        Round::More
    }

    /// Called when nothing is left to send, or the socket is full: its task is woken when it has room.
    fn settle(&mut self, state: &mut State, now: Time, is_full: bool, cx: &Context<'_>) -> Round {
        let (is_closed, is_abandoned) = {
            let mut first = self.first.lock();
            first.sleep(cx.waker(), Time::ZERO);
            (first.ended.is_some(), first.abandoned)
        };
        let mut due = Time::NEVER;
        let mut is_idle = true;
        for open in state.open.values() {
            let mut session = open.session.lock();
            let at = open.end.poll_timeout(&mut session.endpoint).unwrap_or(Time::NEVER);
            session.sleep(cx.waker(), if is_full { Time::ZERO } else { at });
            due = due.min(at);
            is_idle &= session.endpoint.connections().next().is_none();
        }
        state.is_closed = is_closed;
        if is_closed && is_idle {
            self.hops.changed.notify_waiters();
            if state.close_hops(now) {
                return Round::More;
            }
            if is_abandoned && state.hops.connections().next().is_none() {
                return Round::Over;
            }
        }
        let hop_due = state.hops.poll_timeout().map_or(Time::NEVER, |(at, _)| at);
        due = if is_full { Time::NEVER } else { due.min(hop_due) };
        let receive_from = self.port.receive_from();
        let due = if receive_from > now { due.min(receive_from) } else { due };
        Round::Until(due.max(now + LEAST_SLEEP))
    }
}

impl Drop for Driver {
    /// Also runs when the runtime ends or something panicked, so that no task waits for ever.
    fn drop(&mut self) {
        let open = std::mem::take(&mut self.hops.lock().open);
        let sessions = open.into_values().map(|open| open.session);
        for shared in sessions.chain([Arc::clone(&self.first)]) {
            let wake = shared.lock().stop(&CloseReason::Local);
            wake.into_iter().for_each(Waker::wake);
        }
        self.hops.changed.notify_waiters();
    }
}

impl State {
    /// Handles the timers of the hops and of all sessions.
    fn handle_timeouts(&mut self, now: Time) {
        self.hops.handle_timeout(now);
        for open in self.open.values() {
            open.session.lock().endpoint.handle_timeout(now);
        }
    }

    /// Handles the events of the hops, moves symbols, and hands out the events of the sessions. Returns
    /// whether a session has to be driven again.
    fn turn(&mut self, hops: &Hops, wake: &mut Vec<Waker>) -> bool {
        let now = hops.clock.now();
        while let Some((handle, event)) = self.hops.poll_event() {
            match event {
                Event::Connected => self.on_connected(now, handle, hops),
                Event::Closed(reason) => self.on_closed(handle, reason, hops, wake),
                Event::StreamOpened(_) | Event::MessageReadable => {
                    if let Some(hop) = self.hops.connection_mut(handle) {
                        hop.close(now, CloseCode::Refused, "streams and messages go end to end, not over a hop");
                    }
                }
                _ => {}
            }
        }
        let mut again = false;
        for (&handle, open) in &mut self.open {
            let mut session = open.session.lock();
            if let Some(hop) = self.hops.connection_mut(handle) {
                open.end.drive(now, hop, &mut session.endpoint);
            }
            if let Some(suspects) = open.end.poll_polluted() {
                session.lose(&CloseReason::Polluted(suspects.to_string()));
            }
            again |= session.hand_out(&open.session, now, wake);
        }
        again
    }

    /// A hop is established. At an end that listens it gets a session.
    fn on_connected(&mut self, now: Time, handle: ConnectionHandle, hops: &Hops) {
        if let Some(open) = self.open.get_mut(&handle) {
            open.is_connected = true;
            return;
        }
        let Some(hop) = self.hops.connection_mut(handle) else { return };
        if self.is_closed {
            return hop.close(now, CloseCode::Refused, "the end is closed");
        }
        let seed = crate::random().ok();
        let Some((config, seed)) = self.session.clone().zip(seed) else {
            return hop.close(now, CloseCode::Internal, "no session can be made");
        };
        let session = Endpoint::new(config, seed);
        let session = Arc::new(Shared::new(session, hop.remote(), hops.clock, Arc::clone(&hops.changed)));
        let open = Open { end: relay::End::new(hop.remote()), session, is_connected: true };
        self.open.insert(handle, open);
    }

    /// A hop is over, so the session over it is lost.
    fn on_closed(&mut self, handle: ConnectionHandle, reason: CloseReason, hops: &Hops, wake: &mut Vec<Waker>) {
        if let Some(hop) = self.hops.connection(handle) {
            self.passed += hop.relay_stats();
        }
        if let Some(open) = self.open.remove(&handle) {
            wake.extend(open.session.lock().stop(&CloseReason::Hop(Box::new(reason))));
            hops.changed.notify_waiters();
        }
    }

    /// Closes all hops. Returns whether there was one to close.
    fn close_hops(&mut self, now: Time) -> bool {
        let handles: Vec<_> = self.open.keys().copied().collect();
        for handle in &handles {
            if let Some(hop) = self.hops.connection_mut(*handle) {
                hop.close(now, CloseCode::Done, "");
            }
        }
        !handles.is_empty()
    }
}
