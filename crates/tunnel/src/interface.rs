//! The device of the tunnel as the kernel's routing knows it: up, with its MTU and its addresses.
//!
//! [`crate::device`] makes it so, and [`crate::keep`] makes it so again when something else changed it.
//! Invariant: what was there before us stays, and at the end a device that outlives this process is as it was
//! found.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::Ipv4Addr;

use ipnet::IpNet;
use tokio::sync::Mutex;

use crate::netlink::{Held, NO_DEVICE, Netlink, Shown};

/// The device of a tunnel.
pub struct Interface {
    netlink: Netlink,
    index: u32,
    name: String,
    addresses: Vec<IpNet>,
    mtu: u16,
    /// How it was found; `None` if it was made for this tunnel, and goes with it.
    before: Option<Shown>,
    /// Addresses that were ours to add.
    added: Mutex<BTreeSet<IpNet>>,
}

/// Something of the tunnel in the kernel that something else may remove.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// This device is up.
    Up(String),
    /// The device takes packets of this many bytes.
    Mtu(u16),
    /// An address of the device.
    Address(IpNet),
    /// A route into the device.
    Route(IpNet),
    /// The route that refuses packets while [`Part::Route`] is missing.
    Barrier(IpNet),
    /// A policy rule, by the version of IP and its priority.
    Rule(u8, u32),
}

/// A network of ours within one that another device leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The network that was to be reached through the tunnel.
    pub network: IpNet,
    /// The network of the other device.
    pub other: IpNet,
    /// The name of the other device.
    pub device: String,
}

/// Whether the device can have addresses and routes of IPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ipv6 {
    /// It can.
    On,
    /// IPv6 is off for it and for every other device.
    Off,
    /// IPv6 is off for it, but this device has it.
    OnlyElsewhere(String),
}

impl Interface {
    /// The device of this name, which this process holds, for packets of at most `mtu` bytes and with these
    /// addresses. `before` is how it was found, if it is not new.
    ///
    /// # Errors
    /// The device is gone, or the kernel cannot be talked to.
    pub async fn of(name: &str, addresses: &[IpNet], mtu: u16, before: Option<Shown>) -> io::Result<Self> {
        let netlink = Netlink::open()?;
        let shown = netlink.named(name).await?.ok_or_else(|| io::Error::from_raw_os_error(NO_DEVICE))?;
        let addresses = addresses.to_vec();
        Ok(Self { netlink, index: shown.index, name: shown.name, addresses, mtu, before, added: Mutex::default() })
    }

    /// The kernel, in the namespace of the device.
    pub fn netlink(&self) -> &Netlink {
        &self.netlink
    }

    /// The kernel's number of the device.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The addresses that it has to have.
    pub fn addresses(&self) -> &[IpNet] {
        &self.addresses
    }

    /// The source of packets to a network. A device that was there before may have other addresses of IPv4,
    /// which the kernel would prefer, and which the far side does not take; of IPv6 it prefers the nearest.
    pub fn source(&self, network: &IpNet) -> Option<Ipv4Addr> {
        let v4 = |own: &IpNet| if let IpNet::V4(own) = own { Some(own.addr()) } else { None };
        let own = self.addresses.iter().find_map(v4);
        own.filter(|_| self.is_persistent() && network.addr().is_ipv4())
    }

    /// Whether the device outlives this process.
    pub fn is_persistent(&self) -> bool {
        self.before.is_some()
    }

    /// Whether `shown` lacks something.
    pub fn is_changed(&self, shown: &Shown) -> bool {
        !shown.is_up || shown.mtu != u32::from(self.mtu)
    }

