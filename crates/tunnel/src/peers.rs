//! The peers of a tunnel at one time: who is listed, and which of them has an address.
//!
//! [`crate::hub`] asks it for each packet. When the list changes, the hub replaces the whole value, so
//! packets that are under way see the list before or the list after. Invariant: a peer that stays listed
//! stays the same [`Peer`], with its queue and its connection.

use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use tidewire::{Connection, PublicKey};
use tidewire_proto::tunnel::Queue;
use tokio::sync::{Notify, watch};

use crate::addresses::{Entry, Overlap, Table};
use crate::packet::Packet;

/// A peer, connected or not.
pub struct Peer {
    /// The key that spreads its flows is secret.
    queue: Mutex<Queue<Packet, RandomState>>,
    /// Told when a packet was queued.
    pub(crate) filled: Notify,
    /// Its longest packet.
    pub(crate) mtu: AtomicU16,
    /// Its connection, and the number of that connection.
    pub(crate) current: watch::Sender<Option<(u64, Connection)>>,
    /// Number of connections so far.
    pub(crate) connections: AtomicU64,
}

/// A peer with its key and networks.
pub struct Listed {
    /// Its key and networks.
    pub entry: Entry,
    /// Its queue and its connection.
    pub peer: Arc<Peer>,
}

/// All peers; see the module.
#[derive(Default)]
pub struct Peers {
    listed: Vec<Listed>,
    table: Table,
}

impl Peers {
    /// The same with these entries. A peer whose key was listed before is the same.
    ///
    /// # Errors
    /// Networks of two peers overlap.
    pub fn replaced_by(&self, entries: Vec<Entry>, mtu: u16) -> Result<Self, Overlap> {
        let table = Table::new(entries.iter().map(|entry| &entry.networks[..]))?;
        let list = |entry: Entry| {
            let known = self.with_key(entry.key).map(|listed| Arc::clone(&listed.peer));
            Listed { peer: known.unwrap_or_else(|| Arc::new(Peer::new(mtu))), entry }
        };
        Ok(Self { listed: entries.into_iter().map(list).collect(), table })
    }

    /// All of them.
    pub fn listed(&self) -> &[Listed] {
        &self.listed
    }

    /// The peer whose networks contain `address`.
    pub fn at(&self, address: IpAddr) -> Option<&Arc<Peer>> {
        self.table.peer(address).map(|index| &self.listed[index].peer)
    }

    /// The peer with this key; `None` stands for the only one.
    pub fn with_key(&self, key: Option<PublicKey>) -> Option<&Listed> {
        self.listed.iter().find(|listed| listed.entry.key == key)
    }

    /// Peers that `after` lacks.
    pub fn left_by<'a>(&'a self, after: &'a Self) -> impl Iterator<Item = &'a Peer> {
        let stays = |peer: &Arc<Peer>| after.listed.iter().any(|listed| Arc::ptr_eq(&listed.peer, peer));
        self.listed.iter().map(|listed| &listed.peer).filter(move |peer| !stays(peer)).map(|peer| &**peer)
    }

    /// Peer after peer, in the order of the list.
    pub fn networks(&self) -> impl Iterator<Item = IpNet> {
        self.listed.iter().flat_map(|listed| &listed.entry.networks).copied()
    }
}

impl Peer {
    fn new(mtu: u16) -> Self {
        Self {
            queue: Mutex::new(Queue::new(mtu.into(), RandomState::new())),
            filled: Notify::new(),
            mtu: AtomicU16::new(mtu),
            current: watch::Sender::new(None),
            connections: AtomicU64::new(0),
        }
    }

    /// The connection, if there is one.
    pub fn connection(&self) -> Option<Connection> {
        self.current.borrow().as_ref().map(|(_, connection)| connection.clone())
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue<Packet, RandomState>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tidewire::PrivateKey;

    use super::*;

    #[test]
    fn a_peer_that_stays_listed_stays_the_same_with_its_new_networks() {
        let entry = |n: u8, network: &str| Entry {
            key: Some(PrivateKey::new([n; 32]).public()),
            networks: vec![network.parse().unwrap()],
        };
        let peers = |before: &Peers, entries: &[Entry]| before.replaced_by(entries.to_vec(), 1_420).unwrap();
        let ip = |text: &str| text.parse().unwrap();
        let before = peers(&Peers::default(), &[entry(1, "10.0.0.1/32"), entry(2, "10.0.0.2/32")]);
        let after = peers(&before, &[entry(3, "10.0.0.3/32"), entry(2, "10.0.0.9/32")]);
        assert!(Arc::ptr_eq(before.at(ip("10.0.0.2")).unwrap(), after.at(ip("10.0.0.9")).unwrap()));
        assert!(after.at(ip("10.0.0.2")).is_none() && after.at(ip("10.0.0.1")).is_none());
        assert!(after.at(ip("10.0.0.3")).is_some());
        let left: Vec<_> = before.left_by(&after).collect();
        assert!(left.len() == 1 && std::ptr::eq(left[0], &**before.at(ip("10.0.0.1")).unwrap()));
        assert!(after.replaced_by(vec![entry(1, "10.0.0.0/24"), entry(2, "10.0.0.9/32")], 1_420).is_err());
        // A key that comes back is a new peer: its connection was ended.
        let again = peers(&after, &[entry(1, "10.0.0.1/32")]);
        assert!(!Arc::ptr_eq(before.at(ip("10.0.0.1")).unwrap(), again.at(ip("10.0.0.1")).unwrap()));
    }
}
