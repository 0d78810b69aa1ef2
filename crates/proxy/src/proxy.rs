//! The link emulator as a UDP proxy: clients on one side, one target on the other, a [`DuplexLink`] between
//! them. It needs no privileges.
//!
//! `tidewire-lab link` runs it until Ctrl-C, `demo` during a transfer. One thread does everything: it reads
//! datagrams from the sockets, gives them to the link with the time at which they were read, and sleeps in
//! `poll` until the next delivery is due or a datagram arrives. Datagrams keep their ECN field, and the link
//! sets the congestion mark in those whose sender knows it. All clients share the one link, like stations
//! behind one router. Each client has its own socket to the target, so that the target can distinguish them.
//! Invariant: deliveries are handed to the kernel in the order of the link, at most one wake-up late (about
//! 0.1 ms if a core is free).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidewire_proto::Time;
use tidewire_sim::duplex::{DuplexConfig, DuplexLink};
use tidewire_sim::link::{Link, LinkStats};

use crate::carrier::{Carrier, Spare};
use crate::datagrams::{Datagrams, Joined, MAX_DATAGRAM, Mark};
use crate::punctual::be_punctual;

/// Maximum number of clients. One more replaces the client that was silent longest. Chosen: a lab has a
/// handful.
const MAX_CLIENTS: usize = 64;
/// Receive calls for one socket before the others have their turn.
const BATCH: usize = 64;
/// Longest time until a request to stop is noticed.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// Counts of a proxy.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProxyStats {
    /// The direction from the clients to the target.
    pub forward: LinkStats,
    /// The direction from the target to the clients.
    pub back: LinkStats,
    /// Number of clients seen.
    pub clients: u64,
    /// Datagrams that the kernel refused, because the target's port is closed or a socket buffer is full.
    pub refused: u64,
}

/// A running proxy. It stops when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    carrier: Carrier<ProxyStats>,
}

impl Proxy {
    /// Listens on `listen` and carries datagrams to `target` and back.
    ///
    /// # Errors
    /// Fails if the address cannot be listened on, or no thread can be started.
    pub fn start(listen: SocketAddr, target: SocketAddr, config: &DuplexConfig) -> io::Result<Self> {
        let listener = Datagrams::bind(listen)?;
        let address = listener.local_addr()?;
        let mut engine = Engine {
            listener,
            target,
            clients: Vec::new(),
            link: DuplexLink::new(config),
            start: Instant::now(),
            spare: Spare::default(),
            scratch: vec![0; MAX_DATAGRAM],
            seen: 0,
            refused: 0,
        };
        let carrier = Carrier::start(move |stop, stats| engine.run(stop, stats))?;
        Ok(Self { address, carrier })
    }

    /// The address to which clients send.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counts so far.
    pub fn stats(&self) -> ProxyStats {
        self.carrier.counts()
    }

    /// Whether it still carries datagrams. If not, [`stop`](Self::stop) returns why.
    pub fn is_running(&self) -> bool {
        self.carrier.is_running()
    }

    /// Stops and returns the counts.
    ///
    /// # Errors
    /// The error that ended it early, if there was one.
    pub fn stop(self) -> io::Result<ProxyStats> {
        self.carrier.stop()
    }
}

/// A sender on this side of the link.
struct Client {
    /// Distinguishes it from earlier clients in the same slot.
    number: u64,
    address: SocketAddr,
    /// The socket connected to the target.
    upstream: Datagrams,
    heard: Instant,
}

/// A datagram in the link.
#[derive(Clone)]
struct Datagram {
    client: u64,
    mark: Mark,
    bytes: Vec<u8>,
}

struct Engine {
    listener: Datagrams,
    target: SocketAddr,
    clients: Vec<Client>,
    link: DuplexLink<Datagram>,
    start: Instant,
    spare: Spare,
    scratch: Vec<u8>,
    seen: u64,
    refused: u64,
}

impl Engine {
    fn run(&mut self, stop: &AtomicBool, stats: &Mutex<ProxyStats>) -> io::Result<()> {
        be_punctual();
        while !stop.load(Ordering::Relaxed) {
            self.read_clients()?;
            self.read_target();
            self.deliver();
            let counted = ProxyStats {
                forward: *self.link.forward.stats(),
                back: *self.link.back.stats(),
                clients: self.seen,
                refused: self.refused,
            };
            *stats.lock().unwrap_or_else(PoisonError::into_inner) = counted;
            self.wait()?;
        }
        Ok(())
    }

    fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    /// Sleeps until a datagram arrives or a delivery is due.
    fn wait(&self) -> io::Result<()> {
        let due = self.link.poll_timeout().map_or(STOP_CHECK, |at| at.since(self.now()));
        let timeout = Timespec::try_from(due.min(STOP_CHECK)).map_err(io::Error::other)?;
        let sockets = std::iter::once(&self.listener).chain(self.clients.iter().map(|client| &client.upstream));
        let mut sockets: Vec<PollFd<'_>> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        match poll(&mut sockets, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn read_clients(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            let Joined { from, mark, len, stride } = match self.listener.receive(&mut self.scratch) {
                Ok(joined) => joined,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An ICMP error for a datagram sent earlier. The next call continues.
                Err(_) => continue,
            };
            let client = self.client(from)?;
            let now = self.now();
            for bytes in self.scratch[..len].chunks(stride) {
                let datagram = Datagram { client, mark, bytes: self.spare.filled(bytes) };
                self.link.forward.send_from(now, bytes.len(), mark.is_capable(), datagram);
            }
        }
        Ok(())
    }

    fn read_target(&mut self) {
        for client in &self.clients {
            for _ in 0..BATCH {
                let Joined { mark, len, stride, .. } = match client.upstream.receive(&mut self.scratch) {
                    Ok(joined) => joined,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => {
                        self.refused += 1;
                        break;
                    }
                };
                let now = Time::ZERO + self.start.elapsed();
                for bytes in self.scratch[..len].chunks(stride) {
                    let datagram = Datagram { client: client.number, mark, bytes: self.spare.filled(bytes) };
                    self.link.back.send_from(now, bytes.len(), mark.is_capable(), datagram);
                }
            }
        }
    }

    /// Hands to the kernel what has arrived at either end of the link.
    fn deliver(&mut self) {
        let now = self.now();
        let Self { link, clients, listener, spare, refused, .. } = self;
        hand_out(&mut link.forward, now, clients, spare, refused, |client, bytes, mark| {
            client.upstream.send(bytes, mark)
        });
        hand_out(&mut link.back, now, clients, spare, refused, |client, bytes, mark| {
            listener.send_to(bytes, client.address, mark)
        });
    }

    /// The number of the client at `address`. A new client is added.
    fn client(&mut self, address: SocketAddr) -> io::Result<u64> {
        let heard = Instant::now();
        if let Some(client) = self.clients.iter_mut().find(|client| client.address == address) {
            client.heard = heard;
            return Ok(client.number);
        }
        let any =
            if self.target.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
        let upstream = Datagrams::bind(SocketAddr::new(any, 0))?;
        upstream.connect(self.target)?;
        let number = self.seen;
        self.seen += 1;
        if self.clients.len() == MAX_CLIENTS
            && let Some(silent) = (0..MAX_CLIENTS).min_by_key(|&slot| self.clients[slot].heard)
        {
            self.clients.swap_remove(silent);
        }
        self.clients.push(Client { number, address, upstream, heard });
        Ok(number)
    }
}

