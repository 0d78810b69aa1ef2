//! An endpoint: one address with any number of connections, which the connection id in each datagram tells
//! apart.
//!
//! It owns what a socket needs besides its connections: the responder (if it listens), half-open sessions,
//! ids, and inquiries about silent peers. Strangers get no response: a datagram that names no connection, or
//! lacks the right MAC, is counted by reason and dropped.

mod connections;
mod dropped;
mod half_open;
mod inquiry;
mod placement;
mod shard;

use core::fmt;
use core::net::SocketAddr;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::Time;
use crate::config::Config;
use crate::connection::{
    CloseCode, Connection, Event, Job, JobDone, Received, SendFailure, Side, Transmit, WakeReason,
};
use crate::counts::add_counts;
use crate::crypto::{Provider, PublicKey, Sealer};
use crate::handshake::{
    Credentials, Initiator, Parameters, PeerKeyError, Renewal, Responder, ResponderStats, Route, Unauthorized,
};
pub use crate::ids::ConnectionHandle;
use crate::lane::INITIAL_CREDIT;
use crate::wire::{ConnectionId, Datagram, LongKind};
use connections::Connections;
use dropped::Dropped;
use half_open::{Asked, HalfOpen};
use inquiry::Inquiries;
pub use placement::Handover;
pub use shard::Shard;

/// Configuration of an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    /// The keys that authenticate this end, and the peers that it admits.
    pub credentials: Credentials,
    /// Whether to answer HELLOs.
    pub listen: bool,
    /// Configuration of each connection.
    pub connection: Config,
    /// Provider of the ciphers.
    pub provider: Arc<dyn Provider>,
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("listen", &self.listen)
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}

/// Counts of datagrams that reached no connection, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// All datagrams received.
    pub received: u64,
    /// Not a Tidewire packet.
    pub malformed: u64,
    /// Addressed to an unknown id.
    pub unknown: u64,
    /// Handshake packets that answer nothing, arrive while this end does not listen, or lack the right MAC.
    pub strangers: u64,
    /// HELLOs that this end handled.
    pub hellos: ResponderStats,
    /// Answers to HELLOs, and inquiries, that the system refused to send.
    pub refused_by_system: u64,
    /// HELLOs and first packets that arrived while there was no room for another connection.
    pub full: u64,
    /// Half-open sessions that newer ones replaced.
    pub displaced: u64,
    /// Datagrams that the driver of this shard's socket passed to another shard. They are not counted as
    /// received here.
    pub passed_on: u64,
    /// Datagrams for another shard that were dropped because that shard could not keep up.
    pub overrun: u64,
    /// Results of jobs whose connections were closed.
    pub late_results: u64,
}

add_counts!(EndpointStats {
    received,
    malformed,
    unknown,
    strangers,
    hellos,
    refused_by_system,
    full,
    displaced,
    passed_on,
    overrun,
    late_results,
});

/// The connection whose datagrams of a train are being handled.
#[derive(Clone, Copy)]
struct Current {
    id: ConnectionId,
    handle: ConnectionHandle,
    /// When the train arrived.
    at: Time,
}

