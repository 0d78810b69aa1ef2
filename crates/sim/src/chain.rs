//! A path with relays in virtual time: two ends, any number of relays between them, and a link for each hop.
//!
//! [`Chain`] is the driver of all endpoints and keeps the clock, as [`crate::pair`] does for two. The
//! [`Application`] acts on the end-to-end session of both ends. A relay can be made to change symbols. A run
//! depends only on its configuration and seeds.

use core::net::SocketAddr;
use std::sync::Arc;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseReason, Connection, Event, Received};
use tidewire_proto::crypto::{AwsLc, Secret};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint, EndpointConfig};
use tidewire_proto::path::Ecn;
use tidewire_proto::recode::{RelayStats, Relaying};
use tidewire_proto::relay::{self, End, PEER, Relay, Suspects, end_to_end};
use tidewire_proto::wire::Recoded;

use crate::duplex::{DuplexConfig, DuplexLink};
use crate::pair::{Application, BEGINNING, End as Side};

/// Largest UDP payload that the driver passes on.
const DATAGRAM: usize = 65_527;
/// Maximum number of steps at one time; more mean an endless loop.
const MOST_STEPS: u32 = 10_000;

/// What a relay does to the rows that it passes on.
pub type Tamper = Box<dyn FnMut(&mut Vec<u8>, &mut Vec<u8>)>;

/// A datagram on the link of a hop.
#[derive(Clone, Debug)]
pub struct Parcel {
    ecn: Option<Ecn>,
    bytes: Vec<u8>,
}

impl Parcel {
    /// A value that depends on every bit of the datagram: its tag.
    pub(crate) fn digest(&self) -> u64 {
        self.bytes.last_chunk().map_or(0, |tag| u64::from_le_bytes(*tag))
    }

    /// The datagram, so that a network can change its bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// One hop: the endpoint that connects, the endpoint that listens, and the link between them.
struct Hop {
    ends: [Endpoint; 2],
    link: DuplexLink<Parcel>,
}

/// A relay that changes the vectors and symbols of the rows it passes on, both ways.
struct Polluter {
    near: Option<ConnectionHandle>,
    far: Option<ConnectionHandle>,
    tamper: Tamper,
}

enum Node {
    Honest(Relay),
    Polluting(Polluter),
}

/// An end, and the connection of its hop.
struct Terminal {
    end: End,
    session: Endpoint,
    hop: Option<ConnectionHandle>,
    closed: Option<CloseReason>,
    polluted: Option<Suspects>,
}

/// A path with relays; see the module.
pub struct Chain {
    now: Time,
    hops: Vec<Hop>,
    nodes: Vec<Node>,
    terminals: [Terminal; 2],
    buffer: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

impl core::fmt::Debug for Chain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Chain").field("now", &self.now).field("hops", &self.hops.len()).finish_non_exhaustive()
    }
}

/// Address of the listening end of a hop.
pub fn address(hop: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, hop as u8, 2], 7_700))
}

fn connecting_address(hop: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, hop as u8, 1], 7_700))
}

impl Chain {
    /// A path over these links. All hops recode by `relaying`; the datagrams of the end-to-end session are at
    /// most `datagram` bytes long. All randomness is derived from `seed` and the seeds of the links.
    pub fn new(links: &[DuplexConfig], relaying: Relaying, datagram: u16, seed: u64) -> Self {
        let config = Config::builder().relaying(Some(relaying)).build().expect("settings of a hop");
        Self::between(links, [&config; 3], datagram, seed)
    }

    /// The same between ends with these settings, over hops with open ends, which the caller has to serve
    /// ([`crate::link::Link::open`]). Relays recode with their own settings, the default.
    ///
    /// # Panics
    /// Panics if the settings have no use over relays ([`tidewire_proto::relay::relaying`]).
    pub(crate) fn open(hops: usize, [near, far]: &[Config; 2], datagram: u16, seed: u64) -> Self {
        let links = vec![DuplexConfig::default(); hops];
        let mut chain = Self::between(&links, [near, &Config::default(), far], datagram, seed);
        chain.hops.iter_mut().for_each(|hop| hop.link.open());
        chain
    }

