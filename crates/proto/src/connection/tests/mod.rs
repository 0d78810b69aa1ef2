//! A connection against a peer that has the right keys and sends whatever a test wants: frames that no honest
//! peer sends, in orders that no link produces.

mod host;
mod messages;
mod migration;
mod patience;
mod policy;
mod rekey;
mod slices;
mod small;
mod spans;
mod streams;

use core::net::{Ipv4Addr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;
use std::sync::Arc;

use tidewire_codec::{Code, SourceId};

use super::carried::{Carried, Data};
use super::keys::{LAST_PACKETS, MAX_FORGED};
use super::{CloseCode, CloseReason, Connection, Event, Received, State};
use crate::Time;
use crate::config::Config;
use crate::crypto::{AwsLc, MAX_SEALED, Opened, OpeningKey, SealingKey, Secret};
use crate::handshake::{Initiator, Parameters, Responder, Terms};
use crate::path::{Fate, MAX_FLIGHT};
use crate::redundancy::Repair;
use crate::wire::{
    CodeSet, ConnectionId, EcnCounts, FeedbackRepr, Frame, Frames, LaneRepr, Layout, SYMBOL_HEADER_LEN, SymbolFrame,
    SymbolFrames, SymbolHeader, TAG_LEN, Writer, write_short_header,
};

const DATAGRAM: usize = 1_472;

/// The other end, driven by the test.
struct Peer {
    sealing: SealingKey,
    opening: OpeningKey,
    /// The id by which it addresses us, and its own address.
    us: ConnectionId,
    from: SocketAddr,
    /// Number of the next packet that it sends.
    next: u64,
    now: Time,
}

fn address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 7_700))
}

fn terms(source: ConnectionId) -> Terms {
    Terms { parameters: Parameters::default(), source, known: false }
}

/// An established connection of a responder, and its peer.
fn connected(config: Config) -> (Connection, Peer) {
    let (mut us, peer) = accepted(config, Parameters::default());
    assert_eq!(us.poll_event(), Some(Event::Connected));
    (us, peer)
}

/// A responder's connection after the first packet of a peer that announced `theirs_announced`.
fn accepted(config: Config, theirs_announced: Parameters) -> (Connection, Peer) {
    let (secret, now) = (Secret::new([7; 32]), Time::from_millis(1));
    let (ours, theirs) = (ConnectionId([1; 8]), ConnectionId([2; 8]));
    let mut initiator = Initiator::new(&secret, theirs, &theirs_announced, Arc::new(AwsLc), [3; 32], now);
    let mut responder = Responder::new(&secret, Arc::new(AwsLc), [4; 32]);
    let mut buffer = [0; DATAGRAM];
    let len = initiator.poll_transmit(now, &mut buffer).expect("a HELLO");
    let accepted = responder.handle_hello(now, address(), &buffer[..len], &terms(ours));
    let (_, len) = responder.poll_transmit(now, &mut buffer).expect("a REPLY");
    let session = initiator.handle_reply(&buffer[..len]).expect("the REPLY fits");
    let accepted = accepted.expect("the HELLO is right").session(&(Arc::new(AwsLc) as _));
    let mut us = Connection::accept(Arc::new(config), accepted, address().into(), now, 1);
    let mut peer = Peer { sealing: session.sealing, opening: session.opening, us: ours, from: address(), next: 0, now };
    peer.say(&mut us, &[Frame::Ping]);
    (us, peer)
}

#[test]
fn a_code_that_the_peer_does_not_decode_ends_the_connection() {
    let mut config = Config::default();
    config.profile.code = Code::Cauchy;
    let only_rlc = Parameters { codes: CodeSet::RLC, ..Parameters::default() };
    let (mut us, mut peer) = accepted(config.clone(), only_rlc);
    assert_eq!(us.poll_event(), Some(Event::Closed(CloseReason::UnknownCode("cauchy"))));
    assert!(!peer.hear(&mut us).is_empty(), "the peer is told");
    assert_eq!(accepted(config, Parameters::default()).0.poll_event(), Some(Event::Connected));
}

