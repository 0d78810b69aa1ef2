//! Carries packets between the device and the connections of the peers.
//!
//! One task reads the device and puts each packet into the queue of its peer. Each connection has a task that
//! moves packets from the queue to a lane of messages, and one that writes what arrives to the device
//! ([`Hub::carry`]). Invariant: a packet leaves the device only if the peer that sent it has its source
//! address, and enters the transport only for the peer that has its destination.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use ipnet::IpNet;
use tidewire::{CloseReason, Connection, LaneId, MessageError, Outgoing, Time};
use tidewire_proto::tunnel::{Fates, RoundTrip, lane, lifetime};

use crate::REPLACED;
use crate::addresses::{Entry, Overlap};
use crate::counts::{Counters, Counts, Reason};
use crate::device::{Device, Inbox};
use crate::icmp::{self, Refusal};
use crate::outbox::Outbox;
use crate::packet::Packet;
use crate::peers::{Peer, Peers};
use crate::unheard::Unheard;

/// The device, and the peers; see the module.
pub struct Hub {
    device: Device,
    own: Vec<IpNet>,
    mtu: u16,
    /// Replaced as a whole when the list of peers changes.
    peers: RwLock<Arc<Peers>>,
    counters: Counters,
    /// What the queues of peers did that are not listed any more.
    gone: Mutex<Fates>,
    /// The origin of the times that the queues get.
    start: Instant,
}

impl Hub {
    /// A tunnel between a device for packets of at most `mtu` bytes with these addresses, and these peers.
    ///
    /// # Errors
    /// Networks of two peers overlap.
    pub fn new(device: Device, own: Vec<IpNet>, mtu: u16, entries: Vec<Entry>) -> Result<Self, Overlap> {
        let peers = RwLock::new(Arc::new(Peers::default().replaced_by(entries, mtu)?));
        let (counters, gone) = (Counters::default(), Mutex::default());
        Ok(Self { device, own, mtu, peers, counters, gone, start: Instant::now() })
    }

