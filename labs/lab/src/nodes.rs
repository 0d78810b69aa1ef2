//! The nodes of a network on one machine: each is a network namespace with one TUN device for each of its
//! links, and no other way out.
//!
//! The verbs of the lab make them for one run; [`Hosts`](crate::hosts::Hosts) are the two of a single link.
//! Packets between nodes cross the [`Emulator`](crate::emulator::Emulator), which reads and writes the
//! devices. Routers forward with the kernel's `ip_forward`, by the routes of the topology. Invariant: names
//! contain the process id, and the nodes are removed however this process ends: a child waits for the end of
//! a pipe that only this process holds open, ends what still runs in the nodes, and removes them.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tidewire_sim::network::topology::{Role, Topology};
use tidewire_sim::pair::End;

use super::tun;

/// Packets that a device holds until the emulator reads them: more than a whole TCP window of 4 MiB, so that
/// only the link drops packets.
const DEVICE_QUEUE: &str = "10000";
/// Longest IP packet of a device: that of Ethernet.
const MTU: &str = "1500";
/// Longest name of a device (`IFNAMSIZ` without the final zero).
const LONGEST_DEVICE: usize = 15;
/// The network that the links' networks are parts of (RFC 1918 section 3).
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 0);
/// Prefix length of a link's network, which has two addresses (RFC 1878), and the number of its addresses.
const PREFIX: u8 = 30;
const PER_LINK: u32 = 4;
/// Most links: as many as `10.99.0.0/16` has networks.
const MOST_LINKS: usize = 1 << 14;

/// Settings of a node's network that differ from the machine's. Only packets of programs cross the links (no
/// router solicitations), a TCP connection does not learn from an earlier one, and a packet may come by
/// another link than the answer goes.
const SETTINGS: [(&str, &str); 5] = [
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
];

/// A script that removes the nodes named by its arguments when its standard input ends.
const CARETAKER: &str = r#"
trap '' INT TERM HUP
read -r _
for host in "$@"; do
    for process in $(ip netns pids "$host"); do kill -9 "$process"; done
    ip netns delete "$host"
done
"#;

/// Namespaces, which are removed when this value is dropped.
#[derive(Debug)]
pub struct Nodes {
    nodes: Vec<Node>,
    /// After the devices, because fields are dropped in order.
    _caretaker: Caretaker,
}

/// One namespace.
#[derive(Debug)]
struct Node {
    /// Name of the namespace.
    name: String,
    devices: Vec<Device>,
}

/// The end of a link at a node.
#[derive(Debug)]
struct Device {
    link: usize,
    end: End,
    name: String,
    address: Ipv4Addr,
    packets: OwnedFd,
}

