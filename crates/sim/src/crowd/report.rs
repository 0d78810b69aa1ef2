//! The report of a crowd.

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::connection::CloseReason;
use tidewire_proto::endpoint::EndpointStats;
use tidewire_proto::stats::Stats;

use super::{Crowd, SERVER, Sent};
use crate::host::ProcessStats;
use crate::pair::{BEGINNING, End};

/// The result of a run. Times count from the beginning of the run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The clients in the order of the plan.
    pub clients: Vec<ClientReport>,
    /// The server's process.
    pub server: ProcessStats,
    /// Datagrams of the server that reached no connection.
    pub strangers: EndpointStats,
    /// Virtual time of the whole run.
    pub elapsed: Duration,
    /// Hash of every datagram sent: time, sender, length and tag. Equal runs have equal hashes.
    pub fingerprint: u64,
}

/// The result of a client.
#[derive(Clone, Debug)]
pub struct ClientReport {
    /// Bytes of its stream that were read.
    pub bytes: u64,
    /// When its last byte was read, if all of them were.
    pub done: Option<Duration>,
    /// Longest time without a byte for the reader, from the start of the client to its last byte.
    pub longest_stall: Duration,
    /// What the client sent, and what the server sent to it.
    pub sent: [Sent; 2],
    /// Statistics of the client's end and of the server's.
    pub ends: [Stats; 2],
    /// The client's process.
    pub process: ProcessStats,
    /// Errors that the oracle found; empty if all is well.
    pub errors: Vec<String>,
    /// Why the connection ended, as the client and the server were told.
    pub closed: [Option<CloseReason>; 2],
}

impl Report {
    /// IP bytes that both ends sent for each byte that was read.
    pub fn sent_per_byte(&self) -> f64 {
        let sent: u64 = self.clients.iter().flat_map(|client| client.sent).map(|sent| sent.bytes).sum();
        sent as f64 / self.bytes().max(1) as f64
    }

    /// Bytes of all streams that were read.
    pub fn bytes(&self) -> u64 {
        self.clients.iter().map(|client| client.bytes).sum()
    }

    /// When the last byte of all clients was read; `None` if one is missing.
    pub fn done(&self) -> Option<Duration> {
        self.clients.iter().map(|client| client.done).try_fold(Duration::ZERO, |last, done| Some(last.max(done?)))
    }

    /// Longest time in which a client made no progress.
    pub fn longest_stall(&self) -> Duration {
        self.clients.iter().map(|client| client.longest_stall).max().unwrap_or_default()
    }

    /// Datagrams dropped because a socket was full: at the server, and at all clients.
    pub fn dropped(&self) -> [u64; 2] {
        let clients = self.clients.iter().map(|client| client.process.socket.dropped).sum();
        [self.server.socket.dropped, clients]
    }

    /// Processor time that all processes used.
    pub fn busy(&self) -> Duration {
        self.server.busy + self.clients.iter().map(|client| client.process.busy).sum::<Duration>()
    }
}

impl Crowd {
    /// The report so far.
    pub fn report(&self) -> Report {
        let server = &self.seats[SERVER].process;
        let since = |at: Time| at.since(BEGINNING);
        let clients = self.clients.iter().zip(&self.seats[SERVER + 1..]).map(|(client, seat)| ClientReport {
            bytes: client.load.read(),
            done: client.done.map(since),
            longest_stall: client.longest_stall(self.now),
            sent: client.sent,
            ends: [client.stats(End::Near, &seat.process.endpoint), client.stats(End::Far, &server.endpoint)],
            process: seat.process.stats(),
            errors: client.load.errors.clone(),
            closed: client.load.closed.clone(),
        });
        Report {
            clients: clients.collect(),
            server: server.stats(),
            strangers: server.endpoint.stats(),
            elapsed: self.now.since(BEGINNING),
            fingerprint: self.fingerprint,
        }
    }
}
