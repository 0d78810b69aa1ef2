//! Busy hosts: many clients of one server on machines that are slow, whose sockets are small and whose
//! processes pause.
//!
//! What the hosts can do follows from a client alone, whose host keeps up: the processor time of its bytes.
//! What the links take follows from the same clients on hosts that take no time. The clients together may
//! take [`MOST_TIME`] times what their bytes need and [`REACTION`], and send [`MOST_SENT`] times what those
//! clients, or the one alone, send for each byte.

use core::fmt;
use core::time::Duration;

use tidewire_codec::SplitMix64;
use tidewire_proto::config::Config;
use tidewire_sim::crowd::{Crowd, Place, Plan, Report};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::host::{Host, Pauses};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;

use super::case::{Draw, Seed, loss_model};

/// Seeds of a full run.
pub const SEEDS: u64 = 60;
/// Seeds of a run with few: those that showed each fault that was mended.
pub const KEPT: [u64; 5] = [
    // A driver that always had something to send handed out no events, so no application read.
    9, 18,
    // Probes and losses while the news waited in a socket: up to 3.7 times the bytes and 3 times the time.
    25, 36, // Drops at the full socket of the receiver counted as losses of the path: 1.9 times the bytes.
    16,
];
/// Bytes of a record, and of a packet roughly.
const RECORD: f64 = 1_200.0;
/// Records of all clients at most, so that a seed takes about a second.
const RECORDS: f64 = 15_000.0;

/// Clients, their host, and what they send.
pub struct Busy {
    plan: Plan,
    /// The load of the processors: 1 is what they can just do.
    load: f64,
    /// Bytes per second that the processors can just do, of all clients.
    capacity: f64,
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { link, clients, server, place, .. } = &self.plan;
        f.debug_struct("Busy")
            .field("clients", &clients.len())
            .field("last", &clients.last())
            .field("rtt", &link.rtt())
            .field("loss", &link.forward.loss)
            .field("server", server)
            .field("place", place)
            .field("load", &self.load)
            .finish_non_exhaustive()
    }
}

impl Busy {
    pub fn new(seed: Seed) -> Self {
        let draw = &mut Draw(SplitMix64::new(seed.state()));
        let clients = draw.log(1.0, 150.0) as usize;
        let cost = |draw: &mut Draw, least: f64, most: f64| Duration::from_secs_f64(draw.log(least, most));
        let host = |draw: &mut Draw| Host {
            processors: 1 + draw.below(3) as usize,
            read: cost(draw, 20e-6, 300e-6),
            send: cost(draw, 20e-6, 300e-6),
            // From the default of Linux to what a socket asks for.
            buffer: draw.chance(0.8).then(|| draw.log(425_984.0, 8_388_608.0) as usize),
            pauses: draw.chance(0.3).then(|| Pauses {
                every: Duration::from_secs_f64(draw.log(0.2, 5.0)),
                length: [Duration::from_millis(5), Duration::from_millis(500)],
            }),
        };
        let server = host(draw);
        let place = match draw.below(3) {
            0 => Place::Beside,
            1 => Place::Together(host(draw)),
            _ => Place::Apart(host(draw)),
        };
        let mut link = DuplexConfig::default();
        link.set_rtt(Duration::from_secs_f64(draw.log(0.0001, 0.1)));
        if draw.chance(0.3) {
            let loss = draw.real(0.0, 0.05);
            (link.forward.loss, link.back.loss) = (loss_model(draw, loss), loss_model(draw, loss));
        }
        link.set_seed(seed.state());
        // Each record is a packet and its answer, and each of them is sent and read.
        let each = |host: &Host| (host.read + host.send).as_secs_f64();
        let capacity = RECORD
            * match &place {
                Place::Beside => (server.processors as f64 / 2.0).min(1.0) / each(&server),
                Place::Together(host) => (1.0 / each(&server)).min(host.processors as f64 / each(host)),
                Place::Apart(host) => (1.0 / each(&server)).min(clients as f64 / each(host)),
            };
        let load = draw.log(0.2, 4.0);
        let from = if draw.chance(0.3) { End::Far } else { End::Near };
        let rate = load * capacity / clients as f64;
        let bytes = (rate * draw.real(1.0, 4.0)).min(RECORDS * RECORD / clients as f64).max(2.0 * RECORD) as u64;
        let flow = if draw.chance(0.25) { Flow::bulk(from, bytes) } else { Flow::paced(from, bytes, rate as u64) };
        let spread = Duration::from_secs_f64(draw.log(0.01, 1.0)) / clients as u32;
        let start = |n: usize| (flow.clone(), spread * n as u32);
        let plan = Plan {
            link,
            ends: [Config::default(), Config::default()],
            clients: (0..clients).map(start).collect(),
            server,
            place,
            seed: seed.state(),
            limit: Duration::from_secs(60),
        };
        Self { plan, load, capacity }
    }

