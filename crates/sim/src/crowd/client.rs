//! A client of a crowd: its load with the byte oracle, and what was counted for it.
//!
//! [`super::Crowd`] lets the tasks of both processes run through [`Near`] and [`Far`]. The end that reads the
//! client's stream closes the connection when it has all of it. Invariant: a connection of the server belongs
//! to the client with its address.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use tidewire_proto::Time;
use tidewire_proto::connection::{CloseCode, Connection, Event};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};
use tidewire_proto::stats::Stats;

use crate::agenda::Agenda;
use crate::host::Tasks;
use crate::load::{Flow, Load};
use crate::pair::{Application, End};

/// A client; see the module.
#[derive(Debug)]
pub(super) struct Client {
    pub load: Load,
    /// The end that reads the stream.
    reader: End,
    pub start: Time,
    is_started: bool,
    /// IP bytes and datagrams that the client and the server sent to each other.
    pub sent: [Sent; 2],
    /// When bytes were read last, and the longest time between two such times.
    progressed: Time,
    longest: Duration,
    /// When the last byte was read.
    pub done: Option<Time>,
    /// Statistics of the end that closed, from before that.
    closing: Option<Stats>,
}

/// What one end sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams.
    pub datagrams: u64,
    /// Bytes, IP and UDP headers included.
    pub bytes: u64,
}

impl Client {
    /// A client with this stream that starts at `start`.
    pub fn new(flow: &Flow, start: Time, seed: u64) -> Self {
        Self {
            load: Load::new(core::slice::from_ref(flow), seed),
            reader: flow.from.other(),
            start,
            is_started: false,
            sent: [Sent::default(); 2],
            progressed: start,
            longest: Duration::ZERO,
            done: None,
            closing: None,
        }
    }

    /// Whether nothing more will happen that is worth waiting for.
    pub fn is_over(&self) -> bool {
        self.done.is_some() || !self.load.errors.is_empty() || self.load.closed.iter().all(Option::is_some)
    }

    /// The longest time up to `now` without a byte for the reader, from the start to the last byte.
    pub fn longest_stall(&self, now: Time) -> Duration {
        let left = if self.done.is_some() { Duration::ZERO } else { now.since(self.progressed) };
        self.longest.max(left)
    }

    /// Statistics of one end, also after its connection ended.
    pub fn stats(&self, end: End, endpoint: &Endpoint) -> Stats {
        let live = self.load.handle(end).and_then(|handle| endpoint.connection(handle)).map(Connection::stats);
        let closing = self.closing.as_ref().filter(|_| end == self.reader);
        closing.cloned().or(live).or_else(|| self.load.last_stats(end).cloned()).unwrap_or_default()
    }

    fn run(&mut self, now: Time, end: End, endpoint: &mut Endpoint, event: Option<(ConnectionHandle, Event)>) {
        let before = self.load.read();
        self.load.run(now, end, endpoint, event);
        if self.load.read() > before {
            self.longest = self.longest.max(now.since(self.progressed));
            self.progressed = now;
        }
        if end == self.reader && self.done.is_none() && self.load.is_done() {
            self.done = Some(now);
            self.closing = Some(self.stats(end, endpoint));
            let connection = self.load.handle(end).and_then(|handle| endpoint.connection_mut(handle));
            connection.into_iter().for_each(|connection| connection.close(now, CloseCode::Done, ""));
        }
    }
}

/// The tasks of a client's process.
pub(super) struct Near<'a> {
    pub client: &'a mut Client,
    pub server: SocketAddr,
}

impl Tasks for Near<'_> {
    fn run(&mut self, now: Time, endpoint: &mut Endpoint, event: Option<(ConnectionHandle, Event)>) {
        if !self.client.is_started && now >= self.client.start {
            self.client.is_started = true;
            endpoint.connect(now, self.server).expect("both ends have a secret");
        }
        self.client.run(now, End::Near, endpoint, event);
    }

    fn poll_timeout(&self) -> Option<Time> {
        if self.client.is_started { self.client.load.poll_timeout(End::Near) } else { Some(self.client.start) }
    }
}

/// Which client each connection of the server belongs to, and when its task wants to run.
#[derive(Debug)]
pub(super) struct Served {
    pub addresses: BTreeMap<SocketAddr, usize>,
    handles: BTreeMap<ConnectionHandle, usize>,
    due: Agenda,
}

impl Served {
    pub fn new(addresses: BTreeMap<SocketAddr, usize>) -> Self {
        Self { due: Agenda::new(addresses.len()), addresses, handles: BTreeMap::new() }
    }
}

/// The tasks of the server's process.
pub(super) struct Far<'a> {
    pub clients: &'a mut [Client],
    pub served: &'a mut Served,
}

impl Far<'_> {
    fn run_one(&mut self, client: usize, now: Time, endpoint: &mut Endpoint, event: Option<(ConnectionHandle, Event)>) {
        self.clients[client].run(now, End::Far, endpoint, event);
        self.served.due.set(client, self.clients[client].load.poll_timeout(End::Far));
    }
}

impl Tasks for Far<'_> {
    fn run(&mut self, now: Time, endpoint: &mut Endpoint, event: Option<(ConnectionHandle, Event)>) {
        let Some((handle, event)) = event else {
            while let Some((_, client)) = self.served.due.next().filter(|&(at, _)| at <= now) {
                self.served.due.set(client, None);
                self.run_one(client, now, endpoint, None);
            }
            return;
        };
        if event == Event::Connected
            && let Some(connection) = endpoint.connection(handle)
            && let Some(&client) = self.served.addresses.get(&connection.remote())
        {
            self.served.handles.insert(handle, client);
        }
        if let Some(&client) = self.served.handles.get(&handle) {
            self.run_one(client, now, endpoint, Some((handle, event)));
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.served.due.next().map(|(at, _)| at)
    }
}
