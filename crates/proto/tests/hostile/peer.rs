//! A peer by hand that holds the right keys: what it says is authentic, and need not be honest.
//!
//! Shared by these tests and the fuzz target `hostile_peer`.

use std::net::SocketAddr;
use std::sync::Arc;

use tidewire_proto::Time;
use tidewire_proto::connection::Received;
use tidewire_proto::crypto::{OpeningKey, Provider, SealingKey, Secret};
use tidewire_proto::endpoint::Endpoint;
use tidewire_proto::handshake::{Initiator, Parameters};
use tidewire_proto::wire::{ConnectionId, TAG_LEN, Writer, write_short_header};

const DATAGRAM: usize = 1_472;

pub struct Peer {
    sealing: SealingKey,
    opening: OpeningKey,
    /// What it calls the connection, and from where.
    us: ConnectionId,
    pub from: SocketAddr,
    /// Number of its next packet.
    next: u64,
    buffer: Box<[u8; DATAGRAM]>,
}

impl Peer {
    /// Connects to an endpoint; the first packet that it seals makes the connection one.
    pub fn connect(endpoint: &mut Endpoint, provider: Arc<dyn Provider>, secret: &Secret, now: Time, nth: u16) -> Self {
        let from = SocketAddr::from(([10, 0, 0, 1], nth));
        let mut name = [0; 8];
        name[..2].copy_from_slice(&nth.to_be_bytes());
        let parameters =
            Parameters { lane_credit: 1 << 20, stream_credit: 1 << 30, streams: 128, ..Parameters::default() };
        let mut initiator = Initiator::new(secret, ConnectionId(name), &parameters, provider, [nth as u8; 32], now);
        let mut buffer = Box::new([0; DATAGRAM]);
        let len = initiator.poll_transmit(now, &mut buffer[..]).expect("a HELLO");
        endpoint.handle_datagram(Received { at: now, from, ecn: None, datagram: &mut buffer[..len] });
        loop {
            let reply = endpoint.poll_transmit(now, 1, &mut buffer[..]).expect("a REPLY");
            if reply.destination == from {
                let session = initiator.handle_reply(&buffer[..reply.len]).expect("the REPLY fits");
                return Self {
                    sealing: session.sealing,
                    opening: session.opening,
                    us: session.remote,
                    from,
                    next: 0,
                    buffer,
                };
            }
        }
    }

    /// The next packet, of what `frames` writes.
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

    /// The number and the frames of a datagram that came.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<(u64, &'a [u8])> {
        let opened = self.opening.open(0, datagram).ok()?;
        Some((opened.number, &datagram[opened.payload]))
    }
}
