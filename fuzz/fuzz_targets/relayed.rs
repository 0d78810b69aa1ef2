//! A relay with valid keys sends an end anything on the relayed lane: any vectors and symbols in RECODED, any
//! ranks in RANKS, beside any bytes as frames.
//!
//! Whatever it sends, nothing panics, each RECODED frame is counted once, memory stays within its bound, and
//! no timer of the hop is left in the past.
#![no_main]

#[allow(dead_code, reason = "tests of the protocol use the rest")]
#[path = "../../crates/proto/tests/hostile/peer.rs"]
mod peer;

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::arbitrary::{self, Unstructured};
use libfuzzer_sys::fuzz_target;
use peer::Peer;
use tidewire_fuzz::Null;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::Received;
use tidewire_proto::crypto::Secret;
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint, EndpointConfig};
use tidewire_proto::recode::Relaying;
use tidewire_proto::relay::{End, PEER, end_to_end};
use tidewire_proto::wire::{Frame, Ranks, Recoded, Writer};

const DATAGRAM: usize = 1_472;
/// Generations kept in each direction.
const GENERATIONS: u64 = 8;
/// Most memory of the hop: rows of both directions, 64 symbols to a generation.
const MEMORY: usize = 2 * 8 * 64 * 1_700 + (1 << 20);

struct Host {
    hop: Endpoint,
    end: End,
    session: Endpoint,
    now: Time,
    handle: Option<ConnectionHandle>,
}

fn endpoint(connection: Config, secret: u8) -> Endpoint {
    let (credentials, provider) = (Secret::new([secret; 32]).into(), Arc::new(Null));
    Endpoint::new(EndpointConfig { credentials, listen: true, connection, provider }, [2; 32])
}

impl Host {
    fn new() -> Self {
        let mut relaying = Relaying::default();
        relaying.generations = GENERATIONS;
        let hop = Config::builder().ring_memory(1 << 20).relaying(Some(relaying)).build().expect("in range");
        let session = end_to_end(&Config::default(), 1_200).expect("in range");
        let (end, session) = (End::new(PEER), endpoint(session, 8));
        Self { hop: endpoint(hop, 7), end, session, now: Time::from_millis(1), handle: None }
    }

    fn meet(&mut self) -> Peer {
        let mut peer = Peer::connect(Arc::new(Null), &Secret::new([7; 32]), self.now, 1, |from, buffer, len| {
            let datagram = &mut buffer[..len];
            self.hop.handle_datagram(Received { at: self.now, from, to: None, ecn: None, datagram });
            self.hop.poll_transmit(self.now, 1, buffer).expect("a REPLY").len
        });
        self.hear(&mut peer, |w| Frame::Ping.emit(w).expect("room"));
        self.turn();
        self.handle = self.hop.connections().next().map(|(handle, _)| handle);
        peer
    }

    fn hear(&mut self, peer: &mut Peer, frames: impl FnOnce(&mut Writer<'_>)) {
        let from = peer.from;
        let datagram = peer.seal(frames);
        self.hop.handle_datagram(Received { at: self.now, from, to: None, ecn: None, datagram });
    }

    /// Lets the end act, and sends all datagrams.
    fn turn(&mut self) {
        let mut out = [0; DATAGRAM];
        self.hop.handle_timeout(self.now);
        self.session.handle_timeout(self.now);
        if let Some(hop) = self.handle.and_then(|handle| self.hop.connection_mut(handle)) {
            self.end.drive(self.now, hop, &mut self.session);
            let stats = hop.relay_stats();
            let parts = stats.innovative + stats.redundant + stats.zero + stats.misplaced + stats.malformed;
            assert_eq!(stats.received, parts + stats.overrun);
            assert!(hop.memory() <= MEMORY, "{} bytes", hop.memory());
        }
        while self.hop.poll_transmit(self.now, 1, &mut out).is_some() {}
        while self.hop.poll_event().is_some() || self.session.poll_event().is_some() {}
        let due = self.hop.poll_timeout();
        assert!(due.is_none_or(|(at, _)| at > self.now), "{due:?} was served at {:?}", self.now);
    }
}

fuzz_target!(|data: &[u8]| {
    let (mut host, mut input) = (Host::new(), Unstructured::new(data));
    let mut peer = host.meet();
    while !input.is_empty() {
        // The run ends where the input ends, even in the middle of a step.
        if step(&mut host, &mut peer, &mut input).is_err() {
            break;
        }
    }
    host.turn();
});

fn step(host: &mut Host, peer: &mut Peer, input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    match input.int_in_range(0..=7u8)? {
        0 => {
            let len = input.int_in_range(1..=1_200)?.min(input.len());
            let frames = input.bytes(len)?;
            // A packet cannot be empty.
            let frames = if frames.is_empty() { &[0] } else { frames };
            host.hear(peer, |w| w.bytes(frames).expect("room"));
        }
        1..=4 => {
            let (relays, generation, length) =
                (input.arbitrary()?, input.int_in_range(0..=9)?, input.int_in_range(0..=65)?);
            let count = input.int_in_range(0..=66)?.min(input.len());
            let vector = input.bytes(count)?;
            let len = input.int_in_range(0..=80)?.min(input.len());
            let symbol = input.bytes(len)?;
            let frame = Frame::Recoded(Recoded { relays, generation, length, vector, symbol });
            host.hear(peer, |w| frame.emit(w).expect("room"));
        }
        5 => {
            let (edge, room) = (input.int_in_range(0..=9)?, input.arbitrary::<u64>()? >> 2);
            let count = input.int_in_range(0..=12)?.min(input.len());
            let frame = Frame::Ranks(Ranks { edge, room, ranks: input.bytes(count)? });
            host.hear(peer, |w| frame.emit(w).expect("room"));
        }
        6 => host.now += Duration::from_micros(u64::from(input.arbitrary::<u16>()?) * 50),
        _ => host.turn(),
    }
    Ok(())
}
