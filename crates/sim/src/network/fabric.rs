//! The links of a network in operation, and the routers between them.
//!
//! The owner sends packets at nodes, and polls what arrives at their destinations. A router forwards a packet
//! at the moment at which it arrives. Marks and damage of all links add up. Invariant: a packet that a link
//! delivers is sent on at once or arrives, so each packet is in exactly one link's count.

use tidewire_proto::Time;

use super::topology::{Hop, Routes, Topology};
use crate::duplex::DuplexLink;
use crate::link::{Corruption, Delivery, IPV4_UDP_HEADERS, Link, share_media};
use crate::pair::End;

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct Packet<T> {
    /// The number of the node that it goes to.
    pub to: usize,
    /// Bytes of UDP payload, or as many as make the IP packet as long.
    pub len: usize,
    /// Whether its sender supports congestion marks.
    pub supports_marks: bool,
    /// Whether a link asked for a congestion mark.
    pub marked: bool,
    /// Changes of its bytes, which the owner applies.
    pub damage: Vec<Corruption>,
    /// What it carries.
    pub payload: T,
}

impl<T> Packet<T> {
    /// A packet that has not been sent yet.
    pub fn new(to: usize, len: usize, supports_marks: bool, payload: T) -> Self {
        Self { to, len, supports_marks, marked: false, damage: Vec::new(), payload }
    }

    /// The payload of an IP packet of `ip_bytes`.
    pub fn len_of_ip(ip_bytes: usize) -> usize {
        ip_bytes.saturating_sub(IPV4_UDP_HEADERS)
    }
}

/// All links and routes; see the module.
#[derive(Debug)]
pub struct Fabric<T> {
    links: Vec<DuplexLink<Packet<T>>>,
    nodes: Vec<[usize; 2]>,
    routes: Routes,
    /// Packets that had no way.
    astray: u64,
}

impl<T: Clone> Fabric<T> {
    /// Idle links.
    pub fn new(topology: &Topology) -> Self {
        let mut links: Vec<_> = topology.links.iter().map(|joint| DuplexLink::new(&joint.config)).collect();
        share_media(links.iter_mut().flat_map(|link: &mut DuplexLink<_>| [&mut link.forward, &mut link.back]));
        let nodes = topology.links.iter().map(|joint| joint.nodes).collect();
        Self { links, nodes, routes: topology.routes(), astray: 0 }
    }

    /// Sends a packet from node `at`.
    pub fn send(&mut self, now: Time, at: usize, packet: Packet<T>) {
        match self.routes.next(at, packet.to) {
            Some(hop) => {
                let (len, supports_marks) = (packet.len, packet.supports_marks);
                self.way(hop).send_from(now, len, supports_marks, packet);
            }
            None => self.astray += 1,
        }
    }

    /// When something arrives at a node; `None` if nothing is on its way.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.links.iter().filter_map(DuplexLink::poll_timeout).min()
    }

    /// The next packet that has arrived at its destination by `now`. Call until `None`, at each time of
    /// [`Self::poll_timeout`].
    pub fn poll_arrival(&mut self, now: Time) -> Option<Packet<T>> {
        let mut link = 0;
        while link < self.links.len() {
            for enters in [End::Near, End::Far] {
                while let Some(Delivery { mut payload, corruption, marked, .. }) =
                    self.way(Hop { link, enters }).poll_delivery(now)
                {
                    payload.marked |= marked;
                    payload.damage.extend(corruption);
                    let at = self.nodes[link][enters.other() as usize];
                    if at == payload.to {
                        return Some(payload);
                    }
                    self.send(now, at, payload);
                }
            }
            link += 1;
        }
        None
    }

    /// The links in the order of the topology.
    pub fn links_mut(&mut self) -> &mut [DuplexLink<Packet<T>>] {
        &mut self.links
    }

    /// Packets that had no way to their destination.
    pub fn astray(&self) -> u64 {
        self.astray
    }

    fn way(&mut self, hop: Hop) -> &mut Link<Packet<T>> {
        let link = &mut self.links[hop.link];
        if hop.enters == End::Near { &mut link.forward } else { &mut link.back }
    }
}