    /// A path over these links. `configs` are those of the near end, of the relays and of the far end.
    fn between(links: &[DuplexConfig], configs: [&Config; 3], datagram: u16, seed: u64) -> Self {
        let [near, relay, far] = configs.map(|config| relay::hop(config).expect("settings of a hop"));
        let sessions =
            [configs[0], configs[2]].map(|config| end_to_end(config, datagram).expect("settings of a session"));
        let endpoint = |connection: &Config, secret: u8, listen, number: usize| {
            let (credentials, provider) = (Secret::new([secret; 32]).into(), Arc::new(AwsLc));
            let mut bytes = [number as u8; 32];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            Endpoint::new(EndpointConfig { credentials, listen, connection: connection.clone(), provider }, bytes)
        };
        let hops = links.iter().enumerate().map(|(number, link)| {
            let ends = [false, true].map(|listen| {
                let config = match (listen, number) {
                    (false, 0) => &near,
                    (true, number) if number + 1 == links.len() => &far,
                    _ => &relay,
                };
                endpoint(config, number as u8, listen, 2 * number + usize::from(listen))
            });
            Hop { ends, link: DuplexLink::new(link) }
        });
        let terminal = |listen| {
            let session = endpoint(&sessions[usize::from(listen)], 200, listen, 200 + usize::from(listen));
            Terminal { end: End::new(PEER), session, hop: None, closed: None, polluted: None }
        };
        let nodes = (1..links.len()).map(|next| Node::Honest(Relay::new(address(next), None)));
        Self {
            now: BEGINNING,
            hops: hops.collect(),
            nodes: nodes.collect(),
            terminals: [terminal(false), terminal(true)],
            buffer: vec![0; DATAGRAM],
            spare: Vec::new(),
        }
    }

