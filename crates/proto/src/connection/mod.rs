//! One connection: dispatches between the driver, the path, the lanes and the streams.
//!
//! The driver's contract: after any `&mut self` call, drain [`Connection::poll_transmit`], then
//! [`Connection::poll_event`], then read [`Connection::poll_timeout`]; only then wait. Each concern has a
//! file or folder: `receive` (incoming frames), `feedback` (FEEDBACK in both directions), `send/` (choosing
//! what a packet carries, and writing it), `lanes` (which lane fills it), `timers`, `slices` (symbols longer
//! than the path MTU), `app` (streams), `messages`, `relayed` (the relayed lane of a hop), `memory`,
//! `migration` (addresses and ids), `keys`, `rekey` (fresh keys), `policy` (how the peer should code),
//! `driving` (types that the driver passes in and gets back).

mod app;
mod carried;
mod driving;
mod feedback;
mod jobs;
mod keys;
mod lanes;
mod memory;
mod messages;
mod migration;
mod policy;
mod receive;
mod rekey;
mod relayed;
mod send;
mod slices;
#[cfg(all(test, feature = "aws-lc-rs"))]
mod tests;
mod timers;
mod traced;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub use app::{OpenError, ReadError, WriteError};
pub use driving::{Received, SendFailure, Transmit, WakeReason};
pub use jobs::{Job, JobDone};
pub use messages::{LaneConfig, LaneError, MessageError, Outgoing};

pub use crate::close::{CloseCode, CloseReason};
pub use crate::event::Event;
pub use crate::ids::{LaneId, Side, StreamId};
pub use crate::lane::Message;

use crate::Time;
use crate::config::Config;
use crate::crypto::PublicKey;
use crate::handshake::{Initiator, Route, Session};
use crate::ids::ConnectionHandle;
use crate::lane::{LaneReceiver, LaneSender, STREAMS, Streams};
use crate::path::{FeedbackClock, MtuProber, OurIds, Path, Validation};
use crate::profile::Profile;
use crate::recode::Recoding;
use crate::stats::{RateStats, Stats};
use crate::trace::{TraceEvent, Tracer};
use crate::wire::{ConnectionId, code_name};
use carried::Data;
use keys::SessionKeys;
use lanes::{Inbound, Lanes, lane_receiver};
use policy::{Asking, Hearing};
use rekey::Rekey;
use traced::Written;

/// State of a connection.
#[derive(Debug)]
enum State {
    /// HELLOs are being sent.
    Connecting(Box<Initiator>),
    /// Keys are agreed. A responder still waits for the first authentic packet.
    Established {
        confirmed: bool,
    },
    /// This end closed the connection. CLOSE is repeated until `until`, which is counted from the first CLOSE
    /// sent, however late that was.
    Closing {
        code: CloseCode,
        reason: String,
        next: Time,
        until: Option<Time>,
    },
    /// The peer closed the connection. Nothing is sent any more.
    Draining {
        until: Time,
    },
    Closed,
}

/// What both ends agreed, or still have to agree.
#[derive(Debug)]
struct Agreed {
    /// The profile of the configuration, changed as the peer asked.
    profile: Profile,
    asking: Asking,
    hearing: Hearing,
    /// Longest span that the peer decodes.
    max_span: u16,
    /// Longest symbol that the peer accepts, in bytes.
    symbol_limit: usize,
    /// Number of symbols of each lane that the peer accepts from the start.
    lane_credit: u64,
    idle_timeout: Duration,
}

/// The addresses and connection ids of both ends.
#[derive(Debug)]
struct Addresses {
    /// The connection ids by which the peer addresses us.
    ids: OurIds,
    /// Addresses at which the peer may be now, and their validation.
    validation: Validation,
    /// Response to the peer's challenge, to be sent to the address in use.
    path_response: Option<[u8; 8]>,
}

/// Keys, and who has them.
#[derive(Debug)]
struct Security {
    keys: Option<SessionKeys>,
    rekey: Rekey,
    /// The public key that the peer proved to own, with authentication `key`.
    peer_key: Option<PublicKey>,
}

/// When the two ends last heard of each other.
#[derive(Debug)]
struct Contact {
    last_heard: Time,
    /// When `poll_transmit` was last called. Everything that was allowed then has been sent.
    last_asked: Time,
    /// Everything that arrived before this time was passed in ([`crate::endpoint::Endpoint::handle_read`]).
    read: Time,
    /// True if the endpoint must ask whether the peer still knows this connection.
    inquiry_owed: bool,
}

