//! Busy hosts: many clients of one server, and processors that need time for each datagram
//! (`tidewire_sim::crowd`).
//!
//! Each client sends a record of 1,200 bytes every 9.6 ms (1 Mbit/s) over a round trip of 0.1 ms, as
//! `tidewire bench` does. Each test prints its report.
//!
//! `HOSTS=CLIENTS,SECONDS,READ,SEND,SEED` runs one case: clients, seconds of records, microseconds to read
//! and to send a datagram, seed. The command is `HOSTS=150,3,45,45,1 cargo test -p tidewire-sim --test hosts
//! -- --nocapture case`.

mod rules;
mod storm;

use core::time::Duration;
use std::path::Path;

use tidewire_proto::config::Config;
use tidewire_proto::stats::PacketStats;
use tidewire_sim::crowd::{ClientReport, Crowd, Place, Plan, Report};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::host::Host;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::settings::Direction;

/// Bytes per second of a client.
const RATE: u64 = 125_000;

/// Clients on the machine of their server.
#[derive(Clone, Copy, Debug)]
struct Case {
    clients: usize,
    seconds: u64,
    /// Processor time to read a datagram and to send one.
    cost: [Duration; 2],
    processors: usize,
    /// Bytes of a socket's buffer.
    buffer: usize,
    seed: u64,
}

impl Case {
    /// Two processors that read or send a datagram in 45 us: about 100 clients keep them busy. The buffer is
    /// that of Linux where `net.core.rmem_max` allows the 4 MiB that the socket asks for.
    fn new(clients: usize, seed: u64) -> Self {
        let cost = [Duration::from_micros(45); 2];
        Self { clients, seconds: 3, cost, processors: 2, buffer: 8 << 20, seed }
    }

    fn plan(&self) -> Plan {
        let mut link = DuplexConfig::default();
        link.set(Direction::Both, "rtt", "100us", Path::new("")).expect("a setting");
        link.set_seed(self.seed);
        let [read, send] = self.cost;
        let host = Host { processors: self.processors, read, send, buffer: Some(self.buffer), pauses: None };
        // Shells start about 300 processes in a second. The seed moves each start by up to 4 ms.
        let start = |n: u64| Duration::from_micros(n * 3_137 + (self.seed * 7_919 + n * 104_729) % 4_000);
        let flow = Flow::paced(End::Near, RATE * self.seconds, RATE);
        Plan {
            link,
            ends: [Config::default(), Config::default()],
            clients: (0..self.clients as u64).map(|n| (flow.clone(), start(n))).collect(),
            server: host,
            place: Place::Beside,
            seed: self.seed,
            limit: Duration::from_secs(60) + Duration::from_secs(self.seconds) * 20,
        }
    }

    /// How long the bytes take on this host at least: the time in which the applications make them, and the
    /// processor time that one client alone needs for its bytes, for all clients together and for the server,
    /// which is one process.
    fn needs(&self) -> Duration {
        let alone = Crowd::new(&Self { clients: 1, ..*self }.plan()).run();
        let clients = self.clients as u32;
        let made = self.plan().clients.last().map_or(Duration::ZERO, |(_, start)| *start) + alone.elapsed;
        made.max(alone.busy() * clients / self.processors as u32).max(alone.server.busy * clients)
    }

    fn run(&self) -> Outcome {
        let outcome = Outcome { needs: self.needs(), report: Crowd::new(&self.plan()).run() };
        outcome.tell(self);
        outcome
    }
}

/// A run, and the least time that it takes.
struct Outcome {
    needs: Duration,
    report: Report,
}

impl Outcome {
    /// The time until all clients are done, in parts of the least time.
    fn times_needed(&self) -> f64 {
        self.report.done().map_or(f64::INFINITY, |done| done.as_secs_f64() / self.needs.as_secs_f64())
    }

    fn sum(&self, of: impl Fn(&ClientReport) -> u64) -> u64 {
        self.report.clients.iter().map(of).sum()
    }

    /// Whether all bytes arrived, and both ends of each connection knew it.
    fn is_whole(&self) -> bool {
        self.report.clients.iter().all(|client| client.errors.is_empty() && client.done.is_some())
    }

    fn tell(&self, case: &Case) {
        let report = &self.report;
        let bytes = report.bytes() as f64;
        let [up, back] = [0, 1].map(|end| self.sum(|client| client.sent[end].bytes) as f64 / bytes);
        let done = report.clients.iter().filter(|client| client.done.is_some()).count();
        println!(
            "{case:?}: wire/app {:.3} ({up:.3} of clients, {back:.3} of the server); {done} of {} done, after {:.2?}; \
             least time {:.2?}, ratio {:.2}; {:.1} Mbit/s; longest stall {:.2?}",
            report.sent_per_byte(),
            case.clients,
            report.elapsed,
            self.needs,
            self.times_needed(),
            bytes * 8e-6 / report.elapsed.as_secs_f64(),
            report.longest_stall()
        );
        for (end, name) in [(0, "clients"), (1, "server")] {
            let packets = |of: fn(&PacketStats) -> u64| self.sum(|client| of(&client.ends[end].packets));
            println!(
                "  {name}: {} datagrams, {} source, {} repairs, {} answers, {} control, {} declared lost; {} redundant came",
                self.sum(|client| client.sent[end].datagrams),
                packets(|packets| packets.source),
                packets(|packets| packets.repair),
                packets(|packets| packets.feedback_repair),
                packets(|packets| packets.control),
                packets(|packets| packets.lost),
                packets(|packets| packets.redundant),
            );
        }
        let longest = report.clients.iter().map(|client| client.process.socket.longest).max().unwrap_or_default();
        println!(
            "  sockets: {:?} dropped, read after {:.2?} (server) and {longest:.2?} (clients) at most; processors {:.2?}, server {:.2?}",
            report.dropped(),
            report.server.socket.longest,
            report.busy(),
            report.server.busy
        );
        let closed = report.clients.iter().filter(|client| client.done.is_none()).map(|client| &client.closed);
        closed.take(3).for_each(|closed| println!("  not done: {closed:?}"));
        report.clients.iter().flat_map(|client| &client.errors).take(3).for_each(|error| println!("  {error}"));
    }
}

/// The case of the variable `HOSTS`, or a small one.
#[test]
fn case_of_the_command_line() {
    let text = std::env::var("HOSTS").unwrap_or_else(|_| "10,1,45,45,1".into());
    let numbers: Vec<u64> = text.split(',').map(|number| number.parse().expect("a number")).collect();
    let [clients, seconds, read, send, seed] = numbers[..] else { panic!("HOSTS={text}: five numbers") };
    let cost = [read, send].map(Duration::from_micros);
    let outcome = Case { seconds, cost, ..Case::new(clients as usize, seed) }.run();
    assert!(std::env::var("HOSTS").is_ok() || outcome.is_whole());
}
