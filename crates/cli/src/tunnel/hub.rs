//! Carries packets between the device and the connections of the peers.
//!
//! One task reads the device and puts each packet into the queue of its peer. Each connection has a task that
//! moves packets from the queue to a lane of messages, and one that writes what arrives to the device
//! ([`Hub::carry`]). Invariant: a packet leaves the device only if the peer that sent it has its source
//! address, and enters the transport only for the peer that has its destination.

use std::hash::RandomState;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ipnet::IpNet;
use tidewire::{CloseReason, Connection, LaneId, MessageError, Outgoing, Time};
use tidewire_proto::tunnel::{Fates, Queue, RoundTrip, lane, lifetime};
use tokio::sync::{Notify, watch};

use super::REPLACED;
use super::addresses::{Entry, Overlap, Table};
use super::counts::{Counters, Counts, Reason};
use super::device::{Device, Inbox, Outbox};
use super::icmp::{self, Refusal};
use super::packet::Packet;

/// The device, and the peers; see the module.
pub struct Hub {
    device: Device,
    own: Vec<IpNet>,
    mtu: u16,
    peers: Vec<Peer>,
    table: Table,
    counters: Counters,
    /// The origin of the times that the queues get.
    start: Instant,
}

/// A peer, connected or not.
pub struct Peer {
    /// Its key and networks.
    pub entry: Entry,
    /// The key that spreads its flows is secret.
    queue: Mutex<Queue<Packet, RandomState>>,
    filled: Notify,
    /// Its longest packet.
    mtu: AtomicU16,
    /// Its connection, and the number of that connection.
    current: watch::Sender<Option<(u64, Connection)>>,
    /// Number of connections so far.
    connections: AtomicU64,
    /// Expired messages of its earlier connections.
    expired: AtomicU64,
}