/// What arrives on lanes.
#[derive(Debug)]
struct Receiving {
    /// Receiver of lane 0.
    receiver: LaneReceiver,
    /// The peer's lanes of messages.
    inbound: BTreeMap<u32, Inbound>,
    /// The application was told that a message is waiting, and has not yet read all waiting messages.
    told_message: bool,
    /// When a symbol was last received. `None` once a probe has asked why no further one arrives.
    heard_symbol: Option<Time>,
    /// Bytes received since the last FEEDBACK was sent.
    unreported: u64,
    /// When FEEDBACK last requested an acknowledgement of credit.
    credit_asked: Time,
    /// Packets that this host dropped before they were read, as far as known.
    host_drops: u64,
}

/// Values kept only to save work.
#[derive(Debug)]
struct Scratch {
    /// Buffers for the packet numbers of one FEEDBACK, kept so that the steady state allocates nothing.
    acked: Vec<u64>,
    lost: Vec<u64>,
    /// Bits for greasing. Any sequence will do.
    grease: u64,
    /// What the application wrote since the driver last looked, for the trace.
    written: Vec<Written>,
}

/// A connection to one peer.
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    agreed: Agreed,
    side: Side,
    state: State,
    addresses: Addresses,
    security: Security,
    contact: Contact,
    path: Path<Data>,
    lanes: Lanes,
    receiving: Receiving,
    streams: Streams,
    events: VecDeque<Event>,
    scratch: Scratch,
    stats: Stats,
    tracer: Tracer,
}

impl Connection {
    /// Creates the initiator's end, which sends HELLOs at once.
    pub(crate) fn connect(
        config: Arc<Config>,
        initiator: Initiator,
        local_id: ConnectionId,
        remote: SocketAddr,
        now: Time,
        grease: u64,
    ) -> Self {
        Self::new(config, Side::Initiator, State::Connecting(Box::new(initiator)), local_id, remote, now, grease)
    }

    /// Creates the responder's end from an authentic HELLO.
    pub(crate) fn accept(config: Arc<Config>, session: Session, route: Route, now: Time, grease: u64) -> Self {
        let state = State::Established { confirmed: false };
        let mut connection = Self::new(config, Side::Responder, state, session.local, route.remote, now, grease);
        connection.path.local = route.local;
        connection.adopt(now, session);
        connection
    }

    fn new(
        config: Arc<Config>,
        side: Side,
        state: State,
        local_id: ConnectionId,
        remote: SocketAddr,
        now: Time,
        grease: u64,
    ) -> Self {
        let slot_len = config.slot_len();
        let mtu = MtuProber::new(config.packets.base, config.packets.max_datagram, config.packets.probe_size);
        // Only the initiator repeats its last FEEDBACK: its address may change unnoticed, the responder's
        // does not.
        let feedback = FeedbackClock::new(side == Side::Initiator);
        let path = Path::new(remote, now, mtu, config.profile.rate_control.build(), feedback);
        let (memory, span) = (config.limits.ring_memory, config.repair.max_span);
        let sender = LaneSender::new(config.profile.layout, span, slot_len, memory, 0);
        let limits = &config.limits;
        let mut lanes = Lanes::new(sender, config.profile.redundancy);
        lanes.recoding = config.relaying.map(|relaying| Box::new(Recoding::new(relaying, grease)));
        Self {
            agreed: Agreed {
                profile: config.profile,
                asking: Asking::default(),
                hearing: Hearing::Over,
                max_span: span,
                symbol_limit: slot_len,
                lane_credit: 0,
                idle_timeout: config.timing.idle_timeout,
            },
            side,
            state,
            addresses: Addresses {
                ids: OurIds::new(local_id),
                validation: Validation::new([0; 32]),
                path_response: None,
            },
            security: Security { keys: None, rekey: Rekey::new(now), peer_key: None },
            contact: Contact { last_heard: now, last_asked: now, read: Time::NEVER, inquiry_owed: false },
            path,
            lanes,
            receiving: Receiving {
                receiver: lane_receiver(&config, STREAMS, memory),
                inbound: BTreeMap::new(),
                told_message: false,
                heard_symbol: None,
                unreported: 0,
                credit_asked: Time::ZERO,
                host_drops: 0,
            },
            streams: Streams::new(side, limits.max_streams, limits.stream_window, limits.max_stream_window),
            events: VecDeque::new(),
            scratch: Scratch { acked: Vec::new(), lost: Vec::with_capacity(LOST_AT_ONCE), grease, written: Vec::new() },
            stats: Stats::default(),
            tracer: Tracer::default(),
            config,
        }
    }

