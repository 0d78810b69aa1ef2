//! One connection: dispatch between the driver, the path, the lane and the streams.
//!
//! The driver's contract (front page of the crate): after any `&mut self` call drain
//! [`Connection::poll_transmit`], then [`Connection::poll_event`], then read [`Connection::poll_timeout`];
//! only then wait. Each concern has a file: `receive` (frames in), `feedback` (what comes back and what goes
//! back), `send` (what fills a slot), `lanes` (whose turn it is to fill it), `timers`, `slices` (symbols
//! longer than the path takes), `app` (streams), `messages`, `memory`, `moving` (addresses and ids), `keys`,
//! `exchange` (fresh keys), `policy` (how the peer is to code), `driving` (what a driver hands in and takes
//! out).

mod app;
mod carried;
mod driving;
mod exchange;
mod feedback;
mod jobs;
mod keys;
mod lanes;
mod memory;
mod messages;
mod moving;
mod policy;
mod receive;
mod send;
mod slices;
#[cfg(all(test, feature = "aws-lc-rs"))]
mod tests;
mod timers;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub use app::{OpenError, ReadError, WriteError};
pub use driving::{Received, SendFailure, Transmit, WakeReason};
pub use jobs::{Job, JobDone};
pub use messages::{LaneConfig, LaneError, MessageError};

pub use crate::close::{CloseCode, CloseReason};
pub use crate::event::Event;
pub use crate::ids::{Side, StreamId};
pub use crate::lane::Message;

use crate::Time;
use crate::config::Config;
use crate::crypto::PublicKey;
use crate::handshake::{Initiator, Route, Session};
use crate::lane::{LaneReceiver, LaneSender, STREAMS, Streams};
use crate::path::{FeedbackClock, MtuProber, OurIds, Path, Validation};
use crate::profile::Profile;
use crate::stats::Stats;
use crate::wire::{ConnectionId, code_name};
use carried::Data;
use exchange::Exchange;
use keys::Keys;
use lanes::{Inbound, Lanes};
use policy::{Asking, Hearing};

/// Where a connection stands.
#[derive(Debug)]
enum State {
    /// HELLOs go out.
    Connecting(Box<Initiator>),
    /// Keys are agreed; a responder still waits for the first authentic packet.
    Established {
        confirmed: bool,
    },
    /// We closed: CLOSE is repeated until `until`, which counts from when the first one left, however late that was.
    Closing {
        code: CloseCode,
        reason: String,
        next: Time,
        until: Option<Time>,
    },
    /// The peer closed: nothing is sent any more.
    Draining {
        until: Time,
    },
    Closed,
}

/// A connection to one peer.
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    /// The configuration's, with what the peer asked for.
    profile: Profile,
    asking: Asking,
    hearing: Hearing,
    side: Side,
    state: State,
    /// By which the peer calls us.
    ids: OurIds,
    keys: Option<Keys>,
    exchange: Exchange,
    /// What the peer proved to have, with authentication `key`.
    peer_key: Option<PublicKey>,
    /// The endpoint is to ask whether the peer still knows us.
    inquiry_owed: bool,
    path: Path<Data>,
    /// Addresses at which the peer may be now.
    validation: Validation,
    lanes: Lanes,
    /// Of lane 0.
    receiver: LaneReceiver,
    streams: Streams,
    /// The peer's lanes of messages.
    inbound: BTreeMap<u32, Inbound>,
    /// The application was told that a message is to be taken, and has not found the end of them since.
    told_message: bool,
    max_span: u16,
    symbol_limit: usize,
    /// Symbols of each lane that the peer accepts from the start.
    lane_credit: u64,
    idle_timeout: Duration,
    last_heard: Time,
    /// When `poll_transmit` was last called: what could leave then has left.
    last_asked: Time,
    events: VecDeque<Event>,
    /// Scratch for the numbers of one FEEDBACK, so that the steady state allocates nothing.
    acked: Vec<u64>,
    lost: Vec<u64>,
    /// Bits for greasing; any sequence will do.
    grease: u64,
    delivered_since_feedback: u64,
    /// When FEEDBACK last asked for a confirmation of credit.
    credit_asked: Time,
    stats: Stats,
    /// Echo of the peer's challenge, to the address in use.
    path_response: Option<[u8; 8]>,
    /// When a symbol last came, if the peer was not asked since why no further one does.
    heard_symbol: Option<Time>,
}

