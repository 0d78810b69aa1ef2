//! Many clients of one server, on hosts that take time for each datagram.
//!
//! A [`Crowd`] is a server endpoint with a connection of each client, a link for each client, and the
//! machines of [`crate::host`] on which their processes run. Each client sends or takes one stream, whose
//! bytes both ends can compute. [`Crowd`] is the driver and keeps the virtual time. A run follows from its
//! [`Plan`] alone.
//!
//! Invariants: a process runs only while it has a processor; every datagram is on a link, in a socket, in a
//! process, or counted as lost.

mod client;
mod report;

use core::fmt;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use tidewire_codec::SplitMix64;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::crypto::{AwsLc, Secret};
use tidewire_proto::endpoint::{Endpoint, EndpointConfig};
use tidewire_proto::path::Ecn;

use crate::agenda::Agenda;
use crate::duplex::{DuplexConfig, DuplexLink};
use crate::host::{Host, Machine, Nap, Outcome, Parcel, Process};
use crate::load::Flow;
use crate::pair::{BEGINNING, End};
use client::{Client, Far, Near, Served};

pub use client::Sent;
pub use report::{ClientReport, Report};

/// A run to be made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The link of each client. Data of the client goes forward. Its seed differs for each client.
    pub link: DuplexConfig,
    /// Settings of the clients and of the server.
    pub ends: [Config; 2],
    /// The stream of each client, and when the client starts. [`End::Near`] is the client.
    pub clients: Vec<(Flow, Duration)>,
    /// The machine of the server.
    pub server: Host,
    /// Where the clients run.
    pub place: Place,
    /// The source of all randomness.
    pub seed: u64,
    /// The run ends after this time, whatever is left.
    pub limit: Duration,
}

/// Where the clients run.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// On the machine of the server.
    Beside,
    /// All on one other machine.
    Together(Host),
    /// Each on a machine of its own.
    Apart(Host),
}

/// Maximum number of steps at one time. More mean an endless loop.
const MOST_STEPS: u32 = 1_000_000;
/// How often a run asks whether all clients are done: more often costs time, and no result depends on it.
const LOOK: Duration = Duration::from_millis(1);
/// The process of the server. Client `n` is process `n` + 1.
const SERVER: usize = 0;

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asleep,
    /// It waits for a processor.
    Ready,
    /// It has a processor and has used it for so long.
    Runs(Duration),
}

/// A process on its machine.
struct Seat {
    process: Process,
    machine: usize,
    nap: Option<Nap>,
    state: State,
}

/// A plan in operation; see the module.
pub struct Crowd {
    now: Time,
    limit: Time,
    machines: Vec<Machine>,
    seats: Vec<Seat>,
    clients: Vec<Client>,
    served: Served,
    links: Vec<DuplexLink<Parcel>>,
    /// When each link, and behind them each process, has something to do.
    agenda: Agenda,
    steps: u32,
    /// When [`Self::is_over`] was asked last.
    looked: Time,
    fingerprint: u64,
}

impl fmt::Debug for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crowd").field("now", &self.now).field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}

/// A number that differs for each part of a run.
fn seed_of(seed: u64, number: usize) -> u64 {
    SplitMix64::mix(seed.wrapping_add((number as u64 + 1).wrapping_mul(SplitMix64::STEP)))
}

fn address(process: usize) -> SocketAddr {
    let [high, low] = ((process + 1) as u16).to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(10, 0, high, low), 7_700))
}