    /// Takes the keys and the peer's parameters from a finished handshake. If the peer does not decode our
    /// code, the connection closes: a different code would not be what the user asked for.
    fn adopt(&mut self, now: Time, session: Session) {
        let peer = &session.peer;
        let code = self.agreed.profile.code;
        let is_code_known = peer.codes.contains(code);
        self.path.mtu.limit_to(peer.max_datagram);
        self.agreed.lane_credit = peer.lane_credit.into();
        self.agreed.max_span = self.agreed.max_span.min(peer.max_span);
        let (layout, span) = (self.agreed.profile.layout, self.agreed.max_span);
        self.receiving.receiver.limit_span(span);
        let sender = LaneSender::new(
            layout,
            span,
            self.config.slot_len(),
            self.config.limits.ring_memory,
            self.agreed.lane_credit,
        );
        let recoding = self.lanes.recoding.take();
        self.lanes = Lanes::new(sender, self.agreed.profile.redundancy);
        self.lanes.recoding = recoding;
        self.agreed.symbol_limit = self.agreed.symbol_limit.min(peer.max_symbol.into());
        self.streams.set_peer_limits(peer.streams.into(), peer.stream_credit.into());
        if peer.idle_timeout_ms > 0 {
            self.agreed.idle_timeout = self.agreed.idle_timeout.min(Duration::from_millis(peer.idle_timeout_ms.into()));
        }
        self.begin_policy(session.peer.codes);
        self.security.peer_key = session.peer_key;
        self.security.rekey.on_session(self.contact.last_heard);
        self.security.keys = Some(SessionKeys::new(session, self.contact.last_heard));
        if !is_code_known {
            let name = code_name(code);
            self.start_closing(
                now,
                CloseCode::Refused,
                format!("this end codes with {name}, which the other does not decode"),
            );
            self.tell_closed(now, CloseReason::UnknownCode(name));
        }
    }

    /// Handles a datagram whose destination id belongs to this connection.
    pub fn handle_datagram(&mut self, received: Received<'_>) {
        self.receive(received, &mut 0);
    }

    /// Handles a datagram that arrived after this host has dropped others, of this connection or not. Takes
    /// off those that are missing here.
    pub(crate) fn handle_datagram_after(&mut self, received: Received<'_>, dropped: &mut u64) {
        self.receive(received, dropped);
    }

    /// Tells that all that arrived before `until` was passed in.
    pub(crate) fn handle_read(&mut self, until: Time) {
        self.contact.read = until;
    }

    /// Handles the passage of time. Early calls are harmless.
    pub fn handle_timeout(&mut self, now: Time) {
        self.expire(now);
    }

    /// Writes datagrams to send now into `out`: at most `max_segments` of one size. Returns `None` if there
    /// is nothing to send.
    ///
    /// `out` must hold `max_segments` of the largest datagram ([`Config::max_datagram`]).
    pub fn poll_transmit(&mut self, now: Time, max_segments: usize, out: &mut [u8]) -> Option<Transmit> {
        self.tell_written(now);
        self.transmit(now, max_segments, out)
    }