impl Connection {
    /// The initiator's end: HELLOs leave at once.
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

    /// The responder's end, from an authentic HELLO.
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
        let mtu = MtuProber::new(config.max_datagram, config.probe_size);
        // The responder is where its address says: nobody has to be told.
        let feedback = FeedbackClock::new(side == Side::Initiator);
        let path = Path::new((remote, now), mtu, config.profile.rate_control.build(), feedback);
        Self {
            profile: config.profile,
            asking: Asking::default(),
            hearing: Hearing::Over,
            side,
            state,
            ids: OurIds::new(local_id),
            keys: None,
            exchange: Exchange::new(now),
            peer_key: None,
            inquiry_owed: false,
            path,
            validation: Validation::new([0; 32]),
            lanes: Lanes::new(
                LaneSender::new((config.profile.layout, config.max_span), slot_len, config.ring_memory, 0),
                config.profile.redundancy,
            ),
            receiver: LaneReceiver::new(slot_len, config.max_span, config.ring_memory, config.inline()),
            streams: Streams::new(side, config.max_streams, config.stream_window, config.max_stream_window),
            inbound: BTreeMap::new(),
            told_message: false,
            max_span: config.max_span,
            symbol_limit: slot_len,
            lane_credit: 0,
            idle_timeout: config.idle_timeout,
            last_heard: now,
            last_asked: now,
            events: VecDeque::new(),
            acked: Vec::new(),
            lost: Vec::with_capacity(LOST_AT_ONCE),
            grease,
            delivered_since_feedback: 0,
            credit_asked: Time::ZERO,
            stats: Stats::default(),
            path_response: None,
            heard_symbol: None,
            config,
        }
    }

    /// Takes keys and the peer's parameters from a finished handshake. The connection closes if the peer does not decode our code:
    /// another one in its place would not be what the user asked for.
    fn adopt(&mut self, now: Time, session: Session) {
        let peer = &session.peer;
        let code = self.profile.code;
        let is_code_known = peer.codes.contains(code);
        self.path.mtu.limit_to(peer.max_datagram);
        self.lane_credit = peer.lane_credit.into();
        self.max_span = self.max_span.min(peer.max_span);
        let layout = (self.profile.layout, self.max_span);
        let sender = LaneSender::new(layout, self.config.slot_len(), self.config.ring_memory, self.lane_credit);
        self.lanes = Lanes::new(sender, self.profile.redundancy);
        self.symbol_limit = self.symbol_limit.min(peer.max_symbol.into());
        self.streams.set_peer_limits(peer.streams.into(), peer.stream_credit.into());
        if peer.idle_timeout_ms > 0 {
            self.idle_timeout = self.idle_timeout.min(Duration::from_millis(peer.idle_timeout_ms.into()));
        }
        self.begin_policy(session.peer.codes);
        self.peer_key = session.peer_key;
        self.exchange.on_session(self.last_heard);
        self.keys = Some(Keys::new(session, self.last_heard));
        if !is_code_known {
            let name = code_name(code);
            self.start_closing(
                now,
                CloseCode::Refused,
                format!("this end codes with {name}, which the other does not decode"),
            );
            self.events.push_back(Event::Closed(CloseReason::UnknownCode(name)));
        }
    }

    /// A datagram whose destination id is ours.
    pub fn handle_datagram(&mut self, received: Received<'_>) {
        self.receive(received);
    }

    /// Time has passed. Early calls are harmless.
    pub fn handle_timeout(&mut self, now: Time) {
        self.expire(now);
    }

    /// Writes datagrams to be sent now into `out`: at most `max_segments` of one size. `None`: nothing to send.
    ///
    /// `out` must hold `max_segments` of the largest datagram ([`Config::max_datagram`]).
    pub fn poll_transmit(&mut self, now: Time, max_segments: usize, out: &mut [u8]) -> Option<Transmit> {
        self.transmit(now, max_segments, out)
    }

    /// The next thing the application should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.streams.poll_event())
    }

    /// When to call [`Self::handle_timeout`], if nothing else happens before, and why.
    pub fn poll_timeout(&mut self) -> Option<(Time, WakeReason)> {
        self.next_timer()
    }

    /// Counts so far.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        (stats.rtt_min, stats.rtt_mean) = self.path.rtt.lowest_and_mean();
        (stats.rtt_latest, stats.rtt_samples) = (self.path.rtt.latest(), self.path.rtt.samples());
        stats.loss = self.path.losses.estimator.overall();
        stats.loss_runs = self.path.losses.runs.clone();
        (stats.packets.reordered, stats.packets.reordering_depth) = self.path.received.reordering();
        let estimate = self.path.losses.estimator.estimate();
        (stats.recent_loss, stats.mean_burst) = (estimate.rate, estimate.burst);
        stats.pacing_bps = self.pacing().saturating_mul(8);
        stats.window = self.path.rate.budget().window;
        stats.datagram_size = self.path.mtu.current();
        stats.delay = self.receiver.delay.clone();
        for receiver in self.inbound.values().map(|inbound| &inbound.receiver) {
            stats.delay.merge(&receiver.delay);
        }
        for receiver in [&self.receiver].into_iter().chain(self.inbound.values().map(|inbound| &inbound.receiver)) {
            stats.symbols.add(&receiver.symbols);
            stats.packets.redundant += receiver.redundant;
        }
        stats.plan = self.lanes.get(STREAMS).and_then(|lane| lane.policies.plan().copied());
        self.count_messages(&mut stats.messages);
        stats
    }

    /// Which end this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Where its packets go.
    pub fn remote(&self) -> SocketAddr {
        self.path.remote
    }

    /// The public key that the peer proved to have; none with authentication `psk`, and before the handshake is over.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.peer_key
    }

    /// Keys are agreed and the peer has proved that it has them.
    pub fn is_established(&self) -> bool {
        matches!(self.state, State::Established { confirmed: true })
    }

    /// Nothing will happen any more; it can be dropped.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Ends the connection: the peer is told, without waiting for what was written to arrive.
    pub fn close(&mut self, now: Time, code: CloseCode, reason: &str) {
        match self.state {
            State::Established { .. } => {
                self.start_closing(now, code, reason.to_owned());
                self.events.push_back(Event::Closed(CloseReason::Local));
            }
            State::Connecting(_) => self.end(CloseReason::Local),
            State::Closing { .. } | State::Draining { .. } | State::Closed => {}
        }
    }

    /// The peer broke the protocol.
    fn fault(&mut self, now: Time, code: CloseCode) {
        if matches!(self.state, State::Established { .. }) {
            self.start_closing(now, code, String::new());
            self.events.push_back(Event::Closed(CloseReason::Fault(code)));
        }
    }

    fn start_closing(&mut self, now: Time, code: CloseCode, mut reason: String) {
        while reason.len() > crate::wire::MAX_TEXT {
            reason.pop();
        }
        self.state = State::Closing { code, reason, next: now, until: None };
    }

    fn end(&mut self, reason: CloseReason) {
        self.state = State::Closed;
        self.events.push_back(Event::Closed(reason));
    }

    /// Bytes per second at which packets leave.
    fn pacing(&self) -> u64 {
        let pacing = self.path.rate.budget().pacing;
        self.config.max_rate.map_or(pacing, |bits| pacing.min(bits / 8))
    }
}

/// Packets whose loss one FEEDBACK tells of without need of more memory: a burst of them at the rate at which FEEDBACK comes. Chosen.
const LOST_AT_ONCE: usize = 64;
/// Probe timeouts that closing lasts (RFC 9000 section 10.2).
const CLOSING_TIMEOUTS: u32 = 3;