impl Peer {
    /// Sends one packet with these frames.
    fn say(&mut self, us: &mut Connection, frames: &[Frame<'_>]) {
        self.write(us, |w| frames.iter().for_each(|frame| frame.emit(w).expect("room")));
    }

    /// Acknowledges these packets and reports nothing else.
    fn acknowledge(&mut self, us: &mut Connection, received: &[RangeInclusive<u64>]) {
        let delay = Duration::ZERO;
        let feedback =
            FeedbackRepr { received, delay, arrival: None, ecn: None, stream_credit: None, lanes: &[], elicits: false };
        self.write(us, |w| feedback.emit(w).expect("room"));
    }

    fn write(&mut self, us: &mut Connection, frames: impl FnOnce(&mut Writer<'_>)) {
        let mut datagram = [0; DATAGRAM];
        let mut w = Writer::new(&mut datagram);
        write_short_header(&mut w, self.us, self.next, 0).expect("room");
        frames(&mut w);
        let len = w.len() + TAG_LEN;
        let datagram = &mut datagram[..len];
        self.sealing.seal(0, self.next, datagram).expect("sealed");
        self.next += 1;
        us.handle_datagram(Received { at: self.now, from: self.from, to: None, ecn: None, datagram });
    }

    /// Takes all packets that may be sent now. Returns their numbers.
    fn hear(&mut self, us: &mut Connection) -> Vec<u64> {
        self.open(us).iter().map(|opened| opened.number).collect()
    }

    /// Takes all packets that may be sent now.
    fn open(&mut self, us: &mut Connection) -> Vec<Opened> {
        let mut buffer = [0; DATAGRAM];
        let mut packets = Vec::new();
        us.handle_timeout(self.now);
        while let Some(transmit) = us.poll_transmit(self.now, 1, &mut buffer) {
            packets.push(self.opening.open(0, &mut buffer[..transmit.len]).expect("authentic"));
        }
        let timer = us.poll_timeout();
        assert!(timer.is_none_or(|(at, _)| at > self.now), "{timer:?} is not after {:?}", self.now);
        packets
    }

    fn wait(&mut self, duration: Duration) {
        self.now += duration;
    }
}

impl Peer {
    /// Sends one source symbol with these frames on lane 0.
    fn symbol(&mut self, us: &mut Connection, id: u64, frames: &[SymbolFrame<'_>]) {
        self.symbol_of(us, (0, id, 0), frames);
    }

    /// Sends one source symbol with these frames on a lane, with the base.
    fn symbol_of(&mut self, us: &mut Connection, (lane, id, base): (u32, u64, u64), frames: &[SymbolFrame<'_>]) {
        let mut symbol = [0; 1_200];
        let mut w = Writer::resume(&mut symbol, SYMBOL_HEADER_LEN);
        frames.iter().for_each(|frame| frame.emit(&mut w).expect("room"));
        let len = w.len();
        SymbolHeader { length: len as u16, time: 0 }.emit(&mut symbol).expect("room");
        let (id, base) = (SourceId(id), SourceId(base));
        self.say(
            us,
            &[Frame::Source { lane, layout: Layout::Sliding, id, base, again: false, symbol: &symbol[..len] }],
        );
    }

    /// Takes all source symbols that are sent within 50 ms. Returns their frames as text.
    fn frames(&mut self, us: &mut Connection) -> Vec<String> {
        self.wait(Duration::from_millis(50));
        us.handle_timeout(self.now);
        let (mut buffer, mut frames) = ([0; DATAGRAM], Vec::new());
        while let Some(transmit) = us.poll_transmit(self.now, 1, &mut buffer) {
            let opened = self.opening.open(0, &mut buffer[..transmit.len]).expect("authentic");
            for frame in Frames::new(&buffer[opened.payload]) {
                let Ok(Frame::Source { symbol, again: false, .. }) = frame else { continue };
                let (_, inner) = SymbolFrames::new(symbol).expect("well formed");
                frames.extend(inner.map(|frame| match frame.expect("well formed") {
                    SymbolFrame::Stream { stream, offset, fin, data, .. } => {
                        format!("{stream}: {} from {offset}{}", data.len(), if fin { ", end" } else { "" })
                    }
                    SymbolFrame::Reset { stream, code, last } => format!("{stream}: reset {code} at {last}"),
                    SymbolFrame::Stop { stream, code } => format!("{stream}: stop {code}"),
                    SymbolFrame::Message { data, .. } => format!("message of {}", data.len()),
                }));
            }
        }
        frames
    }
}

/// Reads the events up to the end of the connection.
fn close_reason(us: &mut Connection) -> Option<CloseReason> {
    std::iter::from_fn(|| us.poll_event()).find_map(|event| match event {
        Event::Closed(reason) => Some(reason),
        _ => None,
    })
}

#[test]
fn a_size_probe_that_arrives_after_all_was_never_counted_as_lost() {
    let (mut us, mut peer) = connected(Config::default());
    let mut newest = 0;
    for _ in 0..30 {
        newest = peer.hear(&mut us).last().copied().unwrap_or(newest);
        peer.wait(Duration::from_millis(100));
    }
    let probe = us.path.flight.iter_from(0).find(|(_, sent)| sent.carried == Carried::SizeProbe).expect("a probe").0;
    peer.acknowledge(&mut us, &[newest..=newest]);
    let lost = us.stats().packets.lost;
    peer.acknowledge(&mut us, &[newest..=newest, probe..=probe]);
    assert_eq!((us.stats().packets.lost, close_reason(&mut us)), (lost, None));
}

/// Row S10 of docs/survival.md: feedback may be lost, but it must not be false.
#[test]
fn a_peer_that_acknowledges_what_never_left_is_left() {
    let fault = Some(CloseReason::Fault(CloseCode::Protocol));
    let (mut us, mut peer) = connected(Config::default());
    let newest = *peer.hear(&mut us).last().expect("the first packet");
    let window = us.stats().rate.window;
    peer.acknowledge(&mut us, &[newest + 1..=newest + 1]);
    assert_eq!((close_reason(&mut us), us.stats().rate.window), (fault.clone(), window));

    let (mut us, mut peer) = connected(Config::default());
    let skipped = |us: &Connection| {
        us.path.flight.iter_from(0).find(|(_, sent)| sent.fate == Fate::Skipped).map(|(number, _)| number)
    };
    while skipped(&us).is_none() {
        peer.hear(&mut us);
        peer.wait(Duration::from_millis(100));
    }
    let number = skipped(&us).expect("seen");
    peer.acknowledge(&mut us, &[number..=number]);
    assert_eq!(close_reason(&mut us), fault);
}

#[test]
fn a_peer_that_acknowledges_nothing_cannot_make_us_remember_without_bound() {
    let (mut us, mut peer) = connected(Config::default());
    let mut most = 0;
    while matches!(us.state, State::Established { .. }) && most < 1 << 20 {
        for _ in 0..3 {
            peer.say(&mut us, &[Frame::Ping]);
        }
        peer.hear(&mut us);
        most = us.path.flight.next_number() - us.path.flight.first_number();
        peer.wait(Duration::from_millis(25));
    }
    assert!(most <= MAX_FLIGHT as u64 + 2, "{most} packets");
    assert_eq!(close_reason(&mut us), Some(CloseReason::Fault(CloseCode::Protocol)));
}

#[test]
fn a_reply_to_one_of_many_hellos_says_nothing_of_the_round_trip() {
    let (secret, start) = (Secret::new([7; 32]), Time::from_millis(1));
    let (ours, theirs) = (ConnectionId([1; 8]), ConnectionId([2; 8]));
    let mut responder = Responder::new(&secret, Arc::new(AwsLc), [4; 32]);
    let mut buffer = [0; DATAGRAM];
    // How long HELLOs are lost on a link of 40 ms, and the round trip assumed afterwards.
    for (lost_until, believed) in [(Duration::ZERO, 40), (Duration::from_secs(8), 333)] {
        let initiator = Initiator::new(&secret, ours, &Parameters::default(), Arc::new(AwsLc), [3; 32], start);
        let mut us = Connection::connect(Arc::default(), initiator, ours, address(), start, 1);
        let mut now = start;
        while now < start + lost_until {
            while us.poll_transmit(now, 1, &mut buffer).is_some() {}
            now = us.poll_timeout().expect("the next HELLO is due").0;
        }
        let len = us.poll_transmit(now, 1, &mut buffer).expect("a HELLO").len;
        responder.handle_hello(now, address(), &buffer[..len], &terms(theirs));
        let (_, len) = responder.poll_transmit(now, &mut buffer).expect("a REPLY");
        let at = now + Duration::from_millis(40);
        us.handle_datagram(Received { at, from: address(), to: None, ecn: None, datagram: &mut buffer[..len] });
        assert_eq!((us.is_established(), us.path.rtt.smoothed().as_millis()), (true, believed));
    }
}

#[test]
fn a_worn_key_is_renewed_once_the_peer_has_answered_under_it() {
    let (mut us, mut peer) = connected(Config::default());
    for phase in 1..4 {
        us.security.keys.as_mut().expect("keys").sealing.wear(Config::default().packets_per_key());
        peer.say(&mut us, &[Frame::Ping]);
        peer.wait(Duration::from_millis(50));
        let newest = *peer.hear(&mut us).last().expect("FEEDBACK");
        assert_eq!(peer.opening.phase(), phase - 1, "nothing was answered under this key");
        peer.acknowledge(&mut us, &[newest..=newest]);
        peer.say(&mut us, &[Frame::Ping]);
        peer.wait(Duration::from_millis(50));
        peer.hear(&mut us);
        assert_eq!(peer.opening.phase(), phase);
    }
}

#[test]
fn a_key_that_cannot_be_renewed_ends_the_connection_in_words() {
    let (mut us, mut peer) = connected(Config::default());
    us.security.keys.as_mut().expect("keys").sealing.wear(MAX_SEALED - LAST_PACKETS);
    assert!(!peer.hear(&mut us).is_empty(), "CLOSE leaves");
    assert_eq!(close_reason(&mut us), Some(CloseReason::KeyExhausted));
}

/// A test cannot send 2^36 forgeries, so the counter starts just below the limit.
#[test]
fn the_last_forgery_that_the_keys_bear_ends_the_connection() {
    let (mut us, mut peer) = connected(Config::default());
    peer.hear(&mut us);
    let forge = |us: &mut Connection, peer: &Peer| {
        let mut datagram = [0x40; 60];
        datagram[1..9].copy_from_slice(&peer.us.0);
        us.handle_datagram(Received { at: peer.now, from: peer.from, to: None, ecn: None, datagram: &mut datagram });
    };
    us.security.keys.as_mut().expect("keys").forged = MAX_FORGED - 2;
    forge(&mut us, &peer);
    peer.say(&mut us, &[Frame::Ping]);
    assert_eq!((close_reason(&mut us), us.stats().packets.received), (None, 2));
    forge(&mut us, &peer);
    assert_eq!(close_reason(&mut us), Some(CloseReason::KeyExhausted));
    // CLOSE is sent. After that no packet is opened, and more forgeries change nothing.
    peer.say(&mut us, &[Frame::Ping]);
    forge(&mut us, &peer);
    assert_eq!((peer.hear(&mut us).len(), us.stats().packets.received), (1, 2));
    assert_eq!(us.security.keys.as_ref().expect("keys").forged, MAX_FORGED);
}

/// A FEEDBACK that does not fit its packet would be due for ever, and the driver would spin. The mandatory
/// part must fit with the largest numbers that a peer can cause, after all control frames that can precede
/// it. Stream credit takes the remaining room.
#[test]
fn feedback_of_the_largest_numbers_fits_a_packet() {
    let (edge, end) = (SourceId(1 << 61), SourceId((1 << 61) + (1 << 30)));
    let lane = LaneRepr { lane: 15, edge, end, deficit: 1 << 30, limit: end, undecoded: &[edge..end], regions: &[] };
    let ecn = Some(EcnCounts { ect0: 1 << 61, ect1: 1 << 61, ce: 1 << 61 });
    let (received, delay) = (&[1..=1 << 61][..], Duration::from_secs(1 << 40));
    let said =
        FeedbackRepr { received, delay, arrival: Some(9), ecn, stream_credit: None, lanes: &[lane; 16], elicits: true };
    let least = said.least_len();
    let (mut buffer, echo_and_challenge, ids, rekey) = ([0; 1_200], 2 * 9, 8 * (1 + 8 + 8 + 1 + 8), 1 + 8 + 2 + 96);
    let room = 1_200 - 13 - TAG_LEN - echo_and_challenge - ids - rekey;
    assert!(least <= room, "{least} bytes of {room}");
    said.emit(&mut Writer::new(&mut buffer[..least])).expect("as much room as it says");
    said.emit(&mut Writer::new(&mut buffer[..least - 1])).expect_err("one byte less");
}

#[test]
fn a_deferred_repair_of_what_is_decoded_meanwhile_does_not_take_the_slot() {
    let (mut us, mut peer) = connected(Config::default());
    let stream = us.open_stream().expect("allowed");
    us.write(stream, b"first").expect("room");
    peer.wait(Duration::from_millis(50));
    let newest = *peer.hear(&mut us).last().expect("the symbol");
    peer.acknowledge(&mut us, &[0..=newest]);
    peer.wait(Duration::from_millis(50));
    peer.hear(&mut us);
    assert_eq!(us.lanes.streams.sender.base().0, 1);
    us.lanes.streams.deferred = Some(Repair::Coded { first: SourceId(0), count: 1, row: None, on_feedback: true });
    us.write(stream, b"second").expect("room");
    peer.wait(Duration::from_millis(50));
    peer.hear(&mut us);
    assert_eq!(us.stats().packets.source, 2);
}

/// A driver that could not run for longer than the closing time still sends CLOSE, and stays for the
/// repetitions.
#[test]
fn a_close_that_leaves_late_still_leaves() {
    let (mut us, mut peer) = connected(Config::default());
    peer.hear(&mut us);
    us.close(peer.now, CloseCode::Done, "late");
    peer.wait(Duration::from_secs(100));
    assert_eq!(peer.hear(&mut us).len(), 1);
    assert!(!us.is_closed());
    // A packet from a peer that has not received CLOSE is answered with another CLOSE.
    peer.say(&mut us, &[Frame::Ping]);
    assert_eq!(peer.hear(&mut us).len(), 1);
    peer.wait(Duration::from_secs(100));
    assert!(peer.hear(&mut us).is_empty() && us.is_closed());
}

#[test]
fn answers_leave_from_the_address_that_the_peer_called() {
    let (mut us, mut peer) = connected(Config::default());
    assert_eq!(us.path.local, None);
    let local = "192.0.2.7".parse().unwrap();
    us.path.local = Some(local);
    peer.say(&mut us, &[Frame::Ping]);
    peer.wait(Duration::from_millis(50));
    us.handle_timeout(peer.now);
    let mut buffer = [0; DATAGRAM];
    let answer = us.poll_transmit(peer.now, 1, &mut buffer).expect("FEEDBACK");
    assert_eq!((answer.destination, answer.source), (address(), Some(local)));
    // After our own move, that address may no longer be ours.
    us.handle_address_change(peer.now);
    assert_eq!(us.poll_transmit(peer.now, 1, &mut buffer).and_then(|transmit| transmit.source), None);
}