/// One address with its connections; see the module.
pub struct Endpoint {
    credentials: Credentials,
    provider: Arc<dyn Provider>,
    config: Arc<Config>,
    parameters: Parameters,
    responder: Option<Responder>,
    rng: ChaCha20Rng,
    shard: Shard,
    connections: Connections,
    half_open: HalfOpen,
    inquiries: Inquiries,
    ids: HashMap<ConnectionId, ConnectionHandle>,
    stats: EndpointStats,
    /// The connection that sent the last datagrams, if a connection did.
    sent_by: Option<ConnectionHandle>,
    /// Everything that arrived before this time was passed in.
    read: Time,
    dropped: Dropped,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("connections", &self.connections.len())
            .field("half_open", &self.half_open.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Creates an endpoint. `seed` is 32 bytes that nobody else knows; all randomness of the endpoint is
    /// derived from it.
    pub fn new(config: EndpointConfig, seed: [u8; 32]) -> Self {
        let mut rng = ChaCha20Rng::from_seed(seed);
        let mut responder_seed = [0; 32];
        rng.fill_bytes(&mut responder_seed);
        let responder = config
            .listen
            .then(|| Responder::new(config.credentials.clone(), Arc::clone(&config.provider), responder_seed));
        Self {
            parameters: parameters(&config.connection),
            credentials: config.credentials,
            provider: config.provider,
            responder,
            rng,
            shard: Shard::ALONE,
            connections: Connections::new(config.connection.limits.max_memory),
            config: Arc::new(config.connection),
            half_open: HalfOpen::default(),
            inquiries: Inquiries::default(),
            ids: HashMap::new(),
            stats: EndpointStats::default(),
            sent_by: None,
            read: Time::NEVER,
            dropped: Dropped::default(),
        }
    }

    /// Makes this one of several endpoints at one address. [`Shard::of_id`] maps each id of this endpoint to
    /// it.
    #[must_use]
    pub fn with_shard(mut self, shard: Shard) -> Self {
        self.shard = shard;
        self
    }

    /// Whether `id` names a connection or a half-open session of this endpoint.
    pub fn knows(&self, id: &ConnectionId) -> bool {
        self.ids.contains_key(id) || self.half_open.contains(id)
    }

    /// Whether there is no room for another connection.
    fn is_full(&self) -> bool {
        self.connections.len() >= self.config.limits.max_connections || self.connections.is_short()
    }

    fn fresh_id(&mut self) -> ConnectionId {
        loop {
            let mut id = ConnectionId([0; 8]);
            self.rng.fill_bytes(&mut id.0);
            self.shard.mark(&mut id);
            if !self.knows(&id) {
                return id;
            }
        }
    }

    fn insert(&mut self, connection: Connection) -> ConnectionHandle {
        let ids: Vec<_> = connection.local_ids().collect();
        let handle = self.connections.insert(connection);
        self.ids.extend(ids.into_iter().map(|id| (id, handle)));
        self.refresh_ids(handle);
        handle
    }

    /// Gives a connection the spare ids that it wants, and forgets the ids that it no longer has.
    fn refresh_ids(&mut self, handle: ConnectionHandle) {
        while self.connections.get(handle).is_some_and(Connection::wants_id) {
            let id = self.fresh_id();
            self.ids.insert(id, handle);
            self.connections.touch(handle).into_iter().for_each(|connection| connection.give_id(id));
        }
        while let Some(id) = self.connections.touch(handle).and_then(Connection::poll_gone_id) {
            self.ids.remove(&id);
        }
    }

    fn fresh_seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        seed
    }

    /// Starts to connect to a peer that knows the same secret. [`Event::Connected`] or [`Event::Closed`]
    /// tells the result.
    ///
    /// # Errors
    /// Fails if our credentials are a key pair: use [`Self::connect_to`].
    pub fn connect(&mut self, now: Time, remote: SocketAddr) -> Result<ConnectionHandle, PeerKeyError> {
        self.begin(now, remote, None)
    }

    /// Starts to connect to the peer with this public key. [`Event::Connected`] or [`Event::Closed`] tells
    /// the result.
    ///
    /// # Errors
    /// Fails if our credentials are a secret: use [`Self::connect`].
    pub fn connect_to(
        &mut self,
        now: Time,
        remote: SocketAddr,
        peer: &PublicKey,
    ) -> Result<ConnectionHandle, PeerKeyError> {
        self.begin(now, remote, Some(peer))
    }

    fn begin(
        &mut self,
        now: Time,
        remote: SocketAddr,
        peer: Option<&PublicKey>,
    ) -> Result<ConnectionHandle, PeerKeyError> {
        let keys = self.credentials.to_connect(peer)?;
        let exchange_keys = keys.clone();
        let (id, seed, provider) = (self.fresh_id(), self.fresh_seed(), Arc::clone(&self.provider));
        let initiator = Initiator::new(keys, id, &self.parameters, provider, seed, now)
            .give_up_after(self.config.timing.handshake_timeout)
            .log_keys(self.config.key_log.clone());
        let grease = self.rng.next_u64();
        let mut connection = Connection::connect(Arc::clone(&self.config), initiator, id, remote, now, grease);
        connection.seed(self.fresh_seed());
        connection.trace_as(self.connections.next_handle());
        connection.allow_exchanges(Renewal::new(exchange_keys, Arc::clone(&self.provider), self.fresh_seed()));
        Ok(self.insert(connection))
    }

