//! The endpoint under test, with an allocator that counts its memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseReason, Connection, Event, Received, StreamId};
use tidewire_proto::crypto::{AwsLc, Secret};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint, EndpointConfig};
use tidewire_proto::handshake::Credentials;
use tidewire_proto::wire::{Frame, Layout, SYMBOL_HEADER_LEN, SymbolFrame, SymbolHeader, Writer};

use super::meter::Meter;
use super::peer::Peer;

pub const DATAGRAM: usize = 1_472;

pub fn secret() -> Secret {
    Secret::new([7; 32])
}

/// A generator of test input (Knuth's linear congruential generator).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// The byte at an offset of a stream.
pub fn pattern(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

pub struct Host {
    pub endpoint: Endpoint,
    pub meter: Meter,
    pub address: SocketAddr,
    pub now: Time,
    /// The newest connection.
    pub handle: Option<ConnectionHandle>,
    pub closed: Vec<CloseReason>,
    out: Vec<u8>,
}

impl Host {
    pub fn new(connection: Config, port: u16) -> Self {
        let credentials = Credentials::Psk(secret());
        let config = EndpointConfig { credentials, listen: true, connection, provider: Arc::new(AwsLc) };
        Self {
            endpoint: Endpoint::new(config, [port as u8; 32]),
            meter: Meter::default(),
            address: ([127, 0, 0, 1], port).into(),
            now: Time::from_millis(1),
            handle: None,
            closed: Vec::with_capacity(1_024),
            out: vec![0; DATAGRAM],
        }
    }

    /// Makes a scripted peer and connects it.
    pub fn meet(&mut self, nth: u16) -> Peer {
        // Slowly enough not to look like a flood.
        self.wait(Duration::from_millis(20));
        let now = self.now;
        let mut peer = Peer::connect(Arc::new(AwsLc), &secret(), now, nth, |from, buffer, len| {
            self.take(from, &mut buffer[..len]);
            let mut reply = 0;
            self.turn(|to, datagram| {
                if to == from {
                    reply = datagram.len();
                    buffer[..reply].copy_from_slice(datagram);
                }
            });
            reply
        });
        self.hear(&mut peer, |w| Frame::Ping.emit(w).expect("room"));
        self.turn(|_, _| {});
        peer
    }

    pub fn take(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        let Self { endpoint, meter, now, .. } = self;
        meter.run(|| endpoint.handle_datagram(Received { at: *now, from, to: None, ecn: None, datagram }));
    }

    /// Takes a packet of the peer.
    pub fn hear(&mut self, peer: &mut Peer, frames: impl FnOnce(&mut Writer<'_>)) {
        let from = peer.from;
        self.take(from, peer.seal(frames));
    }

    /// Takes a source symbol of lane 0 that contains these frames.
    pub fn hear_symbol(&mut self, peer: &mut Peer, id: u64, frames: &[SymbolFrame<'_>]) {
        let mut symbol = [0; 1_300];
        let mut w = Writer::resume(&mut symbol, SYMBOL_HEADER_LEN);
        frames.iter().for_each(|frame| frame.emit(&mut w).expect("room"));
        let len = w.len();
        SymbolHeader { length: len as u16, time: 0 }.emit(&mut symbol).expect("room");
        let (id, base) = (tidewire_codec::SourceId(id), tidewire_codec::SourceId(0));
        let source = Frame::Source { lane: 0, layout: Layout::Sliding, id, base, again: false, symbol: &symbol[..len] };
        self.hear(peer, |w| source.emit(w).expect("room"));
    }

    /// Runs timers and events, and sends all datagrams that are due now.
    pub fn turn(&mut self, mut send: impl FnMut(SocketAddr, &mut [u8])) {
        let Self { endpoint, meter, now, handle, closed, out, .. } = self;
        meter.run(|| endpoint.handle_timeout(*now));
        loop {
            while let Some(transmit) = meter.run(|| endpoint.poll_transmit(*now, 1, out)) {
                send(transmit.destination, &mut out[..transmit.len]);
            }
            match meter.run(|| endpoint.poll_event()) {
                None => break,
                Some((of, Event::Connected)) => *handle = Some(of),
                Some((_, Event::Closed(reason))) => closed.push(reason),
                Some(_) => {}
            }
        }
        // After an endpoint was served, its next deadline must be later, whatever a peer sends. Otherwise its
        // driver would spin.
        let due = meter.run(|| endpoint.poll_timeout());
        assert!(due.is_none_or(|(at, _)| at > *now), "{due:?} was served at {now:?}");
    }

    pub fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    pub fn with<R>(&mut self, act: impl FnOnce(&mut Connection) -> R) -> R {
        let Self { endpoint, meter, handle, .. } = self;
        let connection = endpoint.connection_mut(handle.expect("connected")).expect("alive");
        meter.run(|| act(connection))
    }

    /// Writes the pattern from `at` on. Returns the new end.
    pub fn write(&mut self, stream: StreamId, mut at: u64) -> u64 {
        let mut data = [0; 4_096];
        loop {
            data.iter_mut().zip(at..).for_each(|(byte, at)| *byte = pattern(at));
            match self.with(|connection| connection.write(stream, &data)) {
                Ok(n) => at += n as u64,
                Err(_) => return at,
            }
        }
    }

    /// Reads the available data and compares it with the pattern from `at` on. Returns the end of it.
    pub fn read(&mut self, stream: StreamId, mut at: u64) -> u64 {
        let (mut data, now) = ([0; 4_096], self.now);
        while let Ok(n @ 1..) = self.with(|connection| connection.read(now, stream, &mut data)) {
            assert!(data[..n].iter().zip(at..).all(|(&byte, at)| byte == pattern(at)), "wrong bytes from {at} on");
            at += n as u64;
        }
        at
    }

    /// Reads and discards the available data.
    pub fn read_all(&mut self, stream: StreamId) {
        let (mut data, now) = ([0; 4_096], self.now);
        while let Ok(1..) = self.with(|connection| connection.read(now, stream, &mut data)) {}
    }
}
