//! What a POLICY costs an endpoint that follows it: a hostile peer asks for a code, a layout and a policy,
//! reads a stream at 20 Mbit/s and acknowledges a part of the packets.
//!
//! The peer asks for repairs of every symbol whose packet it does not acknowledge, and reports it as decoded
//! only when the newest symbols of that time are as old as [`LAG`]. In the control there is no such peer.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidewire::{Config, RateControl};
use tidewire_codec::SourceId;
use tidewire_proto::connection::Received;
use tidewire_proto::redundancy::Redundancy;
use tidewire_proto::wire::{
    FeedbackRepr, Frame, Frames, LaneRepr, Layout, SYMBOL_HEADER_LEN, SymbolFrame, SymbolHeader, Writer,
};

use super::host::{DATAGRAM, Host, Peer};
use super::hostile::{FLOOD, IP_UDP_HEADER};
use super::neighbour::measure;
use super::rows::Rows;
use super::server::{SOURCE, Server};
use super::sockets::connect;

/// Per cent of the packets that the peer acknowledges.
const ACKNOWLEDGED: [u64; 3] = [0, 30, 70];
/// How long the peer says that it lacks a symbol: some long round trips of symbols that are open at once.
const LAG: Duration = Duration::from_secs(2);
/// Time between two FEEDBACKs.
const BETWEEN: Duration = Duration::from_millis(5);
/// The newest ranges and the lowest runs that a FEEDBACK has.
const RANGES: usize = 60;
const RUNS: usize = 30;

/// Policies with their least, usual and greatest parameters, as far as a peer is granted them.
const SLIDING: [&str; 13] = [
    "none",
    "adaptive",
    "every:1000000",
    "every:5",
    "every:3",
    "pipeline:1,1",
    "pipeline:16,1.25",
    "pipeline:64,1.5",
    "pipeline:64,1.5,systematic",
    "pipeline:64,min",
    "pipeline:64,combo",
    "pipeline:1,adaptive",
    "pipeline:64,adaptive",
];
const GENERATIONS: [&str; 16] = [
    "none",
    "block:1,0",
    "block:2,1",
    "block:32,8",
    "block:167,83",
    "block:256,128",
    "sphinx:1",
    "sphinx:100",
    "sphinx:256",
    "sphinx:256,0.5",
    "rcdp:1",
    "rcdp:84",
    "rcdp:256",
    "bucket:1,1",
    "bucket:15,1.25",
    "bucket:64,1.5",
];
const CODES: [&str; 11] = [
    "rlc",
    "cauchy",
    "rlc16",
    "lt:0.001,0.001",
    "lt",
    "lt:1,1",
    "semi-random-lt:1",
    "semi-random-lt",
    "semi-random-lt:256",
    "raptorq",
    "rs-fft",
];
/// Codes of the rows with other answers. An answer decides which symbols are sent, whatever the code is; with
/// these codes the dearest rows of `policies` were measured.
const COSTLY: [&str; 3] = ["rlc", "lt:0.001,0.001", "rs-fft"];
/// What may follow a policy: the answer. Without one the policy has its usual answer.
const ANSWERS: [&str; 7] = [",open", ",resend", ",deficit", ",planned", ",icm", ",icm:1/1", ",block-sack"];

/// Prints rows for each text that is granted and contains `word`: those with the usual answers, or
/// (`answers`) those with all others.
pub fn run(word: &str, answers: bool, writes: bool) {
    let mut rows = Rows::new("POLICY; acknowledged", "sent to the peer");
    for text in texts(answers) {
        if !text.contains(word) || !is_granted(&text) {
            continue;
        }
        let server = Server::start(config());
        let control = measure(&server, |_| {});
        for share in ACKNOWLEDGED {
            let (server, came) = (Server::start(config()), AtomicU64::new(0));
            let began = Instant::now();
            let figures = measure(&server, |stop| read(server.address, &text, share, &came, stop));
            let rate = came.into_inner() as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e6;
            assert!(server.follows(), "{text}");
            rows.add(&format!("{text}; {share} %"), rate, figures, control);
        }
    }
    rows.end(if answers { "survival-answers" } else { "survival-policies" }, writes);
}

fn config() -> Config {
    let control = RateControl::Fixed { bits_per_second: FLOOD as u64 };
    Config::builder().rate_control(control).build().expect("in range")
}

fn texts(answers: bool) -> Vec<String> {
    let codes = if answers { &COSTLY[..] } else { &CODES[..] };
    let sliding = SLIDING.iter().map(|policy| ("sliding rlc".to_owned(), policy));
    let of_code =
        |code: &&str| GENERATIONS.iter().map(|policy| (format!("generations {code}"), policy)).collect::<Vec<_>>();
    let all = sliding.chain(codes.iter().flat_map(of_code));
    all.flat_map(|(coding, policy)| {
        let endings = if answers { unusual(policy) } else { vec![""] };
        endings.into_iter().map(move |answer| format!("{coding} {policy}{answer}"))
    })
    .collect()
}

/// The answers that are not the usual one of a policy.
fn unusual(policy: &str) -> Vec<&'static str> {
    let with = |answer: &str| format!("{policy}{answer}").parse::<Redundancy>().expect("a redundancy");
    ANSWERS.into_iter().filter(|answer| with(answer) != with("")).collect()
}