    /// Gives the device what it lacks, and returns that.
    ///
    /// # Errors
    /// What cannot be given, and what the kernel says.
    pub async fn ensure(&self) -> Result<Vec<Part>, (Part, io::Error)> {
        let mut lacked = Vec::new();
        let (up, mtu) = (Part::Up(self.name.clone()), Part::Mtu(self.mtu));
        let shown = self.netlink.device(self.index).await.map_err(|error| (up.clone(), error))?;
        if shown.mtu != u32::from(self.mtu) {
            let set = self.netlink.set_mtu(self.index, self.mtu.into()).await;
            set.map_err(|error| (mtu.clone(), error))?;
            lacked.push(mtu);
        }
        if !shown.is_up {
            self.netlink.set_up(self.index, true).await.map_err(|error| (up.clone(), error))?;
            lacked.push(up.clone());
        }
        let held = self.netlink.addresses().await.map_err(|error| (up, error))?;
        for &network in &self.addresses {
            if held.iter().any(|held| (held.index, held.network) == (self.index, network)) {
                continue;
            }
            let part = Part::Address(network);
            let added = self.netlink.add_address(self.index, network).await;
            added.map_err(|error| (part.clone(), error))?;
            self.added.lock().await.insert(network);
            lacked.push(part);
        }
        Ok(lacked)
    }

    /// Leaves a device that outlives this process as it was found.
    pub async fn restore(&self) {
        let Some(before) = &self.before else { return };
        let added = std::mem::take(&mut *self.added.lock().await);
        // What is gone already is as good.
        for held in self.netlink.addresses().await.unwrap_or_default() {
            if held.index == self.index && added.contains(&held.network) {
                let _ = self.netlink.delete_address(&held).await;
            }
        }
        let _ = self.netlink.set_mtu(self.index, before.mtu).await;
        if !before.is_up {
            let _ = self.netlink.set_up(self.index, false).await;
        }
    }

    /// Whether the device can have IPv6. If another has it while this one cannot, packets of IPv6 would leave
    /// outside the tunnel.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub async fn ipv6(&self) -> io::Result<Ipv6> {
        if has_ipv6(&self.name) {
            return Ok(Ipv6::On);
        }
        let others = self.netlink.devices().await?.into_iter().map(|shown| shown.name);
        let other = others.filter(|name| name != "lo" && *name != self.name).find(|name| has_ipv6(name));
        Ok(other.map_or(Ipv6::Off, Ipv6::OnlyElsewhere))
    }

    /// Networks among these and among our own that are a part of the network of another device, or the same:
    /// packets to them leave the local network, or never enter the tunnel.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub async fn beside(&self, networks: impl IntoIterator<Item = IpNet>) -> io::Result<Vec<Beside>> {
        let held = self.netlink.addresses().await?;
        let devices: Vec<_> = self.netlink.devices().await?.into_iter().filter(|shown| shown.is_ethernet).collect();
        let mut beside = Vec::new();
        for network in networks.into_iter().filter(|network| network.prefix_len() > 0) {
            let contains = |held: &&Held| is_local(&held.network) && held.network.contains(&network);
            let device = |held: &Held| devices.iter().find(|shown| shown.index == held.index);
            let of = |held: &Held| device(held).map(|shown| (held.network.trunc(), shown.name.clone()));
            if let Some((other, device)) = held.iter().filter(contains).find_map(of) {
                beside.push(Beside { network, other, device });
            }
        }
        Ok(beside)
    }
}

/// Whether a network has other hosts that are reached directly.
fn is_local(network: &IpNet) -> bool {
    let is_link_local = matches!(network, IpNet::V6(v6) if v6.addr().is_unicast_link_local());
    network.prefix_len() < network.max_prefix_len() && !network.addr().is_loopback() && !is_link_local
}

/// Without IPv6 in the kernel, the file is missing.
fn has_ipv6(device: &str) -> bool {
    fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6")).is_ok_and(|text| text.trim() == "0")
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Up(name) => write!(f, "{name} up"),
            Self::Mtu(mtu) => write!(f, "MTU {mtu}"),
            Self::Address(network) => write!(f, "address {network}"),
            Self::Route(network) => write!(f, "route {network}"),
            Self::Barrier(network) => write!(f, "barrier {network}"),
            Self::Rule(version, priority) => write!(f, "IPv{version} rule {priority}"),
        }
    }
}