    /// Tells that this host dropped `count` datagrams before it passed in the next one, which arrived at
    /// `at`: its socket was full. Connections that miss packets then report them to their peers as
    /// congestion (docs/wire.md section 5, HOST_DROPS).
    pub fn handle_host_drops(&mut self, at: Time, count: u64) {
        self.dropped.add(at, count);
    }

    /// Handles a received datagram.
    pub fn handle_datagram(&mut self, received: Received<'_>) {
        self.handle_train(core::iter::once(received));
    }

    /// Handles datagrams that arrived together. The state that an endpoint keeps about a connection is
    /// brought up to date once for all datagrams in a row that belong to it, not for each.
    pub fn handle_train<'a>(&mut self, train: impl IntoIterator<Item = Received<'a>>) {
        let mut current: Option<Current> = None;
        for received in train {
            self.stats.received += 1;
            self.dropped.forget(received.at);
            let Some(id) = self.handle_long(&received) else { continue };
            if let Some(current) = current.filter(|current| current.id == id)
                && let Some(connection) = self.connections.get_mut(current.handle)
            {
                connection.handle_datagram_after(received, &mut self.dropped.count);
                continue;
            }
            self.settle(current.take());
            if let Some(&handle) = self.ids.get(&id)
                && let Some(connection) = self.connections.touch(handle)
            {
                current = Some(Current { id, handle, at: received.at });
                connection.handle_datagram_after(received, &mut self.dropped.count);
            } else {
                self.handle_first(id, received);
            }
        }
        self.settle(current);
    }

    /// Handles a datagram unless it is for a connection. Returns the id of a connection to which it is
    /// addressed.
    fn handle_long(&mut self, received: &Received<'_>) -> Option<ConnectionId> {
        match Datagram::parse(received.datagram) {
            Ok(Datagram::Short { destination }) => return Some(destination),
            Ok(Datagram::Long(header)) if header.kind == LongKind::Hello => {
                let known = self.knows(&header.destination);
                let (full, own) = (self.is_full(), self.shard);
                self.handle_hello(received, known, full, || own);
            }
            Ok(Datagram::Long(header)) if self.ids.contains_key(&header.destination) => {
                return Some(header.destination);
            }
            Ok(Datagram::Long(header)) => {
                let answered = self.handle_answer(received.at, header.destination, received.datagram);
                self.stats.strangers += u64::from(!answered);
            }
            Err(_) => self.stats.malformed += 1,
        }
        None
    }

    /// Accounts for the memory and the ids of a connection that has handled datagrams.
    fn settle(&mut self, current: Option<Current>) {
        let Some(Current { handle, at, .. }) = current else { return };
        self.bound_memory(at, handle);
        self.refresh_ids(handle);
    }

    /// Accounts for the memory of a connection. Closes it if it grew beyond its part while memory is short.
    pub(crate) fn bound_memory(&mut self, now: Time, handle: ConnectionHandle) {
        if self.connections.measure(handle) {
            self.connections.touch(handle).into_iter().for_each(|connection| connection.refuse_memory(now));
            self.connections.measure(handle);
        }
    }

    /// Makes a connection from a half-open session when the first packet under its keys arrives.
    fn handle_first(&mut self, destination: ConnectionId, received: Received<'_>) {
        let Some((accepted, Asked { route, at, alone })) = self.half_open.get(&destination) else {
            self.stats.unknown += 1;
            return;
        };
        if accepted.peer_key().is_some_and(|key| !self.credentials.authorizes(key)) {
            self.stats.unknown += 1;
            return self.half_open.remove(&destination);
        }
        if self.is_full() {
            self.stats.full += 1;
            return;
        }
        // Anyone who saw the id can send to it, so no state is made before a copy of the packet was
        // decrypted.
        let opened = accepted.session(&self.provider).opening.open(0, &mut received.datagram.to_vec());
        if opened.is_err() {
            self.stats.unknown += 1;
            return;
        }
        let session = accepted.logged_session(&self.provider, Sealer::Responder, self.config.key_log.as_ref());
        let grease = self.rng.next_u64();
        // A peer with the keys received the REPLY. If the REPLY was sent to one address only, a packet from
        // that address validates it.
        let proven = alone && received.from == route.remote;
        let route = Route { remote: received.from, local: received.to };
        let mut connection = Connection::accept(Arc::clone(&self.config), session, route, at, grease);
        // Seed it before it handles the packet, because the peer must not be able to guess a challenge.
        connection.seed(self.fresh_seed());
        connection.trace_as(self.connections.next_handle());
        let seed = self.fresh_seed();
        if let Some(responder) = &self.responder {
            let keys = responder.keys().clone();
            connection.allow_exchanges(Renewal::new(keys, Arc::clone(&self.provider), seed));
        }
        if !proven {
            connection.distrust_address();
        }
        connection.handle_datagram(received);
        self.half_open.remove(&destination);
        self.insert(connection);
    }

    /// From now on admits only peers with one of these keys. Connections accepted from other peers are closed
    /// ([`CloseCode::Refused`]). Has no effect with authentication `psk`.
    pub fn authorize(&mut self, now: Time, keys: Arc<BTreeSet<PublicKey>>) {
        self.credentials.authorize(Arc::clone(&keys));
        let Some(responder) = &mut self.responder else { return };
        responder.authorize(keys);
        self.connections.touch_all(|connection| {
            let revoked = connection.peer_key().is_some_and(|key| !self.credentials.authorizes(&key));
            if revoked && connection.side() == Side::Responder {
                connection.close(now, CloseCode::Refused, "this key is not authorized any more");
            }
        });
    }

    /// The next peer that was refused because of its key. A few are kept; each copy of its HELLO is reported
    /// separately.
    pub fn poll_unauthorized(&mut self) -> Option<Unauthorized> {
        self.responder.as_mut()?.poll_unauthorized()
    }

    /// Number of sessions that were answered and whose peers have not been heard since.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Tells that every datagram that arrived before `until` was passed in, and that later ones may wait to
    /// be read. What is done because nothing came, is done for times before `until` only: losses, probes,
    /// FEEDBACK that waits for a second packet, ends of silent connections. A host that reads late
    /// therefore does not take its own delay for silence. An endpoint that was never told takes all as
    /// read.
    pub fn handle_read(&mut self, until: Time) {
        self.read = until;
    }

    /// Handles the passage of time. Early calls are harmless. If the driver tells [`Self::handle_read`],
    /// timers that it has not read up to stay due, and [`Self::poll_timeout`] may be past: read, then call
    /// again.
    pub fn handle_timeout(&mut self, now: Time) {
        // All that these timers do can wait until the news that came before they expired was read.
        let now = now.min(self.read);
        self.half_open.expire(now);
        if let Some(responder) = &mut self.responder {
            responder.handle_timeout(now);
        }
        self.connections.read_timers();
        while let Some((handle, connection)) = self.connections.poll_expired(now) {
            connection.handle_timeout(now);
            if connection.take_inquiry() {
                self.inquiries.ask(handle);
            }
            self.connections.on_end(handle);
        }
    }

    /// Tells all connections that packets are sent from another address from now on; see
    /// [`Connection::handle_address_change`].
    pub fn handle_address_change(&mut self, now: Time) {
        self.connections.touch_all(|connection| connection.handle_address_change(now));
    }

    /// Writes datagrams to send now; see [`Connection::poll_transmit`].
    pub fn poll_transmit(&mut self, now: Time, max_segments: usize, out: &mut [u8]) -> Option<Transmit> {
        self.sent_by = None;
        if let Some((Route { remote: destination, local: source }, len)) =
            self.responder.as_mut().and_then(|responder| responder.poll_transmit(now, out))
        {
            return Some(Transmit { destination, source, ecn: None, len, segment_size: None });
        }
        if self.inquiries.is_due()
            && let Some(transmit) = self.transmit_inquiry(now, out)
        {
            return Some(transmit);
        }
        let (handle, transmit) = self.connections.poll_transmit(now, self.read, max_segments, out)?;
        self.sent_by = Some(handle);
        Some(transmit)
    }

    /// Called when the socket refused `transmit`, the result of the last [`Self::poll_transmit`]. The
    /// datagrams count as lost, and the next may be sent.
    pub fn handle_send_failure(&mut self, now: Time, transmit: &Transmit, failure: SendFailure) {
        let Some(handle) = self.sent_by else {
            self.stats.refused_by_system += 1;
            return;
        };
        if let Some(connection) = self.connections.touch(handle) {
            connection.handle_send_failure(now, transmit, failure);
        }
    }

    /// The next event, and its connection. When there are no more, connections that have finished closing are
    /// dropped; call [`Self::poll_ended`] before to keep one.
    pub fn poll_event(&mut self) -> Option<(ConnectionHandle, Event)> {
        let event = self.connections.poll_event();
        if event.is_none() {
            while self.poll_ended().is_some() {}
        }
        event
    }

    /// Removes and returns a connection that has finished closing, so that its received data can still be
    /// read. A connection that ends with [`Event::Closed`] is available right after that event. A connection
    /// that still has to tell its peer is available after a [`Self::handle_timeout`]; read its last events
    /// from the connection itself.
    pub fn poll_ended(&mut self) -> Option<(ConnectionHandle, Connection)> {
        let (handle, connection) = self.connections.poll_ended()?;
        for id in connection.local_ids() {
            self.ids.remove(&id);
        }
        self.inquiries.forget(handle);
        Some((handle, connection))
    }

    /// The next coding job, and its connection; always `None` if [`Config::workers`] is 0. Any thread may run
    /// the job. Pass its result to [`Self::handle_job`]; results may come in any order. Jobs that are not
    /// polled wait in their connection.
    pub fn poll_job(&mut self) -> Option<(ConnectionHandle, Job)> {
        self.connections.poll_job()
    }

    /// Takes the result of a job. The result for a closed connection is dropped and counted.
    pub fn handle_job(&mut self, now: Time, handle: ConnectionHandle, done: JobDone) {
        let connection = self.connections.touch(handle);
        let is_wanted = connection.is_some_and(|connection| connection.handle_job(now, done));
        self.stats.late_results += u64::from(!is_wanted);
    }

    /// When to call [`Self::handle_timeout`] if nothing else happens before, and why.
    pub fn poll_timeout(&mut self) -> Option<(Time, WakeReason)> {
        let responder = self.responder.as_ref().and_then(Responder::poll_timeout);
        let half_open = self.half_open.poll_timeout();
        let own = responder.into_iter().chain(half_open).map(|at| (at, WakeReason::Handshake));
        let timers = self.connections.poll_timeout();
        own.chain(timers).min_by_key(|&(at, _)| at)
    }

    /// A connection that has not finished closing.
    pub fn connection(&self, handle: ConnectionHandle) -> Option<&Connection> {
        self.connections.get(handle)
    }

    /// A connection that has not finished closing. The contract of [`Connection`] holds: after a change, poll
    /// the endpoint.
    pub fn connection_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        self.connections.touch(handle)
    }

    /// All connections that have not finished closing.
    pub fn connections(&self) -> impl Iterator<Item = (ConnectionHandle, &Connection)> {
        self.connections.iter()
    }

    /// Counts of datagrams that reached no connection.
    pub fn stats(&self) -> EndpointStats {
        let hellos = self.responder.as_ref().map(|responder| *responder.stats()).unwrap_or_default();
        EndpointStats { hellos, strangers: self.stats.strangers + hellos.strangers + hellos.malformed, ..self.stats }
    }

    /// How often the endpoint has visited one of its connections: a measure of its work that does not depend
    /// on the machine.
    pub fn visits(&self) -> u64 {
        self.connections.visits()
    }
}

/// The parameters that this end announces in the handshake.
fn parameters(config: &Config) -> Parameters {
    let clamp32 = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    Parameters {
        max_datagram: config.packets.max_datagram,
        max_symbol: u16::try_from(config.slot_len()).unwrap_or(u16::MAX).min(crate::wire::MAX_SYMBOL as u16),
        lane_credit: INITIAL_CREDIT as u32,
        max_span: config.repair.max_span,
        stream_credit: clamp32(config.limits.stream_window),
        streams: clamp32(config.limits.max_streams),
        idle_timeout_ms: clamp32(config.timing.idle_timeout.as_millis() as u64),
        ..Parameters::default()
    }
}