/// Sends on every datagram that has left `link` by `now`.
fn hand_out(
    link: &mut Link<Datagram>,
    now: Time,
    clients: &[Client],
    spare: &mut Spare,
    refused: &mut u64,
    send: impl Fn(&Client, &[u8], Mark) -> io::Result<()>,
) {
    while let Some(mut delivery) = link.poll_delivery(now) {
        if let Some(corruption) = delivery.corruption {
            corruption.apply(&mut delivery.payload.bytes);
        }
        let Datagram { client, mark, bytes } = delivery.payload;
        let mark = if delivery.marked { mark.congested() } else { mark };
        if let Some(client) = clients.iter().find(|known| known.number == client) {
            *refused += u64::from(send(client, &bytes, mark).is_err());
        }
        spare.keep(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::path::Path;
    use tidewire_sim::settings::Direction;

    fn config(settings: &[(Direction, &str, &str)]) -> DuplexConfig {
        let mut config = DuplexConfig::default();
        for (direction, key, text) in settings {
            config.set(*direction, key, text, Path::new("")).unwrap();
        }
        config.set_seed(7);
        config
    }

    fn local() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket
    }

    fn count(socket: &UdpSocket) -> u64 {
        let mut buffer = [0; 2000];
        std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count() as u64
    }

    #[test]
    fn takes_the_round_trip_and_keeps_clients_apart() {
        let target = local();
        let config = config(&[(Direction::Both, "rtt", "60ms")]);
        let proxy = Proxy::start("127.0.0.1:0".parse().unwrap(), target.local_addr().unwrap(), &config).unwrap();
        let (one, two) = (local(), local());
        let mut buffer = [0; 100];
        let begun = Instant::now();
        for (client, name) in [(&one, b"one"), (&two, b"two")] {
            client.send_to(name, proxy.address()).unwrap();
        }
        for _ in 0..2 {
            let (length, from) = target.recv_from(&mut buffer).unwrap();
            target.send_to(&buffer[..length], from).unwrap();
        }
        for (client, name) in [(&one, b"one"), (&two, b"two")] {
            let length = client.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], name);
        }
        // Only a lower bound: on a busy machine, lateness says nothing about the emulator.
        assert!(begun.elapsed() >= Duration::from_millis(60));
        let stats = proxy.stop().unwrap();
        assert_eq!((stats.clients, stats.forward.delivered, stats.back.delivered), (2, 2, 2));
    }

    #[test]
    fn loses_on_the_way_there_and_limits_the_rate() {
        let target = local();
        let settings = [
            (Direction::Forward, "loss", "20%"),
            (Direction::Both, "rate", "100mbit"),
            (Direction::Both, "queue", "10MB"),
        ];
        let proxy =
            Proxy::start("127.0.0.1:0".parse().unwrap(), target.local_addr().unwrap(), &config(&settings)).unwrap();
        let client = local();
        let begun = Instant::now();
        for _ in 0..1000 {
            client.send_to(&[0; 1222], proxy.address()).unwrap();
        }
        let arrived = count(&target);
        let took = begun.elapsed();
        let stats = proxy.stop().unwrap();
        assert_eq!(stats.forward.offered, 1000);
        assert_eq!(arrived, stats.forward.delivered);
        assert_eq!(stats.forward.lost + arrived, 1000);
        // Five deviations of the binomial distribution. The seed is fixed, so this checks only the wiring.
        assert!((137..=263).contains(&stats.forward.lost), "{}", stats.forward.lost);
        // 1,000 packets of 1,250 bytes take 100 ms at 100 Mbit/s.
        assert!(took >= Duration::from_millis(99), "{took:?}");
    }

    /// Ten packets at 1 Mbit/s wait up to 90 ms. Those that wait longer than 35 ms are marked, if their
    /// sender knows marks.
    #[test]
    fn a_long_queue_marks_what_a_sender_that_knows_marks_sends() {
        let settings = [(Direction::Forward, "rate", "1mbit"), (Direction::Forward, "mark", "35ms")];
        for (ecn, expected) in [(0, 0), (2, 6)] {
            let target = Datagrams::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let proxy =
                Proxy::start("127.0.0.1:0".parse().unwrap(), target.local_addr().unwrap(), &config(&settings)).unwrap();
            let client = local();
            rustix::net::sockopt::set_ip_tos(&client, ecn).unwrap();
            for _ in 0..10 {
                client.send_to(&[0; 1222], proxy.address()).unwrap();
            }
            let (mut arrived, mut congested, mut buffer) = (0, 0, vec![0; MAX_DATAGRAM]);
            while arrived < 10 {
                let Ok(joined) = target.receive(&mut buffer) else {
                    std::thread::yield_now();
                    continue;
                };
                let datagrams = joined.len.div_ceil(joined.stride);
                arrived += datagrams;
                congested +=
                    datagrams * usize::from(joined.mark != Mark::default() && joined.mark.congested() == joined.mark);
            }
            // The client may be interrupted while it sends: then fewer wait.
            assert!(congested <= expected && (congested > 0) == (expected > 0), "{ecn}: {congested}");
        }
    }

    #[test]
    fn a_closed_target_is_counted_and_not_fatal() {
        let closed = local().local_addr().unwrap();
        let proxy = Proxy::start("127.0.0.1:0".parse().unwrap(), closed, &config(&[])).unwrap();
        let client = local();
        for _ in 0..50 {
            client.send_to(b"x", proxy.address()).unwrap();
            std::thread::yield_now();
        }
        assert_eq!(count(&client), 0);
        let stats = proxy.stop().unwrap();
        assert_eq!(stats.forward.offered, 50);
        assert!(stats.refused > 0);
    }
}