impl Crowd {
    /// Makes machines, processes and links. Nothing has started yet.
    ///
    /// # Panics
    /// Panics if there are more than 65,000 clients.
    pub fn new(plan: &Plan) -> Self {
        let count = plan.clients.len();
        assert!(count <= 65_000, "{count} clients: an address of 16 bits tells them apart");
        let others = match plan.place {
            Place::Beside => vec![],
            Place::Together(host) => vec![host],
            Place::Apart(host) => vec![host; count],
        };
        let machines: Vec<_> = core::iter::once(plan.server).chain(others).map(Machine::new).collect();
        let seat = |process: usize| {
            let machine = match plan.place {
                _ if process == SERVER => 0,
                Place::Beside => 0,
                Place::Together(_) => 1,
                Place::Apart(_) => process,
            };
            let host = machines[machine].host;
            let began = if process == SERVER { BEGINNING } else { BEGINNING + plan.clients[process - 1].1 };
            let (seed, connection) = (seed_of(plan.seed, process), &plan.ends[usize::from(process == SERVER)]);
            let (credentials, provider) = (Secret::new([7; 32]).into(), Arc::new(AwsLc));
            let config =
                EndpointConfig { credentials, listen: process == SERVER, connection: connection.clone(), provider };
            let mut bytes = [0; 32];
            SplitMix64::new(seed).fill(&mut bytes);
            let process = Process::new(Endpoint::new(config, bytes), address(process), host, began);
            let nap = host.pauses.map(|pauses| Nap::new(pauses, !seed, began));
            Seat { process, machine, nap, state: State::Asleep }
        };
        let seats: Vec<_> = (0..=count).map(seat).collect();
        let client = |(n, (flow, start)): (usize, &(Flow, Duration))| {
            Client::new(flow, BEGINNING + *start, seed_of(plan.seed, count + 1 + n))
        };
        let link = |n| {
            let mut config = plan.link.clone();
            config.set_seed(seed_of(plan.link.forward.seed, n));
            DuplexLink::new(&config)
        };
        let mut agenda = Agenda::new(2 * count + 1);
        agenda.set(count + SERVER, Some(BEGINNING));
        plan.clients.iter().enumerate().for_each(|(n, (_, start))| agenda.set(count + 1 + n, Some(BEGINNING + *start)));
        Self {
            now: BEGINNING,
            limit: BEGINNING + plan.limit,
            machines,
            clients: plan.clients.iter().enumerate().map(client).collect(),
            served: Served::new((0..count).map(|n| (address(n + 1), n)).collect::<BTreeMap<_, _>>()),
            links: (0..count).map(link).collect(),
            seats,
            agenda,
            steps: 0,
            looked: BEGINNING,
            fingerprint: 0,
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Runs until all clients are done, or the plan's time is over. Returns the report.
    pub fn run(mut self) -> Report {
        self.until(self.limit);
        self.report()
    }

    /// Advances to `until`, but not beyond the limit of the plan. Returns whether all clients are done.
    pub fn until(&mut self, until: Time) -> bool {
        let until = until.min(self.limit);
        while let Some((at, number)) = self.agenda.next().filter(|&(at, _)| at <= until) {
            if at >= self.looked + LOOK {
                self.looked = at;
                if self.is_over() {
                    return true;
                }
            }
            self.steps = if at > self.now { 0 } else { self.steps + 1 };
            assert!(self.steps < MOST_STEPS, "{MOST_STEPS} steps at {:?}", self.now);
            self.now = self.now.max(at);
            match number.checked_sub(self.links.len()) {
                None => self.deliver(number),
                Some(process) if self.seats[process].state == State::Asleep => self.awake(process),
                Some(process) => {
                    self.step(process);
                    self.dispatch(self.seats[process].machine);
                }
            }
        }
        self.now = self.now.max(until);
        self.is_over()
    }

    fn is_over(&self) -> bool {
        self.clients.iter().all(Client::is_over)
    }

    /// Puts what a link delivers into the sockets.
    fn deliver(&mut self, link: usize) {
        let now = self.now;
        for (process, end) in [(SERVER, End::Far), (link + 1, End::Near)] {
            let mut any = false;
            loop {
                let duplex = &mut self.links[link];
                let way = if end == End::Far { &mut duplex.forward } else { &mut duplex.back };
                let Some(delivery) = way.poll_delivery(now) else { break };
                let mut parcel = delivery.payload;
                delivery.corruption.iter().for_each(|corruption| corruption.apply(&mut parcel.bytes));
                parcel.ecn = parcel.ecn.map(|own| if delivery.marked { Ecn::Ce } else { own });
                self.seats[process].process.inbox.push(now, parcel);
                any = true;
            }
            if any && self.seats[process].state == State::Asleep {
                self.awake(process);
            }
        }
        self.agenda.set(link, self.links[link].poll_timeout());
    }

    fn set(&mut self, process: usize, at: Option<Time>) {
        self.agenda.set(self.links.len() + process, at);
    }

    /// A sleeping process has something to do. It waits for a processor, or for the end of its pause.
    fn awake(&mut self, process: usize) {
        let (now, seat) = (self.now, &mut self.seats[process]);
        let from = seat.nap.as_mut().map_or(now, |nap| nap.until(now));
        if from > now {
            return self.set(process, Some(from));
        }
        seat.state = State::Ready;
        let machine = seat.machine;
        self.machines[machine].enqueue(process);
        self.set(process, None);
        self.dispatch(machine);
    }

    /// Gives free processors to waiting processes.
    fn dispatch(&mut self, machine: usize) {
        while let Some(process) = self.machines[machine].dispatch() {
            self.seats[process].state = State::Runs(Duration::ZERO);
            self.step(process);
        }
    }

    /// The process leaves its processor.
    fn release(&mut self, process: usize, state: State, until: Option<Time>) {
        let machine = self.seats[process].machine;
        self.seats[process].state = state;
        self.set(process, until);
        self.machines[machine].release();
    }

    /// Lets a process run until processor time has to pass, or it leaves its processor.
    fn step(&mut self, process: usize) {
        let now = self.now;
        let machine = self.seats[process].machine;
        loop {
            let seat = &mut self.seats[process];
            let outcome = if process == SERVER {
                seat.process.step(now, &mut Far { clients: &mut self.clients, served: &mut self.served })
            } else {
                let client = &mut self.clients[process - 1];
                seat.process.step(now, &mut Near { client, server: address(SERVER) })
            };
            self.depart(process);
            let State::Runs(ran) = self.seats[process].state else { return };
            let pause = self.seats[process].nap.as_mut().map(|nap| nap.until(now)).filter(|&until| until > now);
            match outcome {
                Outcome::Busy(time) => {
                    self.seats[process].state = State::Runs(ran + time);
                    return self.set(process, Some(now + time));
                }
                Outcome::Again if pause.is_some() => return self.release(process, State::Asleep, pause),
                Outcome::Again if self.machines[machine].is_over(ran) => {
                    self.release(process, State::Ready, None);
                    return self.machines[machine].enqueue(process);
                }
                Outcome::Again => {}
                Outcome::Sleeps(until) => return self.release(process, State::Asleep, until.max(pause)),
            }
        }
    }

    /// Puts what has left a process on the links.
    fn depart(&mut self, process: usize) {
        while let Some(parcel) = self.seats[process].process.poll_departure() {
            let found = match process.checked_sub(1) {
                Some(client) => Some((client, End::Near)).filter(|_| parcel.to == address(SERVER)),
                None => self.served.addresses.get(&parcel.to).map(|&client| (client, End::Far)),
            };
            let Some((link, end)) = found else { continue };
            let (len, has_marks) = (parcel.bytes.len(), parcel.ecn.is_some());
            let tag = parcel.bytes.last_chunk().map_or(0, |tag| u64::from_le_bytes(*tag));
            let values = [self.now.0, process as u64, len as u64, tag];
            let fold = |hash: u64, value: u64| (hash.rotate_left(5) ^ value).wrapping_mul(SplitMix64::STEP);
            self.fingerprint = values.into_iter().fold(self.fingerprint, fold);
            let sent = &mut self.clients[link].sent[end as usize];
            sent.datagrams += 1;
            sent.bytes += (len + crate::link::IPV4_UDP_HEADERS) as u64;
            let duplex = &mut self.links[link];
            let way = if end == End::Near { &mut duplex.forward } else { &mut duplex.back };
            way.send_from(self.now, len, has_marks, parcel);
            self.agenda.set(link, self.links[link].poll_timeout());
        }
    }
}
