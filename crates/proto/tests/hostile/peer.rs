//! A scripted peer with valid keys: its packets are authentic and need not be honest.
//!
//! Shared by these tests and the fuzz target `hostile_peer`.

use std::net::SocketAddr;
use std::sync::Arc;

use tidewire_proto::Time;
use tidewire_proto::crypto::{OpeningKey, Provider, SealingKey, Secret};
use tidewire_proto::handshake::{Initiator, Parameters};
use tidewire_proto::wire::{ConnectionId, TAG_LEN, Writer, write_short_header};

const DATAGRAM: usize = 1_472;

pub struct Peer {
    sealing: SealingKey,
    opening: OpeningKey,
    /// The host's connection id, and the peer's address.
    us: ConnectionId,
    pub from: SocketAddr,
    /// Number of the next packet.
    next: u64,
    buffer: Box<[u8; DATAGRAM]>,
}

impl Peer {
    /// Connects as the `nth` of all peers. `exchange` passes the HELLO, which has the given length, to the
    /// endpoint and replaces it by the REPLY. The first sealed packet makes the connection live.
    pub fn connect(
        provider: Arc<dyn Provider>,
        secret: &Secret,
        now: Time,
        nth: u16,
        exchange: impl FnOnce(SocketAddr, &mut [u8], usize) -> usize,
    ) -> Self {
        let from = SocketAddr::from(([10, 0, 0, 1], nth));
        let mut name = [0; 8];
        name[..2].copy_from_slice(&nth.to_be_bytes());
        let parameters = Parameters { lane_credit: 1 << 20, stream_credit: 1 << 28, ..Parameters::default() };
        let mut initiator = Initiator::new(secret, ConnectionId(name), &parameters, provider, [nth as u8; 32], now);
        let mut buffer = Box::new([0; DATAGRAM]);
        let len = initiator.poll_transmit(now, &mut buffer[..]).expect("a HELLO");
        let len = exchange(from, &mut buffer[..], len);
        let session = initiator.handle_reply(&buffer[..len]).expect("the REPLY fits");
        Self { sealing: session.sealing, opening: session.opening, us: session.remote, from, next: 0, buffer }
    }

    /// Seals the next packet, with the frames that `frames` writes.
    pub fn seal(&mut self, frames: impl FnOnce(&mut Writer<'_>)) -> &mut [u8] {
        let mut w = Writer::new(&mut self.buffer[..DATAGRAM - TAG_LEN]);
        write_short_header(&mut w, self.us, self.next, 0).expect("room");
        frames(&mut w);
        let len = w.len() + TAG_LEN;
        let datagram = &mut self.buffer[..len];
        self.sealing.seal(0, self.next, datagram).expect("sealed");
        self.next += 1;
        datagram
    }

    /// Skips this many packet numbers.
    #[allow(dead_code)] // The fuzz target shares this file.
    pub fn skip(&mut self, numbers: u64) {
        self.next += numbers;
    }

    /// The number and the frames of a received datagram.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<(u64, &'a [u8])> {
        let opened = self.opening.open(0, datagram).ok()?;
        Some((opened.number, &datagram[opened.payload]))
    }
}