    /// Makes relay `node`, from 0, change what it passes on.
    pub fn pollute(&mut self, node: usize, tamper: Tamper) {
        self.nodes[node] = Node::Polluting(Polluter { near: None, far: None, tamper });
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The two directions of the link of a hop.
    pub fn link_stats(&self, hop: usize) -> [crate::link::LinkStats; 2] {
        let link = &self.hops[hop].link;
        [*link.forward.stats(), *link.back.stats()]
    }

    /// The link of a hop.
    pub(crate) fn link_mut(&mut self, hop: usize) -> &mut DuplexLink<Parcel> {
        &mut self.hops[hop].link
    }

    /// Counts of the relayed lane at the connecting and the listening end of a hop.
    pub fn relay_stats(&self, hop: usize) -> [RelayStats; 2] {
        self.hops[hop].ends.each_ref().map(|end| {
            let mut sum = RelayStats::default();
            end.connections().for_each(|(_, connection)| sum += connection.relay_stats());
            sum
        })
    }

    /// The endpoints of a hop: the one that connects and the one that listens.
    pub fn endpoints(&self, hop: usize) -> &[Endpoint; 2] {
        &self.hops[hop].ends
    }

    /// Symbols that were delivered to the session of an end.
    pub fn delivered(&self, side: Side) -> u64 {
        self.terminals[side as usize].end.delivered()
    }

    /// Whom an end suspects of pollution.
    pub fn polluted(&self, side: Side) -> Option<&Suspects> {
        self.terminals[side as usize].polluted.as_ref()
    }

    /// Why the hop of an end is over.
    pub fn closed(&self, side: Side) -> Option<&CloseReason> {
        self.terminals[side as usize].closed.as_ref()
    }

    /// Bytes of memory that the connections of a hop's ends hold.
    pub fn memory(&self, hop: usize) -> [usize; 2] {
        self.hops[hop].ends.each_ref().map(|end| end.connections().map(|(_, connection)| connection.memory()).sum())
    }

    /// Begins the hop of the first end and the end-to-end session over it.
    pub fn connect(&mut self) {
        let hop = self.hops[0].ends[0].connect(self.now, address(0)).expect("both ends have a secret");
        let near = &mut self.terminals[0];
        near.hop = Some(hop);
        near.session.connect(self.now, PEER).expect("both ends have a secret");
    }

    /// Runs until `until`, or until nothing is left to happen, or `done` returns true before a step. Returns
    /// whether `done` did.
    pub fn run<A: Application>(&mut self, application: &mut A, until: Time, done: impl Fn(&A, &Self) -> bool) -> bool {
        let mut steps = 0;
        loop {
            if done(application, self) {
                return true;
            }
            self.settle(application);
            let Some(next) = self.next_moment(application).filter(|&next| next <= until) else {
                self.now = self.now.max(until);
                return false;
            };
            steps = if next > self.now { 0 } else { steps + 1 };
            assert!(steps < MOST_STEPS, "time stands still at {:?}", self.now);
            self.now = self.now.max(next);
            self.deliver();
        }
    }

    /// When something happens next; `None` if nothing will.
    pub(crate) fn next_moment(&mut self, application: &dyn Application) -> Option<Time> {
        let mut next = [Side::Near, Side::Far].map(|side| application.poll_timeout(side)).into_iter().flatten().min();
        let mut add = |at: Option<Time>| next = next.into_iter().chain(at).min();
        for hop in &mut self.hops {
            add(hop.link.poll_timeout());
            hop.ends.iter_mut().for_each(|end| add(end.poll_timeout().map(|(at, _)| at)));
        }
        self.terminals.iter_mut().for_each(|terminal| add(terminal.end.poll_timeout(&mut terminal.session)));
        next
    }

    /// Hands over datagrams that have arrived, and runs timers.
    fn deliver(&mut self) {
        for (number, hop) in self.hops.iter_mut().enumerate() {
            let Hop { ends: [left, right], link } = hop;
            let ways =
                [(&mut link.forward, right, connecting_address(number)), (&mut link.back, left, address(number))];
            for (link, endpoint, from) in ways {
                while let Some(delivery) = link.poll_delivery(self.now) {
                    let Parcel { ecn, mut bytes } = delivery.payload;
                    let ecn = ecn.map(|own| if delivery.marked { Ecn::Ce } else { own });
                    let at = delivery.at;
                    endpoint.handle_datagram(Received { at, from, to: None, ecn, datagram: &mut bytes });
                    self.spare.push(bytes);
                }
                endpoint.handle_timeout(self.now);
            }
        }
        self.terminals.iter_mut().for_each(|terminal| terminal.session.handle_timeout(self.now));
    }

    /// Lets every node act until nothing changes at this time.
    fn settle<A: Application>(&mut self, application: &mut A) {
        for side in [Side::Near, Side::Far] {
            application.run(self.now, side, &mut self.terminals[side as usize].session, None);
        }
        loop {
            for (node, index) in self.nodes.iter_mut().zip(0..) {
                let (before, after) = self.hops.split_at_mut(index + 1);
                node.drive(self.now, &mut before[index].ends[1], &mut after[0].ends[0], address(index + 1));
            }
            let last = self.hops.len() - 1;
            let mut busy = self.terminals[0].drive(self.now, Side::Near, &mut self.hops[0].ends[0], application);
            busy |= self.terminals[1].drive(self.now, Side::Far, &mut self.hops[last].ends[1], application);
            for (number, hop) in self.hops.iter_mut().enumerate() {
                let Hop { ends: [left, right], link } = hop;
                let ways =
                    [(left, &mut link.forward, address(number)), (right, &mut link.back, connecting_address(number))];
                for (endpoint, link, to) in ways {
                    if let Some(transmit) = endpoint.poll_transmit(self.now, 1, &mut self.buffer) {
                        // No end and no relay sends to a host that it was not configured for.
                        assert_eq!(transmit.destination, to, "a datagram of hop {number}");
                        let mut bytes = self.spare.pop().unwrap_or_default();
                        bytes.clear();
                        bytes.extend_from_slice(&self.buffer[..transmit.len]);
                        let parcel = Parcel { ecn: transmit.ecn, bytes };
                        link.send_from(self.now, transmit.len, transmit.ecn.is_some(), parcel);
                        busy = true;
                    }
                }
            }
            if !busy {
                return;
            }
        }
    }
}

impl Terminal {
    /// Moves symbols, and lets the application act on events. Returns whether there was one.
    fn drive<A: Application>(&mut self, now: Time, side: Side, hop: &mut Endpoint, application: &mut A) -> bool {
        let mut busy = false;
        while let Some((handle, event)) = hop.poll_event() {
            match event {
                Event::Connected => self.hop = Some(handle),
                Event::Closed(reason) => self.closed = Some(reason),
                _ => {}
            }
        }
        if let Some(connection) = self.hop.and_then(|handle| hop.connection_mut(handle)) {
            self.end.drive(now, connection, &mut self.session);
        }
        self.polluted = self.polluted.take().or_else(|| self.end.poll_polluted());
        while let Some(event) = self.session.poll_event() {
            application.run(now, side, &mut self.session, Some(event));
            busy = true;
        }
        busy
    }
}

impl Node {
    fn drive(&mut self, now: Time, near: &mut Endpoint, far: &mut Endpoint, to: SocketAddr) {
        match self {
            Self::Honest(relay) => relay.drive(now, near, far),
            Self::Polluting(polluter) => polluter.drive(now, near, far, to),
        }
    }
}

impl Polluter {
    fn drive(&mut self, now: Time, near: &mut Endpoint, far: &mut Endpoint, to: SocketAddr) {
        while let Some((handle, event)) = near.poll_event() {
            if event == Event::Connected {
                self.near = Some(handle);
                self.far = Some(far.connect(now, to).expect("both ends have a secret"));
            }
        }
        while far.poll_event().is_some() {}
        let (Some(near), Some(far)) = (
            self.near.and_then(|handle| near.connection_mut(handle)),
            self.far.and_then(|handle| far.connection_mut(handle)),
        ) else {
            return;
        };
        self.pass(now, near, far);
        self.pass(now, far, near);
    }

    fn pass(&mut self, now: Time, from: &mut Connection, to: &mut Connection) {
        from.take_recoded(|row| {
            let (mut vector, mut symbol) = (row.vector.to_vec(), row.symbol.to_vec());
            (self.tamper)(&mut vector, &mut symbol);
            to.forward_recoded(Recoded { vector: &vector, symbol: &symbol, ..row });
        });
        from.release_recoded(now, to.recoded_base());
    }
}
