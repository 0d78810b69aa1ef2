//! A queue whose datagrams meet their fate when they leave it: under CoDel (RFC 8289), and on a medium that
//! several links share.
//!
//! [`Link`](super::Link) has one in place of a `Bottleneck`, and polls it before it does anything else.
//! Invariants: datagrams leave in their order, and a datagram leaves at the time at which the link and the
//! medium are free, however late the queue is polled.

use core::time::Duration;
use std::collections::VecDeque;

use tidewire_proto::Time;
use tidewire_proto::codel::{Codel, Head, Verdict};

use super::bottleneck::{Server, Service};
use super::config::{Discipline, LinkConfig};
use super::medium::{Medium, Station};

/// A datagram in the queue.
#[derive(Clone, Debug)]
pub(super) struct Waiting<T> {
    /// When it was sent.
    pub(super) since: u64,
    pub(super) len: usize,
    pub(super) ip_bytes: u64,
    pub(super) supports_marks: bool,
    pub(super) payload: T,
}

/// What became of the datagram at the head.
#[derive(Debug)]
pub(super) enum Served<T> {
    /// CoDel dropped it.
    Dropped,
    /// It leaves at this time.
    Sent { service: Service, marked: bool, waiting: Waiting<T> },
}

/// The queue with its server; see the module.
#[derive(Clone, Debug)]
pub(super) struct Backlog<T> {
    waiting: VecDeque<Waiting<T>>,
    bytes: u64,
    /// Maximum number of bytes that wait.
    limit: u64,
    server: Server,
    codel: Option<Codel>,
    station: Option<Station>,
}

impl<T> Backlog<T> {
    /// `None` if a drop-tail queue of one link is enough, or the capacity is unlimited.
    pub(super) fn new(config: &LinkConfig, round_trip: Duration) -> Option<Self> {
        let codel = match config.aqm.discipline {
            Discipline::DropTail => None,
            Discipline::Codel(codel) => Some(Codel::new(codel)),
        };
        let station = config.mac.medium.as_ref().map(|_| Station::new(&Medium::default()));
        if codel.is_none() && station.is_none() {
            return None;
        }
        let (server, limit) = Server::new(config, round_trip)?;
        Some(Self { waiting: VecDeque::new(), bytes: 0, limit, server, codel, station })
    }

    /// From now on it takes turns with the other links of `medium`.
    pub(super) fn join(&mut self, medium: &Medium) {
        self.station = Some(Station::new(medium));
    }

    /// Packets that wait, and their bytes.
    pub(super) fn waiting(&self) -> (usize, u64) {
        (self.waiting.len(), self.bytes)
    }

    /// Adds a datagram; `false` if the queue has no room for it.
    pub(super) fn push(&mut self, datagram: Waiting<T>) -> bool {
        let now = datagram.since;
        if self.waiting.is_empty() && self.server.has_idled(now) {
            self.codel.iter_mut().for_each(Codel::on_empty);
        }
        let is_busy = self.station.as_ref().is_some_and(|station| station.is_busy(now));
        let waits = !self.waiting.is_empty() || is_busy || self.server.clone().start(now) > now;
        let bytes = self.bytes.saturating_add(datagram.ip_bytes);
        if waits && bytes > self.limit {
            return false;
        }
        self.bytes = bytes;
        self.waiting.push_back(datagram);
        self.station.iter().for_each(Station::ask);
        true
    }

    /// When the datagram at the head may leave; `None` if there is none, or it is another link's turn.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        let since = self.waiting.front()?.since;
        let turn = self.station.as_ref().map_or(Some(0), Station::turn)?;
        Some(self.server.clone().start(since.max(turn)))
    }

    /// What becomes of the datagram at the head, if it may leave by `now`. Call until `None`.
    pub(super) fn poll(&mut self, now: u64) -> Option<Served<T>> {
        let start = self.poll_timeout().filter(|&start| start <= now)?;
        let waiting = self.waiting.pop_front()?;
        self.bytes -= waiting.ip_bytes;
        let verdict = self.judge(start, &waiting);
        if verdict == Verdict::Drop {
            // CoDel never drops the last one, so there is another one, and the turn stays.
            return Some(Served::Dropped);
        }
        let start = self.server.start(start);
        let service = Service { start, end: self.server.serve(waiting.ip_bytes) };
        if let Some(station) = &self.station {
            station.hold(service.end);
            station.leave();
            if !self.waiting.is_empty() {
                station.ask();
            }
        }
        Some(Served::Sent { service, marked: verdict == Verdict::Mark, waiting })
    }

    /// Serves the datagram that left last once more. Returns when its last byte has left.
    pub(super) fn serve_again(&mut self, bytes: u64) -> u64 {
        let end = self.server.serve_again(bytes);
        self.station.iter().for_each(|station| station.hold(end));
        end
    }

    fn judge(&mut self, now: u64, waiting: &Waiting<T>) -> Verdict {
        let head = Head {
            waited: Duration::from_nanos(now.saturating_sub(waiting.since)),
            left_bytes: self.bytes,
            supports_marks: waiting.supports_marks,
        };
        self.codel.as_mut().map_or(Verdict::Pass, |codel| codel.judge(Time(now), head))
    }
}