    /// One of the clients alone, at a tenth of what the processors can do, on hosts that never pause.
    fn alone(&self) -> Report {
        let mut plan = self.plan.clone();
        plan.clients.truncate(1);
        plan.clients[0].0.rate = Some((self.capacity / 10.0) as u64);
        plan.server.pauses = None;
        if let Place::Together(host) | Place::Apart(host) = &mut plan.place {
            host.pauses = None;
        }
        Crowd::new(&plan).run()
    }

    /// The time that the bytes take on these hosts at least.
    fn needs(&self, alone: &Report) -> Duration {
        let Plan { clients, server, place, .. } = &self.plan;
        let (flow, start) = clients.last().expect("at least one");
        let made = flow.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(flow.bytes as f64 / rate as f64));
        let count = clients.len() as u32;
        let [near, far] = [alone.busy() - alone.server.busy, alone.server.busy].map(|busy| busy * count);
        let near = match place {
            Place::Beside => (near + far) / server.processors as u32,
            Place::Together(host) => near / host.processors as u32,
            Place::Apart(_) => near / count,
        };
        near.max(far).max(made) + *start
    }

    /// The machine of the server, and that of a client.
    fn hosts(&self) -> [Host; 2] {
        match self.plan.place {
            Place::Beside => [self.plan.server; 2],
            Place::Together(host) | Place::Apart(host) => [self.plan.server, host],
        }
    }

    /// The time that all clients may take if their bytes need `needs`.
    fn allowed(&self, needs: Duration) -> Duration {
        let mut allowed = needs.mul_f64(MOST_TIME);
        let mut reaction = REACTION;
        for pauses in self.hosts().into_iter().filter_map(|host| host.pauses) {
            // The mean of a length whose logarithm is drawn evenly from 5 to 500 ms is 107 ms. Two of the
            // longest may come at the end.
            allowed = allowed.mul_f64(1.0 + 0.107 / pauses.every.as_secs_f64());
            reaction += pauses.length[1] * 2;
        }
        allowed + reaction
    }

    /// The same clients over the same links, on hosts that take no time.
    fn fast(&self) -> Report {
        let (server, place) = (Host::default(), Place::Apart(Host::default()));
        Crowd::new(&Plan { server, place, ..self.plan.clone() }).run()
    }

    /// Runs the clients. Returns the time of the whole in parts of what is allowed, and the bytes sent for a
    /// byte in parts of what they send on hosts that take no time, or one alone on these hosts.
    ///
    /// # Errors
    /// Bytes are wrong or did not arrive, or a bound does not hold.
    pub fn run(&self) -> Result<(f64, f64, Report), String> {
        let (alone, fast) = (self.alone(), self.fast());
        let report = Crowd::new(&self.plan).run();
        let wrong: Vec<_> = report.clients.iter().flat_map(|client| &client.errors).take(3).collect();
        if !wrong.is_empty() {
            return Err(format!("wrong bytes: {wrong:?}"));
        }
        let needs = self.needs(&alone).max(fast.done().ok_or("not done on hosts that take no time")?);
        let sent = report.sent_per_byte() / alone.sent_per_byte().max(fast.sent_per_byte());
        let numbers = format!(
            "{} clients, {}, load {:.2}; {needs:.2?} needed; {sent:.2} times the bytes; {:?} dropped, read \
             after {:.2?}",
            report.clients.len(),
            if self.plan.clients[0].0.rate.is_some() { "records" } else { "bulk" },
            self.load,
            report.dropped(),
            report.server.socket.longest
        );
        let Some(done) = report.done() else {
            let left = report.clients.iter().filter(|client| client.done.is_none());
            let left: Vec<_> = left.map(|client| (client.bytes, &client.closed)).take(3).collect();
            return Err(format!("not done: {left:?}; {numbers}"));
        };
        let time = done.as_secs_f64() / self.allowed(needs).as_secs_f64();
        if time > 1.0 || sent > MOST_SENT {
            return Err(format!("{time:.2} times the time allowed; {numbers}"));
        }
        Ok((time, sent, report))
    }
}

/// Time of all clients in parts of what their bytes need on the host.
const MOST_TIME: f64 = 1.5;
/// Bytes sent for each byte, in parts of what hosts that keep up send.
const MOST_SENT: f64 = 1.3;
/// Time that does not follow from the bytes: a lost HELLO or probe.
const REACTION: Duration = Duration::from_secs(1);