    /// Where packets for peers come from and packets of peers go.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Longest packet that we take.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// A snapshot: later changes of the list are not in it.
    pub fn peers(&self) -> Arc<Peers> {
        Arc::clone(&self.peers.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Carries packets for these peers from now on. A peer that stays keeps its connection and its queue. The
    /// caller ends the connections of the others.
    ///
    /// # Errors
    /// Networks of two peers overlap; nothing changes.
    pub fn replace_peers(&self, entries: Vec<Entry>) -> Result<(), Overlap> {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        let before = Arc::clone(&peers);
        *peers = Arc::new(before.replaced_by(entries, self.mtu)?);
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        before.left_by(&peers).for_each(|peer| add(&mut gone, peer.queue().fates()));
        Ok(())
    }

    /// What happened to packets so far.
    pub fn counts(&self) -> Counts {
        let mut fates = *self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let mut expired = 0;
        for listed in self.peers().listed() {
            add(&mut fates, listed.peer.queue().fates());
            expired += listed.peer.connection().map_or(0, |connection| connection.stats().messages.expired);
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
            // Those at the time of the first packet, for all packets of a read.
            let mut peers = None;
            self.device
                .read(&mut inbox, |bytes| match self.admit(bytes, peers.get_or_insert_with(|| self.peers())) {
                    Ok(peer) => filled.push(peer),
                    Err(answer) => answer.iter().for_each(|answer| answers.push_alone(answer)),
                })
                .await?;
            filled.dedup_by(|a, b| Arc::ptr_eq(a, b));
            filled.drain(..).for_each(|peer: Arc<Peer>| peer.filled.notify_one());
            if !answers.is_empty() {
                // An answer that the kernel refuses is like one that got lost.
                self.device.write(&mut answers).await;
            }
        }
    }

    /// Queues a packet of the device for its peer. The error is the answer to its sender, if there is one.
    fn admit(&self, bytes: Vec<u8>, peers: &Peers) -> Result<Arc<Peer>, Option<Vec<u8>>> {
        let Some(mut packet) = Packet::parse(bytes) else {
            self.counters.dropped(Reason::Malformed);
            return Err(None);
        };
        let Some(peer) = peers.at(packet.destination()) else {
            self.counters.dropped(Reason::NoPeer);
            return Err(icmp::answer(&packet, Refusal::NoPeer));
        };
        let mtu = peer.mtu.load(Ordering::Relaxed);
        if packet.len() > mtu.into() {
            self.counters.dropped(Reason::TooLong);
            return Err(icmp::answer(&packet, Refusal::TooLong(mtu)));
        }
        packet.clamp_mss(mtu.into());
        peer.queue().push(packet, self.now());
        Ok(Arc::clone(peer))
    }

    /// Carries packets over a connection of a peer that takes packets of at most `mtu` bytes, until the
    /// connection ends. An earlier connection of the peer is closed.
    pub async fn carry(&self, peer: &Arc<Peer>, connection: &Connection, mtu: u16) -> CloseReason {
        peer.mtu.store(mtu.min(self.mtu), Ordering::Relaxed);
        let number = peer.connections.fetch_add(1, Ordering::Relaxed);
        if let Some((_, before)) = peer.current.send_replace(Some((number, connection.clone()))) {
            before.close(REPLACED, "the same peer connected again");
        }
        let mut unheard = Unheard::new(connection.stats().packets.received);
        if let Ok(lane) = connection.open_lane(&lane()) {
            // Both end only with the connection.
            let _ = tokio::join!(self.send(peer, connection, lane, &mut unheard), self.receive(peer, connection));
        }
        let reason = connection.closed().await;
        let now = self.now();
        unheard.into_packets(now).for_each(|packet| peer.queue().push(packet, now));
        // A packet of which this connection was told may still wait.
        peer.filled.notify_one();
        self.counters.expired(connection.stats().messages.expired);
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
    async fn send(
        &self,
        peer: &Peer,
        connection: &Connection,
        lane: LaneId,
        unheard: &mut Unheard,
    ) -> Result<(), MessageError> {
        let most = usize::from(self.mtu);
        let mut rtt = RoundTrip::new(self.now(), connection.rtt());
        loop {
            connection.lane_room(lane, most).await?;
            tokio::select! {
                () = peer.filled.notified() => {}
                _ = connection.closed() => return Err(MessageError::NotConnected),
            }
            let now = self.now();
            let rtt = rtt.at(now, || {
                unheard.look(connection.stats().packets.received);
                connection.rtt()
            });
            connection.fill_lane(lane, most, || {
                let packet = peer.queue().pop(now, rtt)?;
                unheard.take(&packet, now);
                self.counters.sent(packet.len());
                let delivery = packet.delivery();
                Some(Outgoing {
                    delivery,
                    data: packet.into_bytes(),
                    lifetime: lifetime(rtt, delivery),
                    important: false,
                })
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
    async fn receive(&self, peer: &Arc<Peer>, connection: &Connection) {
        let (mut messages, mut outbox) = (Vec::new(), Outbox::default());
        while connection.receive_messages(&mut messages).await.is_ok() {
            let peers = self.peers();
            for message in messages.drain(..) {
                let Some(mut packet) = Packet::parse(message.data) else {
                    self.counters.dropped(Reason::Malformed);
                    continue;
                };
                let is_own = self.own.iter().any(|own| own.addr() == packet.source());
                let has_source = peers.at(packet.source()).is_some_and(|owner| Arc::ptr_eq(owner, peer));
                if is_own || !has_source {
                    self.counters.dropped(Reason::Spoofed);
                    continue;
                }
                packet.clamp_mss(self.mtu.into());
                self.counters.received(packet.len());
                outbox.push(&packet);
            }
            if !outbox.is_empty() && !self.device.write(&mut outbox).await {
                self.counters.dropped(Reason::Refused);
            }
        }
    }
}

fn add(sum: &mut Fates, of: Fates) {
    sum.late += of.late;
    sum.marked += of.marked;
    sum.overflow += of.overflow;
}
