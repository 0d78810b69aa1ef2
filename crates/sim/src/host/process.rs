//! A process with one endpoint, one socket and the turns of the real driver.
//!
//! [`crate::crowd::Crowd`] calls [`Process::step`] when the process has a processor, and again when the time
//! that the step took is over. The order of reading, timers and sending is that of
//! `crates/tidewire/src/driver.rs`, which each part names. Invariants: what the endpoint is told it is told
//! at the end of the processor time that it took; nothing leaves before its time is over.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use tidewire_proto::Time;
use tidewire_proto::connection::{Event, Received, WakeReason};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};

use super::inbox::SocketStats;
use super::{Host, Inbox, Parcel, Waiting};

/// Datagrams of a round at most: `BATCH_SIZE` of quinn-udp on Linux. The kernel joins datagrams of one sender
/// that arrive together, so that the real batch can be longer.
const BATCH: usize = 32;
/// `BATCHES` and `LEAST_SLEEP` of the driver.
const BATCHES: usize = 32;
const LEAST_SLEEP: Duration = Duration::from_micros(20);
/// Resolution of tokio's timers, in which the driver and its tasks sleep unless a time shall be exact.
const TICK: Duration = Duration::from_millis(1);
/// Datagrams in a batch at most: 65,507 bytes by the default `max_datagram`, as the driver's port computes.
const SEGMENTS: usize = 44;
/// Largest UDP payload.
const DATAGRAM: usize = 65_527;

/// The tasks of a process that use its connections. They take no processor time of their own.
pub(crate) trait Tasks {
    /// Called for each event, and with `None` when the time of [`Self::poll_timeout`] has come.
    fn run(&mut self, now: Time, endpoint: &mut Endpoint, event: Option<(ConnectionHandle, Event)>);
    /// When the tasks want to run even if nothing happens.
    fn poll_timeout(&self) -> Option<Time>;
}

/// What a process did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStats {
    /// Datagrams at its socket.
    pub socket: SocketStats,
    /// Processor time that it used.
    pub busy: Duration,
}

/// What a process does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It computes for so long, and then [`Process::step`] is due.
    Busy(Duration),
    /// A round is over, and the next one can begin at once.
    Again,
    /// It sleeps until this time, or until a datagram arrives. `None` means that no timer is set.
    Sleeps(Option<Time>),
}

/// The part of a round that begins with the next step.
#[derive(Clone, Copy, Debug)]
enum Part {
    Read,
    Handle,
    /// The number of the batch, from 0.
    Fill(usize),
    Flush(usize),
}

/// A process; see the module.
#[derive(Debug)]
pub(crate) struct Process {
    pub endpoint: Endpoint,
    pub address: SocketAddr,
    pub inbox: Inbox,
    host: Host,
    began: Time,
    part: Part,
    /// The batch that was read and is being handled.
    batch: Vec<Waiting>,
    /// Whether the round has read something.
    received: bool,
    /// Everything that had entered the socket by this time was handled. The only place that knows it.
    read_until: Time,
    /// When the endpoint wanted to be called, at the last look.
    due: Time,
    busy: Duration,
    /// The batch that is being sent, and what has left.
    filled: Vec<Parcel>,
    left: VecDeque<Parcel>,
    buffer: Vec<u8>,
}

impl Process {
    /// A process that starts at `began`.
    pub fn new(endpoint: Endpoint, address: SocketAddr, host: Host, began: Time) -> Self {
        Self {
            endpoint,
            address,
            inbox: Inbox::new(host.buffer),
            host,
            began,
            part: Part::Read,
            batch: Vec::new(),
            received: false,
            read_until: began,
            due: Time::ZERO,
            busy: Duration::ZERO,
            filled: Vec::new(),
            left: VecDeque::new(),
            buffer: vec![0; DATAGRAM],
        }
    }

    /// Runs until processor time has to pass, or a round is over.
    pub fn step(&mut self, now: Time, tasks: &mut dyn Tasks) -> Outcome {
        loop {
            match self.part {
                Part::Read => {
                    self.read(now);
                    self.part = Part::Handle;
                    if self.received {
                        return self.compute(self.host.read * self.batch.len() as u32);
                    }
                }
                Part::Handle => {
                    self.handle();
                    self.part = Part::Fill(0);
                }
                Part::Fill(BATCHES) => {
                    self.hand_out(now, tasks);
                    self.part = Part::Read;
                    return Outcome::Again;
                }
                Part::Fill(number) => {
                    if number == 0 {
                        self.expire(now, tasks);
                    }
                    self.work(now);
                    if !self.fill(now) {
                        self.part = Part::Read;
                        return self.settle(now, tasks);
                    }
                    self.part = Part::Flush(number);
                    return self.compute(self.host.send * self.filled.len() as u32);
                }
                Part::Flush(number) => {
                    self.left.extend(self.filled.drain(..));
                    self.part = Part::Fill(number + 1);
                }
            }
        }
    }