impl Nodes {
    /// Makes the nodes. They can reach each other when an emulator runs on their devices.
    ///
    /// # Errors
    /// Fails if this process lacks the privilege, or the system lacks a program.
    pub fn start(topology: &Topology) -> anyhow::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("network namespaces need root: use sudo, or `tidewire-lab link`, which needs no privileges");
        }
        if topology.links.len() > MOST_LINKS {
            bail!("the lab has at most {MOST_LINKS} links, and this network {}", topology.links.len());
        }
        let names: Vec<_> =
            topology.nodes.iter().map(|node| format!("tw-{}-{}", std::process::id(), node.name)).collect();
        let caretaker = Caretaker::start(&names)?;
        let nodes: anyhow::Result<Vec<_>> =
            names.into_iter().enumerate().map(|(node, name)| Node::start(topology, node, name)).collect();
        let nodes = Self { nodes: nodes?, _caretaker: caretaker };
        nodes.route(topology)?;
        Ok(nodes)
    }

    /// Tells each node the way to every address. Where there is only one link, it is the default.
    fn route(&self, topology: &Topology) -> anyhow::Result<()> {
        let routes = topology.routes();
        for (at, node) in self.nodes.iter().enumerate() {
            if let [only] = &node.devices[..] {
                node.ip(&["route", "add", "default", "dev", &only.name])?;
                continue;
            }
            for (to, other) in self.nodes.iter().enumerate() {
                let Some(hop) = routes.next(at, to) else { continue };
                let by = node.devices.iter().find(|device| device.link == hop.link && device.end == hop.enters);
                let by = &by.context("a route leads over a link of another node")?.name;
                for device in &other.devices {
                    node.ip(&["route", "replace", &format!("{}/32", device.address), "dev", by])?;
                }
            }
        }
        Ok(())
    }

    /// Name of a node's namespace, for `ip netns exec`.
    pub fn name(&self, node: usize) -> &str {
        &self.nodes[node].name
    }

    /// An address of a node: that of its first link. `0.0.0.0` if it has none.
    pub fn address(&self, node: usize) -> Ipv4Addr {
        self.nodes[node].devices.first().map_or(Ipv4Addr::UNSPECIFIED, |device| device.address)
    }

    /// The devices of each link, at its first and its second node: packets that a node sends are read from
    /// them, and packets for the node are written to them.
    ///
    /// # Errors
    /// Fails if the process has too many open files.
    pub fn devices(&self, links: usize) -> io::Result<Vec<[OwnedFd; 2]>> {
        let device = |link, end| {
            let mut all = self.nodes.iter().flat_map(|node| &node.devices);
            let found = all.find(|device| device.link == link && device.end == end);
            found.ok_or_else(|| io::Error::other("no such link"))?.packets.try_clone()
        };
        (0..links).map(|link| Ok([device(link, End::Near)?, device(link, End::Far)?])).collect()
    }

    /// Packets that a node sent and the emulator did not read in time, since the nodes were made.
    ///
    /// # Errors
    /// Fails if the system does not report it.
    pub fn unread(&self, node: usize) -> anyhow::Result<u64> {
        let node = &self.nodes[node];
        let mut unread = 0;
        for device in &node.devices {
            let counts = node.ip(&["-s", "-j", "link", "show", "dev", &device.name])?;
            let counts: serde_json::Value = serde_json::from_str(&counts).context("`ip -j` does not speak JSON")?;
            let dropped = counts[0]["stats64"]["tx"]["dropped"].as_u64();
            unread += dropped.context("`ip -s -j link` does not count drops")?;
        }
        Ok(unread)
    }

    /// The same of all nodes.
    ///
    /// # Errors
    /// Fails if the system does not report it.
    pub fn all_unread(&self) -> anyhow::Result<u64> {
        (0..self.nodes.len()).map(|node| self.unread(node)).sum()
    }

    /// Changes a setting of a node's network. `key` is a path below `/proc/sys/net`.
    ///
    /// # Errors
    /// Fails if this kernel lacks the setting, or refuses the value.
    pub fn set(&self, node: usize, key: &str, value: &str) -> anyhow::Result<()> {
        set(self.name(node), key, value)
    }

    /// A command that runs `program` on a node.
    pub fn command(&self, node: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(node)]).arg(program);
        command
    }

    /// Runs `work` on a node. Sockets made by it stay there, whoever uses them later.
    ///
    /// # Errors
    /// Fails if the namespace cannot be entered.
    pub fn inside<T: Send>(&self, node: usize, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let namespace = File::open(format!("/run/netns/{}", self.name(node)))?;
        // A separate thread, because a thread keeps the namespace that it entered.
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(work())
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Node {
    fn start(topology: &Topology, number: usize, name: String) -> anyhow::Result<Self> {
        ip(&["netns", "add", &name])?;
        for (key, value) in SETTINGS {
            // A kernel without IPv6 lacks its keys and does not need them.
            let _ = set(&name, key, value);
        }
        if topology.nodes[number].role == Role::Router {
            set(&name, "ipv4/ip_forward", "1")?;
        }
        let mut node = Self { name, devices: Vec::new() };
        node.ip(&["link", "set", "lo", "up"])?;
        for (link, joint) in topology.links.iter().enumerate() {
            for end in [End::Near, End::Far] {
                if joint.nodes[end as usize] == number {
                    node.attach(link, end)?;
                }
            }
        }
        Ok(node)
    }

    /// Makes the device of an end of a link.
    fn attach(&mut self, link: usize, end: End) -> anyhow::Result<()> {
        // Like the node, if the name is free and short enough.
        let is_free = self.devices.is_empty() && self.name.len() <= LONGEST_DEVICE;
        let own = format!("tw-{}_{}", std::process::id(), 2 * link + end as usize);
        let name = if is_free { self.name.clone() } else { own };
        let offset = PER_LINK * u32::try_from(link)? + 1 + end as u32;
        let address = Ipv4Addr::from_bits(NETWORK.to_bits() + offset);
        let packets = tun::open(&name).context("cannot make a TUN device")?;
        ip(&["link", "set", &name, "netns", &self.name])?;
        self.ip(&["address", "add", &format!("{address}/{PREFIX}"), "dev", &name])?;
        self.ip(&["link", "set", &name, "mtu", MTU, "txqueuelen", DEVICE_QUEUE, "up"])?;
        self.devices.push(Device { link, end, name, address, packets });
        Ok(())
    }

    /// Runs `ip` for this node.
    fn ip(&self, arguments: &[&str]) -> anyhow::Result<String> {
        ip(&[&["-n", &self.name], arguments].concat())
    }
}

/// The child process that removes the nodes when this process ends or drops it.
#[derive(Debug)]
struct Caretaker(Child);

impl Caretaker {
    fn start(nodes: &[String]) -> anyhow::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", CARETAKER, "caretaker"]).args(nodes);
        // Ctrl-C at the terminal is meant for this process. The child's work begins after that.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("cannot run `sh`")?))
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Nobody is left who could be told about an error.
        let _ = self.0.wait();
    }
}

/// Changes a setting of the network of the namespace `node`.
fn set(node: &str, key: &str, value: &str) -> anyhow::Result<()> {
    let write = format!("echo {value} > /proc/sys/net/{key}");
    ip(&["netns", "exec", node, "sh", "-c", &write]).map(drop)
}

/// Runs `ip` of iproute2 and returns its output.
fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("ip").args(arguments).output().context("cannot run `ip`: install iproute2")?;
    if !output.status.success() {
        bail!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