impl Hub {
    /// A tunnel between a device for packets of at most `mtu` bytes with these addresses, and these peers.
    ///
    /// # Errors
    /// Networks of two peers overlap.
    pub fn new(device: Device, own: Vec<IpNet>, mtu: u16, entries: Vec<Entry>) -> Result<Self, Overlap> {
        let table = Table::new(entries.iter().map(|entry| &entry.networks[..]))?;
        let peer = |entry| Peer {
            entry,
            queue: Mutex::new(Queue::new(mtu.into(), RandomState::new())),
            filled: Notify::new(),
            mtu: AtomicU16::new(mtu),
            current: watch::Sender::new(None),
            connections: AtomicU64::new(0),
            expired: AtomicU64::new(0),
        };
        let peers = entries.into_iter().map(peer).collect();
        Ok(Self { device, own, mtu, peers, table, counters: Counters::default(), start: Instant::now() })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Longest packet that we take.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// The peers.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// The peer that has an address.
    pub fn peer_of(&self, address: IpAddr) -> Option<usize> {
        self.table.peer(address)
    }

    /// What happened to packets so far.
    pub fn counts(&self) -> Counts {
        let mut fates = Fates::default();
        let mut expired = 0;
        for peer in &self.peers {
            let of = peer.queue().fates();
            fates.late += of.late;
            fates.marked += of.marked;
            fates.overflow += of.overflow;
            expired += peer.expired.load(Ordering::Relaxed);
            expired += peer.connection().map_or(0, |connection| connection.stats().messages.expired);
        }
        self.counters.read(fates, expired)
    }

    /// Moves packets from the device to the queues, for ever.
    ///
    /// # Errors
    /// The device is gone.
    pub async fn read_device(&self) -> io::Result<()> {
        let (mut inbox, mut answers, mut filled) = (Inbox::new(self.mtu), Outbox::default(), Vec::new());
        loop {
            self.device
                .read(&mut inbox, |bytes| match self.admit(bytes) {
                    Ok(peer) => filled.push(peer),
                    Err(answer) => answer.iter().for_each(|answer| answers.push(answer)),
                })
                .await?;
            filled.dedup();
            filled.drain(..).for_each(|peer| self.peers[peer].filled.notify_one());
            if !answers.is_empty() {
                // An answer that the kernel refuses is like one that got lost.
                self.device.write(&mut answers).await;
            }
        }
    }

    /// Queues a packet of the device for its peer. The error is the answer to its sender, if there is one.
    fn admit(&self, bytes: Vec<u8>) -> Result<usize, Option<Vec<u8>>> {
        let Some(mut packet) = Packet::parse(bytes) else {
            self.counters.dropped(Reason::Malformed);
            return Err(None);
        };
        let Some(index) = self.table.peer(packet.destination()) else {
            self.counters.dropped(Reason::NoPeer);
            return Err(icmp::answer(&packet, Refusal::NoPeer));
        };
        let peer = &self.peers[index];
        let mtu = peer.mtu.load(Ordering::Relaxed);
        if packet.len() > mtu.into() {
            self.counters.dropped(Reason::TooLong);
            return Err(icmp::answer(&packet, Refusal::TooLong(mtu)));
        }
        packet.clamp_mss(mtu.into());
        peer.queue().push(packet, self.now());
        Ok(index)
    }

    /// Carries packets over a connection of a peer that takes packets of at most `mtu` bytes, until the
    /// connection ends. An earlier connection of the peer is closed.
    pub async fn carry(&self, index: usize, connection: &Connection, mtu: u16) -> CloseReason {
        let peer = &self.peers[index];
        peer.mtu.store(mtu.min(self.mtu), Ordering::Relaxed);
        let number = peer.connections.fetch_add(1, Ordering::Relaxed);
        if let Some((_, before)) = peer.current.send_replace(Some((number, connection.clone()))) {
            before.close(REPLACED, "the same peer connected again");
        }
        if let Ok(lane) = connection.open_lane(&lane()) {
            // Both end only with the connection.
            let _ = tokio::join!(self.send(peer, connection, lane), self.receive(index, connection));
        }
        let reason = connection.closed().await;
        // A packet of which this connection was told may still wait.
        peer.filled.notify_one();
        peer.expired.fetch_add(connection.stats().messages.expired, Ordering::Relaxed);
        peer.current.send_if_modified(|current| {
            let is_ours = current.as_ref().is_some_and(|(current, _)| *current == number);
            if is_ours {
                *current = None;
            }
            is_ours
        });
        reason
    }

    /// Moves packets from the queue of a peer to the lane.
    async fn send(&self, peer: &Peer, connection: &Connection, lane: LaneId) -> Result<(), MessageError> {
        let most = usize::from(self.mtu);
        let mut rtt = RoundTrip::new(self.now(), connection.rtt());
        loop {
            connection.lane_room(lane, most).await?;
            tokio::select! {
                () = peer.filled.notified() => {}
                _ = connection.closed() => return Err(MessageError::NotConnected),
            }
            let now = self.now();
            let rtt = rtt.at(now, || connection.rtt());
            connection.fill_lane(lane, most, || {
                let packet = peer.queue().pop(now, rtt)?;
                self.counters.sent(packet.len());
                let delivery = packet.delivery();
                Some(Outgoing { delivery, data: packet.into_bytes(), lifetime: lifetime(rtt, delivery) })
            })?;
            if !peer.queue().is_empty() {
                peer.filled.notify_one();
            }
        }
    }

    /// The time since the tunnel was made.
    fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    /// Writes packets of a peer to the device.
    async fn receive(&self, index: usize, connection: &Connection) {
        let (mut messages, mut outbox) = (Vec::new(), Outbox::default());
        while connection.receive_messages(&mut messages).await.is_ok() {
            for message in messages.drain(..) {
                let Some(mut packet) = Packet::parse(message.data) else {
                    self.counters.dropped(Reason::Malformed);
                    continue;
                };
                let is_own = self.own.iter().any(|own| own.addr() == packet.source());
                if is_own || self.table.peer(packet.source()) != Some(index) {
                    self.counters.dropped(Reason::Spoofed);
                    continue;
                }
                packet.clamp_mss(self.mtu.into());
                self.counters.received(packet.len());
                outbox.push(packet.bytes());
            }
            if !outbox.is_empty() && !self.device.write(&mut outbox).await {
                self.counters.dropped(Reason::Refused);
            }
        }
    }
}

impl Peer {
    /// The connection, if there is one.
    pub fn connection(&self) -> Option<Connection> {
        self.current.borrow().as_ref().map(|(_, connection)| connection.clone())
    }

    fn queue(&self) -> MutexGuard<'_, Queue<Packet, RandomState>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
