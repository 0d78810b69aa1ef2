//! A peer with valid keys attacks an open connection: any frames in any packet, symbols that decode to
//! anything, true and false acknowledgements. An application that calls every method runs at the same time.
//!
//! Whatever the peer sends, nothing panics, `handle_timeout(now)` leaves no timer that is due at `now`,
//! `poll_transmit` ends at one moment in time, and the connection ends at most once.
#![no_main]

#[path = "../../crates/proto/tests/hostile/peer.rs"]
mod peer;

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::arbitrary::{self, Unstructured};
use libfuzzer_sys::fuzz_target;
use peer::Peer;
use tidewire_codec::{Code, RepairId, SourceId};
use tidewire_fuzz::Null;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{Event, LaneConfig, LaneId, Received, StreamId};
use tidewire_proto::crypto::Secret;
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint, EndpointConfig};
use tidewire_proto::wire::{FeedbackRepr, Frame, LaneRepr, Layout, Writer};

const DATAGRAM: usize = 1_472;
/// Upper bound of datagrams at one moment: more than a window during start-up.
const MOST: usize = 10_000;

struct Host {
    endpoint: Endpoint,
    now: Time,
    handle: Option<ConnectionHandle>,
    ends: u32,
}

impl Host {
    fn new() -> Self {
        let connection = Config::builder().ring_memory(1 << 20).build().expect("in range");
        let (credentials, provider) = (Secret::new([7; 32]).into(), Arc::new(Null));
        let config = EndpointConfig { credentials, listen: true, connection, provider };
        let endpoint = Endpoint::new(config, [2; 32]);
        Self { endpoint, now: Time::from_millis(1), handle: None, ends: 0 }
    }

    fn meet(&mut self) -> Peer {
        let mut peer = Peer::connect(Arc::new(Null), &Secret::new([7; 32]), self.now, 1, |from, buffer, len| {
            let datagram = &mut buffer[..len];
            self.endpoint.handle_datagram(Received { at: self.now, from, to: None, ecn: None, datagram });
            self.endpoint.poll_transmit(self.now, 1, buffer).expect("a REPLY").len
        });
        self.hear(&mut peer, |w| Frame::Ping.emit(w).expect("room"));
        self.turn(&mut peer);
        peer
    }

