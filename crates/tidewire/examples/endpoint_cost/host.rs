//! The endpoint that is measured, without a socket and in virtual time, and peers by hand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire_codec::SourceId;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::Received;
use tidewire_proto::crypto::{AwsLc, OpeningKey, SealingKey, Secret};
use tidewire_proto::endpoint::{Endpoint, EndpointConfig};
use tidewire_proto::handshake::{Credentials, Initiator, Parameters, Session};
use tidewire_proto::wire::{ConnectionId, FeedbackRepr, Frame, LaneRepr, TAG_LEN, Writer, write_short_header};

pub const DATAGRAM: usize = 1_472;

pub fn secret() -> Secret {
    Secret::new([7; 32])
}

/// A peer by hand: it sends PINGs, and acknowledges what it is told to.
pub struct Peer {
    sealing: SealingKey,
    opening: OpeningKey,
    us: ConnectionId,
    pub from: SocketAddr,
    next: u64,
}

impl Peer {
    pub fn new(session: Session, from: SocketAddr) -> Self {
        let Session { sealing, opening, remote: us, .. } = session;
        Self { sealing, opening, us, from, next: 0 }
    }

    pub fn ping(&mut self) -> Vec<u8> {
        self.seal(|w| Frame::Ping.emit(w).expect("room"))
    }

    /// Acknowledges a datagram of the endpoint: then the endpoint has nothing more to ask.
    pub fn acknowledge(&mut self, mut datagram: Vec<u8>) -> Option<Vec<u8>> {
        // What does not open is a REPLY, said once more.
        let (number, _) = self.open(&mut datagram)?;
        let lane = LaneRepr {
            lane: 0,
            edge: SourceId(0),
            end: SourceId(0),
            deficit: 0,
            limit: SourceId(256),
            undecoded: &[],
            regions: &[],
        };
        let feedback = FeedbackRepr {
            received: &[number..=number],
            delay: Duration::ZERO,
            arrival: None,
            ecn: None,
            stream_credit: None,
            lanes: &[lane],
            elicits: false,
        };
        Some(self.seal(|w| feedback.emit(w).expect("room")))
    }

    /// The number and the frames of a datagram that came.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<(u64, &'a [u8])> {
        let opened = self.opening.open(0, datagram).ok()?;
        Some((opened.number, &datagram[opened.payload]))
    }

    /// The next packet, of what `frames` writes.
    pub fn seal(&mut self, frames: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut datagram = vec![0; DATAGRAM];
        let mut w = Writer::new(&mut datagram[..DATAGRAM - TAG_LEN]);
        write_short_header(&mut w, self.us, self.next, 0).expect("room");
        frames(&mut w);
        let len = w.len() + TAG_LEN;
        datagram.truncate(len);
        self.sealing.seal(0, self.next, &mut datagram).expect("sealed");
        self.next += 1;
        datagram
    }
}

/// The handshake of a peer that accepts anything.
pub fn initiator(id: ConnectionId, now: Time) -> Initiator {
    let parameters =
        Parameters { idle_timeout_ms: 0, lane_credit: 1 << 20, stream_credit: 1 << 31, ..Parameters::default() };
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&id.0);
    Initiator::new(&secret(), id, &parameters, Arc::new(AwsLc), seed, now)
}

/// The endpoint that is measured.
pub struct Host {
    pub endpoint: Endpoint,
    pub now: Time,
    pub due: Time,
    out: Vec<u8>,
}

/// Where the nth peer is.
fn address(nth: usize) -> SocketAddr {
    ([10, 0, (nth >> 8) as u8, nth as u8], 4_000).into()
}

impl Host {
    pub fn new(connection: Config) -> Self {
        let credentials = Credentials::Psk(secret());
        let config = EndpointConfig { credentials, listen: true, connection, provider: Arc::new(AwsLc) };
        let endpoint = Endpoint::new(config, [1; 32]);
        Self { endpoint, now: Time::from_millis(1), due: Time::NEVER, out: vec![0; DATAGRAM] }
    }

    /// The nth peer connects. Returns what the host sends it first, and the time that the host took.
    pub fn meet(&mut self, nth: usize) -> (Peer, Vec<(SocketAddr, Vec<u8>)>, Duration) {
        let (from, id) = (address(nth), ConnectionId((nth as u64).to_be_bytes()));
        let mut initiator = initiator(id, self.now);
        let mut hello = vec![0; DATAGRAM];
        let len = initiator.poll_transmit(self.now, &mut hello).expect("a HELLO");
        let began = Instant::now();
        let replies = self.take(from, &mut hello[..len]);
        let mut opening = began.elapsed();
        let session = replies.iter().find_map(|(_, reply)| initiator.handle_reply(reply).ok()).expect("the REPLY fits");
        let mut peer = Peer::new(session, from);
        let mut ping = peer.ping();
        let began = Instant::now();
        let sent = self.take(from, &mut ping);
        opening += began.elapsed();
        (peer, sent, opening)
    }

    /// The peers acknowledge what was sent, and what is sent thereupon.
    pub fn answer(&mut self, mut sent: Vec<(SocketAddr, Vec<u8>)>, peers: &mut [Peer]) {
        while let Some((to, datagram)) = sent.pop() {
            let SocketAddr::V4(v4) = to else { continue };
            let [_, _, high, low] = v4.ip().octets();
            let peer = peers.get_mut(usize::from(high) << 8 | usize::from(low));
            if let Some(mut answer) = peer.and_then(|peer| peer.acknowledge(datagram)) {
                sent.extend(self.take(to, &mut answer));
            }
        }
    }

    /// A datagram comes, and all that follows from it at once is done. Returns what was sent.
    pub fn take(&mut self, from: SocketAddr, datagram: &mut [u8]) -> Vec<(SocketAddr, Vec<u8>)> {
        self.endpoint.handle_datagram(Received { at: self.now, from, to: None, ecn: None, datagram });
        let mut sent = Vec::new();
        self.turn(|to, datagram| sent.push((to, datagram.to_vec())));
        sent
    }

    pub fn turn(&mut self, mut send: impl FnMut(SocketAddr, &[u8])) {
        if self.due <= self.now {
            self.endpoint.handle_timeout(self.now);
        }
        while let Some(transmit) = self.endpoint.poll_transmit(self.now, 1, &mut self.out) {
            send(transmit.destination, &self.out[..transmit.len]);
        }
        while self.endpoint.poll_event().is_some() {}
        self.due = self.endpoint.poll_timeout().map_or(Time::NEVER, |(at, _)| at);
    }

    /// Time passes, and the peers answer.
    pub fn run_for(&mut self, time: Duration, peers: &mut [Peer]) {
        let end = self.now + time;
        while self.due <= end {
            self.now = self.now.max(self.due);
            let mut sent = Vec::new();
            self.turn(|to, datagram| sent.push((to, datagram.to_vec())));
            self.answer(sent, peers);
        }
        self.now = end;
    }
}
