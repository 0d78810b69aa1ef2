//! What datagrams of a hostile peer cost, and the share of a core that they take at 20 Mbit/s.
//!
//! The peer reads a stream at 540 Mbit/s over a round trip of a second. It has made the endpoint expect
//! reordering of a second, so that all packets stay open, and then floods. Every datagram is authentic. The
//! column `longest` shows the one FEEDBACK that settles what was in flight.

use std::time::{Duration, Instant};

use tidewire_codec::SourceId;
use tidewire_proto::config::Config;
use tidewire_proto::connection::Received;
use tidewire_proto::rate::RateControl;
use tidewire_proto::wire::{FeedbackRepr, Frame, Frames, LaneRepr, Writer};

use super::floods;
use super::host::{Host, Peer};

const ROUND_TRIP: u64 = 1_000;
const RATE: u64 = 540_000_000;
/// What the peer sends, in bits per second with IP and UDP headers.
pub const FLOOD: f64 = 20e6;
pub const IP_UDP_HEADER: usize = 28;
/// Datagrams of one kind.
const COUNT: usize = 2_000;
/// Datagrams of the floods: the one that has a beginning of its own has 24,000 of them.
const MANY: usize = 30_000;

/// What the peer has seen of the stream that it reads.
struct Reader {
    host: Host,
    peer: Peer,
    /// When each packet came: its number is the index.
    came: Vec<(u64, u64)>,
    end: u64,
}

/// Prints a row for each kind of datagram, and for each flood whose name contains `word`.
pub fn run(word: &str) {
    println!("datagram                                  bytes        each     longest   of a core at 20 Mbit/s");
    let mut reader = Reader::new();
    reader.fill();
    let (first, last) = (reader.came[0].0, reader.came[reader.came.len() - 1].0);
    println!("(packets in flight: {})", last - first);
    let end = reader.end;
    let tenth = last - (last - first) / 10;
    row("FEEDBACK, the same", &mut reader, |_, w| feedback(w, &[tenth..=tenth], end));
    row("FEEDBACK, one packet more each", &mut reader, |n, w| {
        feedback(w, &[tenth + 2 * n as u64..=tenth + 2 * n as u64], end);
    });
    row("FEEDBACK, two ranges that alternate", &mut reader, |n, w| {
        let odd = n as u64 % 2;
        feedback(w, &[tenth - 10 + odd..=tenth - 10 + odd, tenth - 5_000 + odd..=tenth - 5_000 + odd], end);
    });
    row("FEEDBACK, all of them", &mut reader, |_, w| feedback(w, &[first..=last], end));
    for (name, frames) in floods::all().into_iter().filter(|(name, _)| name.contains(word)) {
        // Each to a connection of its own, whose application reads nothing.
        rows(name, MANY, &mut Reader::new(), frames);
    }
}

fn row(name: &str, reader: &mut Reader, frames: impl FnMut(usize, &mut Writer<'_>)) {
    rows(name, COUNT, reader, frames);
}

fn rows(name: &str, count: usize, reader: &mut Reader, mut frames: impl FnMut(usize, &mut Writer<'_>)) {
    let datagrams: Vec<_> = (0..count).map(|n| reader.peer.seal(|w| frames(n, w))).collect();
    let len = datagrams.iter().map(Vec::len).sum::<usize>() / count;
    let Reader { host, peer, .. } = reader;
    let times: Vec<_> = datagrams
        .into_iter()
        .map(|mut datagram| {
            host.now += Duration::from_micros(100);
            let (at, from) = (host.now, peer.from);
            let began = Instant::now();
            host.endpoint.handle_datagram(Received { at, from, to: None, ecn: None, datagram: &mut datagram });
            host.turn(|_, _| {});
            began.elapsed().as_secs_f64()
        })
        .collect();
    let (each, longest) = (times.iter().sum::<f64>() / count as f64, times.iter().copied().fold(0.0, f64::max));
    assert_eq!(host.endpoint.connections().count(), 1);
    assert!(host.endpoint.connections().all(|(_, connection)| connection.is_established()), "{name}: closed");
    let share = share(len, each);
    println!("{name:40} {len:6} {:8.2} us {:9.3} ms {:8.1} %", each * 1e6, longest * 1e3, 100.0 * share);
}

/// Share of a core that a flood of datagrams of `len` bytes takes, each of which costs `seconds`.
fn share(len: usize, seconds: f64) -> f64 {
    FLOOD / 8.0 / (len + IP_UDP_HEADER) as f64 * seconds
}

/// Acknowledges packets; of the lane all up to `end` is decoded.
fn feedback(w: &mut Writer<'_>, received: &[std::ops::RangeInclusive<u64>], end: u64) {
    let (edge, limit) = (SourceId(end), SourceId(end + (1 << 20)));
    let lane = LaneRepr { lane: 0, edge, end: edge, deficit: 0, limit, undecoded: &[], regions: &[] };
    let (delay, lanes) = (Duration::ZERO, &[lane]);
    let frame = FeedbackRepr { received, delay, arrival: None, ecn: None, stream_credit: None, lanes, elicits: false };
    frame.emit(w).expect("room");
}

impl Reader {
    fn new() -> Self {
        let mut config = Config::builder()
            .rate_control(RateControl::Fixed { bits_per_second: RATE })
            .idle_timeout(Duration::from_secs(86_400))
            .build()
            .expect("in range");
        // What the floods send is never read.
        config = config.to_builder().stream_window(64 << 20).build().expect("in range");
        let mut host = Host::new(config);
        let (peer, ..) = host.meet(1);
        Self { host, peer, came: Vec::new(), end: 0 }
    }

    /// Reads until as many packets are open as fly in a round trip and the time of a reordering.
    fn fill(&mut self) {
        let handle = self.host.endpoint.connections().next().expect("connected").0;
        let stream = self.host.endpoint.connection_mut(handle).expect("connected").open_stream().expect("allowed");
        let data = vec![1; 1 << 16];
        for milli in 0..4 * ROUND_TRIP {
            let connection = self.host.endpoint.connection_mut(handle).expect("alive");
            while connection.write(stream, &data).is_ok() {}
            self.turn(milli);
            self.host.now += Duration::from_millis(1);
            let Some(old) = milli.checked_sub(ROUND_TRIP) else { continue };
            // The newest that came a round trip ago; once one that was given up, a round trip late.
            let late = if milli == 2 * ROUND_TRIP { ROUND_TRIP - 50 } else { 0 };
            let Some(&(number, _)) = self.came.iter().rev().find(|(_, at)| *at + late <= old) else { continue };
            let number = if late > 0 { number - 1 } else { number };
            if milli % 20 == 0 {
                let end = self.end;
                let mut datagram = self.peer.seal(|w| feedback(w, &[number..=number], end));
                self.host.take(self.peer.from, &mut datagram);
            }
        }
    }

    fn turn(&mut self, milli: u64) {
        let Self { host, peer, came, end } = self;
        host.turn(|_, datagram| {
            let mut datagram = datagram.to_vec();
            let Some((number, payload)) = peer.open(&mut datagram) else { return };
            came.push((number, milli));
            for frame in Frames::new(payload).flatten() {
                if let Frame::Source { id, .. } = frame {
                    *end = (*end).max(id.0 + 1);
                }
            }
        });
    }
}