    /// What the process did so far.
    pub fn stats(&self) -> ProcessStats {
        ProcessStats { socket: self.inbox.stats, busy: self.busy }
    }

    fn compute(&mut self, time: Duration) -> Outcome {
        self.busy += time;
        Outcome::Busy(time)
    }

    /// The next datagram that has left.
    pub fn poll_departure(&mut self) -> Option<Parcel> {
        self.left.pop_front()
    }

    /// Takes a batch out of the socket, as `Driver::receive`.
    fn read(&mut self, now: Time) {
        while self.batch.len() < BATCH
            && let Some(next) = self.inbox.pop(now)
        {
            self.batch.push(next);
        }
        self.received = !self.batch.is_empty();
        self.read_until = match self.batch.last() {
            Some(last) if !self.inbox.is_empty() => last.at,
            _ => now,
        };
    }

    /// Hands over the batch, each datagram with the time at which it entered the socket.
    fn handle(&mut self) {
        for Waiting { at, dropped, parcel: Parcel { from, ecn, mut bytes, .. } } in self.batch.drain(..) {
            if dropped > 0 {
                self.endpoint.handle_host_drops(at, dropped);
            }
            let (to, datagram) = (None, &mut bytes[..]);
            self.endpoint.handle_datagram(Received { at, from, to, ecn, datagram });
        }
    }

    /// Tasks whose time has come, and timers, as the first batch of `Driver::send`.
    fn expire(&mut self, now: Time, tasks: &mut dyn Tasks) {
        if tasks.poll_timeout().is_some_and(|at| at <= now) {
            tasks.run(now, &mut self.endpoint, None);
        }
        self.endpoint.handle_read(self.read_until);
        if self.due <= now {
            self.endpoint.handle_timeout(now);
        }
    }

    /// Runs coding jobs. They take no time.
    fn work(&mut self, now: Time) {
        while let Some((handle, job)) = self.endpoint.poll_job() {
            self.endpoint.handle_job(now, handle, job.run());
        }
    }

    /// Takes the next batch of the endpoint, as `Port::fill`. Returns whether there was one.
    fn fill(&mut self, now: Time) -> bool {
        let Some(transmit) = self.endpoint.poll_transmit(now, SEGMENTS, &mut self.buffer) else { return false };
        let (from, to, ecn) = (self.address, transmit.destination, transmit.ecn);
        let segments = self.buffer[..transmit.len].chunks(transmit.segment_size.unwrap_or(transmit.len).max(1));
        self.filled.extend(segments.map(|bytes| Parcel { from, to, ecn, bytes: bytes.to_vec() }));
        true
    }

    /// Hands out events and finds out when to look again, as `Driver::settle`.
    fn settle(&mut self, now: Time, tasks: &mut dyn Tasks) -> Outcome {
        let is_called = self.hand_out(now, tasks);
        let own = self.endpoint.poll_timeout();
        self.due = own.map_or(Time::NEVER, |(at, _)| at);
        // What tasks wrote may leave, and more may have arrived.
        if is_called || self.received || !self.inbox.is_empty() {
            return Outcome::Again;
        }
        let is_exact = own.is_some_and(|(_, reason)| reason == WakeReason::Train);
        let endpoint = own.map(|(at, _)| if is_exact { at } else { self.tick(at) });
        let next = endpoint.into_iter().chain(tasks.poll_timeout().map(|at| self.tick(at))).min();
        Outcome::Sleeps(next.map(|at| at.max(now + LEAST_SLEEP)))
    }

    /// Hands out events. Returns whether there were any.
    fn hand_out(&mut self, now: Time, tasks: &mut dyn Tasks) -> bool {
        let mut is_called = false;
        while let Some(event) = self.endpoint.poll_event() {
            tasks.run(now, &mut self.endpoint, Some(event));
            is_called = true;
        }
        is_called
    }

    /// When a timer for `at` fires.
    fn tick(&self, at: Time) -> Time {
        if at == Time::NEVER {
            return at;
        }
        let age = at.since(self.began).as_nanos() as u64;
        self.began + Duration::from_nanos(age.next_multiple_of(TICK.as_nanos() as u64))
    }
}
