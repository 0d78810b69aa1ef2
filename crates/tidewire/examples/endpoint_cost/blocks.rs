//! What a packet costs the endpoint while a hostile peer reads at 100 Mbit/s in small blocks for which it
//! asked, and what its FEEDBACK costs when it floods.
//!
//! The peer acknowledges a share of the packets, and reports no symbol as decoded. So blocks stay open, and
//! repairs stay in flight.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use tidewire_proto::config::Config;
use tidewire_proto::connection::StreamId;
use tidewire_proto::rate::RateControl;
use tidewire_proto::wire::Frame;

use super::host::{Host, Peer};
use super::hostile::{FLOOD, IP_UDP_HEADER, feedback};

const RATE: u64 = 100_000_000;
/// In milliseconds.
const ROUND_TRIP: u64 = 100;
const TIME: u64 = 4_000;
/// The second half is measured.
const SETTLED: u64 = TIME / 2;
/// FEEDBACK comes so often in milliseconds.
const OFTEN: u64 = 10;

const POLICIES: [&str; 6] = [
    "sliding rlc adaptive",
    "generations rlc block:2,1",
    "generations rlc block:8,4",
    "generations cauchy block:32,8",
    "generations rlc bucket:15,1.25",
    "generations rlc sphinx:4",
];

/// Prints a row for each policy and each share of packets that the peer acknowledges.
pub fn run() {
    println!("POLICY                            acknowledged   packets      each   of a core   looks for each");
    for policy in POLICIES {
        for share in [0, 30, 70] {
            let mut reader = Reader::new(policy, share);
            reader.read(TIME, |_| ());
            let Reader { packets, time, looks, .. } = reader;
            let each = time.as_secs_f64() / packets as f64;
            let of_core = time.as_secs_f64() / (TIME - SETTLED) as f64 * 1e3;
            println!(
                "{policy:35} {share:7} %  {packets:8}  {:8.2} us {:7.1} %  {:8.1}",
                1e6 * each,
                100.0 * of_core,
                looks as f64 / packets as f64
            );
        }
    }
    println!("POLICY                         FEEDBACK at 20 Mbit/s: bytes      each   of a core, with what is sent");
    for policy in POLICIES {
        flood(policy);
    }
}

/// A flood of FEEDBACK that acknowledges one packet each, and nothing new every second time.
fn flood(policy: &str) {
    let mut reader = Reader::new(policy, 30);
    reader.read(SETTLED, |_| ());
    (reader.packets, reader.time) = (0, Duration::ZERO);
    let len = reader.acknowledge(&[reader.newest]).len();
    let often = FLOOD / 8.0 / 1e3 / (len + IP_UDP_HEADER) as f64;
    let (mut due, mut sent, mut spent) = (0.0, 0_u32, Duration::ZERO);
    reader.read(SETTLED, |reader| {
        due += often;
        while f64::from(sent) < due {
            let number = reader.newest - 20 * (u64::from(sent) / 2 % 100);
            let mut datagram = reader.acknowledge(&[number]);
            let began = Instant::now();
            reader.host.take(reader.peer.from, &mut datagram);
            spent += began.elapsed();
            sent += 1;
        }
    });
    let of_core = (spent + reader.time).as_secs_f64() / SETTLED as f64 * 1e3;
    let each = spent.as_secs_f64() / f64::from(sent);
    println!("{policy:35} {len:23} {:9.2} us {:7.1} %", 1e6 * each, 100.0 * of_core);
}

/// A hostile peer that reads.
struct Reader {
    host: Host,
    peer: Peer,
    stream: StreamId,
    /// Share of the packets that it acknowledges, in per cent.
    share: u64,
    milli: u64,
    /// Packets that it has not acknowledged yet, with the time when they came.
    came: VecDeque<(u64, u64)>,
    newest: u64,
    /// Packets of the measured time, the time that the endpoint took, and its looks.
    packets: u64,
    time: Duration,
    looks: u64,
}

impl Reader {
    fn new(policy: &str, share: u64) -> Self {
        let config = Config::builder()
            .rate_control(RateControl::Fixed { bits_per_second: RATE })
            .idle_timeout(Duration::from_secs(86_400))
            .build()
            .expect("in range");
        let mut host = Host::new(config);
        let (mut peer, ..) = host.meet(1);
        let mut datagram = peer.seal(|w| Frame::Policy(policy).emit(w).expect("room"));
        host.take(peer.from, &mut datagram);
        let handle = host.endpoint.connections().next().expect("connected").0;
        let stream = host.endpoint.connection_mut(handle).expect("connected").open_stream().expect("allowed");
        let (came, time) = (VecDeque::new(), Duration::ZERO);
        Self { host, peer, stream, share, milli: 0, came, newest: 0, packets: 0, time, looks: 0 }
    }

    fn acknowledge(&mut self, numbers: &[u64]) -> Vec<u8> {
        let mut received: Vec<RangeInclusive<u64>> = Vec::new();
        for &number in numbers {
            match received.last_mut() {
                Some(last) if *last.start() == number + 1 => *last = number..=*last.end(),
                _ => received.push(number..=number),
            }
        }
        self.peer.seal(|w| feedback(w, &received, 0))
    }

    /// Reads for a while. `flood` is called in each millisecond.
    fn read(&mut self, millis: u64, mut flood: impl FnMut(&mut Self)) {
        let data = vec![1; 1 << 16];
        for _ in 0..millis {
            let handle = self.host.endpoint.connections().next().expect("connected").0;
            let connection = self.host.endpoint.connection_mut(handle).expect("alive");
            while connection.write(self.stream, &data).is_ok() {}
            let looks = connection.looks();
            self.turn(looks);
            self.host.now += Duration::from_millis(1);
            self.milli += 1;
            flood(self);
            let mut numbers = Vec::new();
            while let Some(&(number, at)) = self.came.front()
                && at + ROUND_TRIP <= self.milli
                && self.milli.is_multiple_of(OFTEN)
            {
                self.came.pop_front();
                // One of 64 keeps the connection alive.
                if number * 37 % 100 < self.share || number % 64 == 0 {
                    numbers.insert(0, number);
                }
            }
            if let Some(&newest) = numbers.first() {
                self.newest = newest;
                let mut datagram = self.acknowledge(&numbers);
                let began = Instant::now();
                self.host.take(self.peer.from, &mut datagram);
                self.spend(began.elapsed());
            }
        }
    }

    fn spend(&mut self, time: Duration) {
        if self.milli >= SETTLED {
            self.time += time;
        }
    }

    fn turn(&mut self, looks: u64) {
        let began = Instant::now();
        let mut sent = Vec::new();
        self.host.turn(|_, datagram| sent.push(datagram.to_vec()));
        self.spend(began.elapsed());
        let handle = self.host.endpoint.connections().next().expect("connected").0;
        let now = self.host.endpoint.connection(handle).expect("alive").looks();
        if self.milli >= SETTLED {
            self.packets += sent.len() as u64;
            self.looks += now - looks;
        }
        for mut datagram in sent {
            if let Some((number, _)) = self.peer.open(&mut datagram) {
                self.came.push_back((number, self.milli));
            }
        }
    }
}