    /// The next event for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.streams.poll_event())
    }

    /// When to call [`Self::handle_timeout`] if nothing else happens before, and why.
    pub fn poll_timeout(&mut self) -> Option<(Time, WakeReason)> {
        self.next_timer()
    }

    /// The statistics so far.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        (stats.rtt.least, stats.rtt.mean) = self.path.rtt.lowest_and_mean();
        (stats.rtt.latest, stats.rtt.samples) = (self.path.rtt.latest(), self.path.rtt.samples());
        stats.loss.rate = self.path.losses.estimator.overall();
        stats.loss.runs = self.path.losses.runs.clone();
        (stats.packets.reordered, stats.packets.reordering_depth) = self.path.received.reordering();
        let estimate = self.path.losses.estimator.estimate();
        (stats.loss.recent, stats.loss.mean_burst) = (estimate.rate, estimate.burst);
        stats.loss.floor = self.path.rate.seen().stats();
        stats.rate = RateStats {
            state: self.path.rate.state(),
            pacing_bps: self.pacing().saturating_mul(8),
            window: self.path.rate.budget().window,
        };
        stats.datagram_size = self.path.mtu.current();
        stats.delay = self.receiving.receiver.delay.clone();
        for receiver in self.receiving.inbound.values().map(|inbound| &inbound.receiver) {
            stats.delay.merge(&receiver.delay);
        }
        for receiver in [&self.receiving.receiver]
            .into_iter()
            .chain(self.receiving.inbound.values().map(|inbound| &inbound.receiver))
        {
            stats.symbols += receiver.symbols;
            stats.packets.redundant += receiver.redundant;
        }
        stats.plan = self.lanes.get(STREAMS).and_then(|lane| lane.policies.plan().copied());
        self.count_messages(&mut stats.messages);
        stats
    }

    /// Number of blocks and repairs in flight that the policies of this connection have looked at. Tests show
    /// that it grows with the number of packets, whatever the peer does.
    pub fn looks(&self) -> u64 {
        self.lanes.iter().map(|(_, lane)| lane.sender.repairs().looks()).sum()
    }

    /// The side of this end.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The address to which packets are sent.
    pub fn remote(&self) -> SocketAddr {
        self.path.remote
    }

    /// The public key that the peer proved to own. `None` with authentication `psk`, and before the handshake
    /// is over.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.security.peer_key
    }

    /// Datagrams that looked like packets of this session and were forged or repeated.
    pub(crate) fn refused_tags(&self) -> u64 {
        self.stats.packets.refused_tags
    }

    /// Whether keys are agreed and the peer has proved that it has them.
    pub fn is_established(&self) -> bool {
        matches!(self.state, State::Established { confirmed: true })
    }

    /// Whether the connection is over and can be dropped.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Closes the connection and tells the peer. Does not wait until written data has arrived.
    pub fn close(&mut self, now: Time, code: CloseCode, reason: &str) {
        match self.state {
            State::Established { .. } => {
                self.start_closing(now, code, reason.to_owned());
                self.tell_closed(now, CloseReason::Local);
            }
            State::Connecting(_) => self.end(now, CloseReason::Local),
            State::Closing { .. } | State::Draining { .. } | State::Closed => {}
        }
    }

    /// Closes the connection because the peer broke the protocol.
    fn fault(&mut self, now: Time, code: CloseCode) {
        if matches!(self.state, State::Established { .. }) {
            self.start_closing(now, code, String::new());
            self.tell_closed(now, CloseReason::Fault(code));
        }
    }

    fn start_closing(&mut self, now: Time, code: CloseCode, mut reason: String) {
        while reason.len() > crate::wire::MAX_TEXT {
            reason.pop();
        }
        self.state = State::Closing { code, reason, next: now, until: None };
    }

    fn end(&mut self, now: Time, reason: CloseReason) {
        self.state = State::Closed;
        self.tell_closed(now, reason);
    }

    fn tell_connected(&mut self, now: Time) {
        self.events.push_back(Event::Connected);
        self.tracer.record(now, || TraceEvent::Connected { remote: self.path.remote, side: self.side });
        self.tracer.record(now, || self.choices());
    }

    fn tell_closed(&mut self, now: Time, reason: CloseReason) {
        self.tracer.record(now, || TraceEvent::Closed(reason.clone()));
        self.events.push_back(Event::Closed(reason));
    }

    /// Sets the trace of this connection. Called before the connection handles anything.
    pub(crate) fn trace_as(&mut self, handle: ConnectionHandle) {
        self.tracer = Tracer::new(self.config.trace.clone(), handle);
        self.receiving.receiver.trace.trace_with(&self.tracer);
    }

    /// The pacing rate in bytes per second.
    fn pacing(&self) -> u64 {
        let pacing = self.path.rate.budget().pacing;
        self.config.max_rate.map_or(pacing, |bits| pacing.min(bits / 8))
    }
}

/// Number of losses that one FEEDBACK can report without more memory: a burst at the rate at which FEEDBACK
/// arrives. Chosen.
const LOST_AT_ONCE: usize = 64;
/// Duration of closing, in probe timeouts (RFC 9000 section 10.2).
const CLOSING_TIMEOUTS: u32 = 3;