/// Whether an endpoint follows the text.
fn is_granted(text: &str) -> bool {
    let mut host = Host::new(config());
    let (mut peer, ..) = host.meet(1);
    let mut datagram = peer.seal(|w| Frame::Policy(text).emit(w).expect("room"));
    let (at, from) = (host.now, peer.from);
    host.endpoint.handle_datagram(Received { at, from, to: None, ecn: None, datagram: &mut datagram });
    host.endpoint.connections().next().is_some_and(|(_, connection)| connection.stats().policy_followed)
}

/// What the peer saw of the lane that it reads.
#[derive(Default)]
struct Reader {
    /// Packets that it acknowledges, the newest first.
    received: VecDeque<RangeInclusive<u64>>,
    /// Symbols from `edge` on that it says it has.
    held: BTreeSet<u64>,
    edge: u64,
    end: u64,
    /// What `end` was at a time.
    ends: VecDeque<(Instant, u64)>,
}

/// The hostile peer. `came`: bytes of its packets, with IP and UDP headers.
fn read(address: SocketAddr, text: &str, acknowledged: u64, came: &AtomicU64, stop: &AtomicBool) {
    let (socket, mut peer) = connect(address);
    let first = peer.seal(|w| {
        Frame::Policy(text).emit(w).expect("room");
        ask(w);
    });
    socket.send(&first).expect("sent");
    socket.set_read_timeout(Some(Duration::from_millis(1))).expect("not zero");
    let (mut reader, mut buffer, mut reported) = (Reader::default(), [0; DATAGRAM], Instant::now());
    while !stop.load(Ordering::Relaxed) {
        if let Ok(len) = socket.recv(&mut buffer) {
            came.fetch_add((len + IP_UDP_HEADER) as u64, Ordering::Relaxed);
            reader.see(&mut peer, &mut buffer[..len], acknowledged);
        }
        if reported.elapsed() >= BETWEEN {
            reported = Instant::now();
            socket.send(&peer.seal(|w| reader.report(w))).expect("sent");
        }
    }
}

/// Opens a stream on which the application sends without an end.
fn ask(w: &mut Writer<'_>) {
    let mut symbol = [0; 64];
    let mut inner = Writer::new(&mut symbol[SYMBOL_HEADER_LEN..]);
    let data = &[SOURCE];
    SymbolFrame::Stream { stream: 0, offset: 0, fin: false, data, data_at: 0 }.emit(&mut inner).expect("room");
    let len = SYMBOL_HEADER_LEN + inner.len();
    SymbolHeader { length: len as u16, time: 0 }.emit(&mut symbol).expect("room");
    let (layout, id, base, symbol) = (Layout::Sliding, SourceId(0), SourceId(0), &symbol[..len]);
    Frame::Source { lane: 0, layout, id, base, again: false, symbol }.emit(w).expect("room");
}

impl Reader {
    fn see(&mut self, peer: &mut Peer, datagram: &mut [u8], acknowledged: u64) {
        let Some((number, payload)) = peer.open(datagram) else { return };
        // Spread over the numbers by the golden ratio.
        let is_acknowledged = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 < (acknowledged << 32) / 100;
        if is_acknowledged {
            let newest = self.received.front().map(|range| *range.end());
            match self.received.front_mut() {
                Some(range) if newest == number.checked_sub(1) => *range = *range.start()..=number,
                _ if newest < Some(number) => self.received.push_front(number..=number),
                _ => {}
            }
            self.received.truncate(RANGES);
        }
        for frame in Frames::new(payload).flatten() {
            match frame {
                Frame::Source { id, .. } => {
                    self.end = self.end.max(id.0 + 1);
                    if is_acknowledged && id.0 >= self.edge {
                        self.held.insert(id.0);
                    }
                }
                Frame::Repair { id, .. } => self.end = self.end.max(id.first.0 + u64::from(id.count)),
                _ => {}
            }
        }
    }

    fn report(&mut self, w: &mut Writer<'_>) {
        let now = Instant::now();
        self.ends.push_back((now, self.end));
        while let Some((_, end)) = self.ends.front().copied().filter(|(at, _)| now - *at > LAG) {
            self.edge = self.edge.max(end);
            self.ends.pop_front();
        }
        while self.held.remove(&self.edge) {
            self.edge += 1;
        }
        self.held = self.held.split_off(&self.edge);
        let (undecoded, deficit) = self.lacking();
        let lane = LaneRepr {
            lane: 0,
            edge: SourceId(self.edge),
            end: SourceId(self.end),
            deficit,
            limit: SourceId(self.end + (1 << 20)),
            undecoded: &undecoded,
            regions: &[],
        };
        let feedback = FeedbackRepr {
            received: self.received.make_contiguous(),
            delay: Duration::ZERO,
            arrival: None,
            ecn: None,
            stream_credit: None,
            lanes: &[lane],
            elicits: false,
        };
        feedback.emit(w).expect("room");
    }

    /// The lowest runs of symbols that it says it lacks, and how many symbols it lacks in all.
    fn lacking(&self) -> (Vec<std::ops::Range<SourceId>>, u64) {
        let (mut runs, mut from) = (Vec::new(), self.edge);
        for at in self.held.iter().copied().chain([self.end]) {
            if from < at {
                runs.push(SourceId(from)..SourceId(at));
            }
            from = at + 1;
        }
        runs.truncate(RUNS);
        (runs, self.end - self.edge - self.held.len() as u64)
    }
}
