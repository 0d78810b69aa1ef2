//! Two hosts on one machine, joined by one link: the smallest network of [`Nodes`].
//!
//! The verbs of the lab make them for one run. Packets between the hosts cross the
//! [`Emulator`](crate::emulator::Emulator), which reads and writes their devices. Invariant: names contain
//! the process id, and the hosts are removed however this process ends (see [`Nodes`]).

use std::ffi::OsStr;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::process::Command;

use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::network::topology::{Joint, Node, Role, Topology};
use tidewire_sim::pair::End;

use crate::nodes::Nodes;

/// Two namespaces, which are removed when this value is dropped.
#[derive(Debug)]
pub struct Hosts(Nodes);

impl Hosts {
    /// Makes the two hosts. They can reach each other when an emulator runs on their devices.
    ///
    /// # Errors
    /// Fails if this process lacks the privilege, or the system lacks a program.
    pub fn start() -> anyhow::Result<Self> {
        let nodes = ["near", "far"].map(|name| Node { name: name.to_owned(), role: Role::Host }).to_vec();
        // The emulator has the settings of the link.
        let links = vec![Joint { name: "link".to_owned(), nodes: [0, 1], config: DuplexConfig::default() }];
        Nodes::start(&Topology { nodes, links }).map(Self)
    }

    /// The hosts as nodes: an [`End`] is the number of its node.
    pub(crate) fn nodes(&self) -> &Nodes {
        &self.0
    }

    /// Name of a host: that of its namespace, for `ip netns exec`, and of its device.
    pub fn name(&self, end: End) -> &str {
        self.0.name(end as usize)
    }

    /// The address of a host.
    pub fn address(&self, end: End) -> Ipv4Addr {
        self.0.address(end as usize)
    }

    /// The device: packets that the host sends are read from it, and packets for the host are written to it.
    ///
    /// # Errors
    /// Fails if the process has too many open files.
    pub fn device(&self, end: End) -> io::Result<OwnedFd> {
        let [near, far] = self.0.devices(1)?.swap_remove(0);
        Ok(if end == End::Near { near } else { far })
    }

    /// Packets that a host sent and the emulator did not read in time, since the hosts were made.
    ///
    /// # Errors
    /// Fails if the system does not report it.
    pub fn unread(&self, end: End) -> anyhow::Result<u64> {
        self.0.unread(end as usize)
    }

    /// Changes a setting of a host's network. `key` is a path below `/proc/sys/net`.
    ///
    /// # Errors
    /// Fails if this kernel lacks the setting, or refuses the value.
    pub fn set(&self, end: End, key: &str, value: &str) -> anyhow::Result<()> {
        self.0.set(end as usize, key, value)
    }

    /// A command that runs `program` on a host.
    pub fn command(&self, end: End, program: impl AsRef<OsStr>) -> Command {
        self.0.command(end as usize, program)
    }

    /// Runs `work` on a host. Sockets made by it stay there, whoever uses them later.
    ///
    /// # Errors
    /// Fails if the namespace cannot be entered.
    pub fn inside<T: Send>(&self, end: End, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.0.inside(end as usize, work)
    }
}
