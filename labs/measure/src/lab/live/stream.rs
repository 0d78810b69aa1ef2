//! A transport stream at a constant rate, whose packets may hold their numbers, and the player behind it.
//!
//! [`super`] sends it into a carrier, and the player receives what comes out. Source and player are
//! threads of one process, so delays have one clock. Invariant: a packet is missing if its number never came.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A packet of a transport stream (ISO/IEC 13818-1), and those of a datagram.
pub const PACKET: usize = 188;
pub const PACKETS: usize = 7;
/// Bytes of a datagram.
pub const DATAGRAM: usize = PACKETS * PACKET;
/// Interval of datagrams at 6 Mbit/s.
pub const INTERVAL: Duration = Duration::from_nanos(1_754_667);
/// Where the number of a packet stands, behind its head of four bytes.
const NUMBER: std::ops::Range<usize> = 8..16;

/// Sends datagrams at a constant rate. Returns when each was sent.
pub fn send<D: AsRef<[u8]>>(
    to: SocketAddr,
    datagrams: impl Iterator<Item = D>,
    interval: Duration,
) -> Result<Vec<Instant>, String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    let (begin, mut sent, mut next) = (Instant::now(), Vec::new(), Duration::ZERO);
    for datagram in datagrams {
        thread::sleep(next.saturating_sub(begin.elapsed()));
        sent.push(Instant::now());
        // An end that does not listen yet refuses it; the packet then counts as missing.
        let _ = socket.send_to(datagram.as_ref(), to);
        next += interval;
    }
    Ok(sent)
}

/// The datagrams of a stream of numbered packets of this length.
pub fn numbered(length: Duration) -> impl Iterator<Item = Vec<u8>> {
    (0..(length.as_nanos() / INTERVAL.as_nanos()) as u64).map(datagram)
}

/// The datagram with this number.
pub fn datagram(number: u64) -> Vec<u8> {
    let mut bytes = vec![0xff; DATAGRAM];
    for (n, packet) in (number * PACKETS as u64..).zip(bytes.chunks_exact_mut(PACKET)) {
        packet[..4].copy_from_slice(&[0x47, 0x01, 0x00, 0x10 | (n % 16) as u8]);
        packet[NUMBER].copy_from_slice(&n.to_be_bytes());
    }
    bytes
}

/// The numbers of the packets in a datagram.
fn numbers(datagram: &[u8]) -> impl Iterator<Item = u64> {
    let packets = datagram.chunks_exact(PACKET).filter(|packet| packet[0] == 0x47);
    packets.map(|packet| u64::from_be_bytes(packet[NUMBER].try_into().expect("eight bytes")))
}

/// A player on a socket of its own. It keeps of each datagram what its caller takes.
pub struct Player<T> {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    playing: JoinHandle<Vec<T>>,
}

impl Player<(u64, Instant)> {
    /// A player that keeps the numbers of packets, and when they came.
    pub fn of_numbers() -> Result<Self, String> {
        Self::start(|came, datagram, at| came.extend(numbers(datagram).map(|number| (number, at))))
    }
}

impl Player<u8> {
    /// A player that keeps all bytes.
    pub fn of_bytes() -> Result<Self, String> {
        Self::start(|came, datagram, _| came.extend_from_slice(datagram))
    }
}

impl<T: Send + 'static> Player<T> {
    fn start(take: fn(&mut Vec<T>, &[u8], Instant)) -> Result<Self, String> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
        let address = socket.local_addr().map_err(|e| e.to_string())?;
        socket.set_read_timeout(Some(Duration::from_millis(100))).map_err(|e| e.to_string())?;
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let playing = thread::spawn(move || {
            let (mut came, mut bytes) = (Vec::new(), [0; 2_048]);
            while !until.load(Ordering::Relaxed) {
                if let Ok(length) = socket.recv(&mut bytes) {
                    take(&mut came, &bytes[..length], Instant::now());
                }
            }
            came
        });
        Ok(Self { address, ended, playing })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends, and returns what it kept.
    pub fn finish(self) -> Vec<T> {
        self.ended.store(true, Ordering::Relaxed);
        self.playing.join().unwrap_or_default()
    }
}

/// What a player has seen.
pub struct Seen {
    /// Packets that were sent, and those that came.
    sent: usize,
    came: usize,
    delays: Vec<Duration>,
}

impl Seen {
    /// Compares what came with what was sent, from `steady` after its begin.
    pub fn new(sent: &[Instant], came: &[(u64, Instant)], steady: Duration) -> Self {
        let from = sent.first().map_or(0, |begin| sent.partition_point(|at| at.duration_since(*begin) < steady));
        let mut first: Vec<Option<Instant>> = vec![None; sent.len() * PACKETS];
        for &(number, at) in came {
            if let Some(first) = usize::try_from(number).ok().and_then(|number| first.get_mut(number)) {
                first.get_or_insert(at);
            }
        }
        let counted = first.iter().zip(sent.iter().flat_map(|at| [at; PACKETS])).skip(from * PACKETS);
        let mut delays: Vec<_> =
            counted.filter_map(|(came, sent)| Some(came.as_ref()?.duration_since(*sent))).collect();
        delays.sort_unstable();
        Self { sent: (sent.len() - from) * PACKETS, came: delays.len(), delays }
    }

    /// Fraction of the packets that never came.
    pub fn missing(&self) -> f64 {
        (self.sent - self.came) as f64 / self.sent as f64
    }

    /// The delay that a fraction `q` of the packets that came did not exceed.
    pub fn delay(&self, q: f64) -> Option<Duration> {
        tidewire_figures::quantile(&self.delays, q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_counted_by_their_numbers_and_once() {
        let begin = Instant::now();
        let after = |ms| begin + Duration::from_millis(ms);
        let sent = [begin, after(10), after(20), after(30)];
        let came: Vec<_> = [(0, 110), (2, 130), (2, 140), (3, 150)]
            .iter()
            .flat_map(|&(n, ms)| numbers(&datagram(n)).map(move |number| (number, after(ms))).collect::<Vec<_>>())
            .collect();
        let seen = Seen::new(&sent, &came, Duration::from_millis(10));
        assert_eq!((seen.sent, seen.came), (21, 14));
        assert_eq!([0.0, 0.99].map(|q| seen.delay(q)), [110, 120].map(|ms| Some(Duration::from_millis(ms))));
    }
}