    fn hear(&mut self, peer: &mut Peer, frames: impl FnOnce(&mut Writer<'_>)) {
        let from = peer.from;
        let datagram = peer.seal(frames);
        self.endpoint.handle_datagram(Received { at: self.now, from, to: None, ecn: None, datagram });
    }

    /// Handles timers and events and sends all datagrams. Returns the numbers of the packets that the peer
    /// received.
    fn turn(&mut self, peer: &mut Peer) -> Vec<u64> {
        let (mut out, mut numbers, mut sent) = ([0; DATAGRAM], Vec::new(), 0);
        self.endpoint.handle_timeout(self.now);
        loop {
            while let Some(transmit) = self.endpoint.poll_transmit(self.now, 1, &mut out) {
                numbers.extend(peer.open(&mut out[..transmit.len]).map(|(number, _)| number));
                sent += 1;
                assert!(sent < MOST, "poll_transmit does not end");
            }
            match self.endpoint.poll_event() {
                None => break,
                Some((handle, Event::Connected)) => self.handle = Some(handle),
                Some((_, Event::Closed(_))) => self.ends += 1,
                Some(_) => {}
            }
        }
        assert!(self.ends <= 1, "ended twice");
        let due = self.endpoint.poll_timeout();
        assert!(due.is_none_or(|(at, _)| at > self.now), "{due:?} was served at {:?}", self.now);
        numbers
    }
}

fuzz_target!(|data: &[u8]| {
    let (mut host, mut input) = (Host::new(), Unstructured::new(data));
    let mut peer = host.meet();
    let mut heard = Vec::new();
    while !input.is_empty() {
        // The run ends where the input ends, even in the middle of a step.
        if step(&mut host, &mut peer, &mut heard, &mut input).is_err() {
            break;
        }
    }
});

fn step(host: &mut Host, peer: &mut Peer, heard: &mut Vec<u64>, input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    match input.int_in_range(0..=7u8)? {
        0 => {
            let len = input.int_in_range(1..=1_200)?.min(input.len());
            let frames = input.bytes(len)?;
            // A packet cannot be empty.
            let frames = if frames.is_empty() { &[0] } else { frames };
            host.hear(peer, |w| w.bytes(frames).expect("room"));
        }
        1 | 2 => symbol(host, peer, input)?,
        3 => feedback(host, peer, heard, input)?,
        4 => host.now += Duration::from_micros(u64::from(input.arbitrary::<u16>()?) * 50),
        5 | 6 => application(host, input)?,
        _ => heard.extend(host.turn(peer)),
    }
    Ok(())
}

/// Sends a source or repair symbol of any bytes, with an id near the edge.
fn symbol(host: &mut Host, peer: &mut Peer, input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let (lane, first, base) = (input.int_in_range(0..=3)?, input.int_in_range(0..=300)?, input.int_in_range(0..=300)?);
    let (id, base) = (SourceId(first), SourceId(base.min(first)));
    let len = input.int_in_range(1..=64)?.min(input.len().max(1));
    let symbol = input.bytes(len)?;
    // Lanes of both layouts, and sometimes the wrong layout.
    let in_generations = (lane >= 2) != input.ratio(1, 32)?;
    let layout = if in_generations { Layout::Generations } else { Layout::Sliding };
    let frame = if input.ratio(2, 3)? {
        Frame::Source { lane, layout, id, base, again: input.arbitrary()?, symbol }
    } else {
        let lt = Code::Lt { c_milli: 100, delta_milli: 500 };
        let semi_random = Code::SemiRandomLt { degree: 17 };
        let codes = [Code::Rlc, Code::Cauchy, Code::Rlc16, Code::RsFft, Code::RaptorQ, lt, semi_random];
        let code = input.choose(&codes).copied()?;
        let id = RepairId { first: id, count: input.int_in_range(1..=256)?, key: input.int_in_range(0..=8)? };
        Frame::Repair { lane, layout, code, id, base, on_feedback: input.arbitrary()?, symbol }
    };
    // A frame that has no encoding is replaced by a PING.
    host.hear(peer, |w| frame.emit(w).unwrap_or_else(|_| Frame::Ping.emit(w).expect("room")));
    Ok(())
}

/// Acknowledges packets that were received or not, with any report on a lane.
fn feedback(host: &mut Host, peer: &mut Peer, heard: &[u64], input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let newest = heard.last().copied().unwrap_or(0) + u64::from(input.ratio(1, 32)?);
    let oldest = newest.saturating_sub(input.int_in_range(0..=20)?);
    let edge = input.int_in_range(0..=300)?;
    let end = edge + input.int_in_range(0..=40)?;
    let beyond = end + input.int_in_range(1..=40)?;
    let undecoded = [SourceId(edge)..SourceId(end)];
    let lane = LaneRepr {
        lane: input.int_in_range(0..=2)?,
        edge: SourceId(edge),
        end: SourceId(end),
        deficit: input.int_in_range(0..=end - edge)?,
        limit: SourceId(edge + input.int_in_range(0..=100_000)?),
        undecoded: if edge < end { &undecoded } else { &[] },
        regions: &[(SourceId(end)..SourceId(beyond), input.int_in_range(0..=beyond - end)?)],
    };
    let lanes = if input.arbitrary()? { &[lane][..] } else { &[] };
    let delay = Duration::from_micros(input.int_in_range(0..=50_000)?);
    let received = &[oldest..=newest];
    // Any time. It takes no input of its own, so that the corpus keeps its meaning.
    let arrival = Some((delay.as_micros() as u32).wrapping_mul(0x9e37_79b9));
    let feedback =
        FeedbackRepr { received, delay, arrival, ecn: None, stream_credit: None, lanes, elicits: input.arbitrary()? };
    host.hear(peer, |w| feedback.emit(w).expect("room"));
    Ok(())
}

/// Makes one call of the application.
fn application(host: &mut Host, input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let now = host.now;
    let Some(us) = host.handle.and_then(|handle| host.endpoint.connection_mut(handle)) else { return Ok(()) };
    let (stream, mut buffer) = (StreamId(input.int_in_range(0..=9)?), [0; 2_048]);
    let len = input.int_in_range(0..=buffer.len())?;
    match input.int_in_range(0..=9u8)? {
        0 => drop(us.open_stream()),
        1 | 2 => drop(us.write(stream, &buffer[..len])),
        3 | 4 => drop(us.read(now, stream, &mut buffer[..len])),
        5 => drop(us.finish(stream)),
        6 => drop(us.reset(stream, 1)),
        7 => drop(us.stop(stream, 1)),
        8 => drop(us.open_lane(&LaneConfig::default())),
        _ => {
            let _ =
                us.send_message(now, LaneId(input.int_in_range(0..=3)?), &buffer[..len], Duration::from_millis(100));
            drop(us.take_message());
        }
    }
    Ok(())
}
