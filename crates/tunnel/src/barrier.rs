//! What refuses packets while their route into the tunnel is missing.
//!
//! [`crate::routes`] adds a route of the least preference beside each of its own, in the same table. It is of
//! one of two kinds. A *device* is a second TUN device, which answers every packet with an ICMP error. It is
//! not persistent, so the kernel removes it and its routes together with the process, also after `kill -9`:
//! no route of the kernel's type `unreachable` is bound to a device or a process. *Closed* is such an
//! `unreachable` route, which stays. Invariant: no packet that enters the device leaves it.

use std::io;

use ipnet::IpNet;
use rtnetlink::packet_route::route::RouteMessage;
use tokio::task::JoinHandle;
use tun_rs::{AsyncDevice, DeviceBuilder};

use crate::icmp::{self, Refusal};
use crate::netlink::Netlink;
use crate::packet::Packet;
use crate::route;

/// Longest read: the largest IP packet.
const LONGEST_READ: usize = 65_535;
/// Behind the name of the tunnel's device.
const SUFFIX: &str = "-shut";
/// Longest name of a device (`IFNAMSIZ` without the end of the text).
const LONGEST_NAME: usize = 15;
/// Of a tunnel whose own name is too long. The kernel puts a number there.
const NUMBERED: &str = "tw-shut%d";

/// The barrier of a tunnel.
pub enum Barrier {
    /// A device that refuses everything.
    Device {
        /// Its name.
        name: String,
        /// Its number.
        index: u32,
        /// Holds the device.
        answering: JoinHandle<()>,
    },
    /// Routes that outlive the process.
    Closed,
}

impl Barrier {
    /// Makes the barrier device of the tunnel device `tunnel`.
    ///
    /// # Errors
    /// The kernel makes no such device.
    pub async fn device(netlink: &Netlink, tunnel: &str) -> io::Result<Self> {
        let is_short = tunnel.len() + SUFFIX.len() <= LONGEST_NAME;
        let name = if is_short { format!("{tunnel}{SUFFIX}") } else { NUMBERED.to_owned() };
        let tun = DeviceBuilder::new().name(name).inherit_enable_state().build_async()?;
        let (name, index) = (tun.name()?, tun.if_index()?);
        netlink.set_up(index, true).await?;
        Ok(Self::Device { name, index, answering: tokio::spawn(refuse(tun)) })
    }

    /// The name and the number of its device.
    pub fn shown(&self) -> Option<(&str, u32)> {
        match self {
            Self::Device { name, index, .. } => Some((name, *index)),
            Self::Closed => None,
        }
    }

    /// The route that refuses packets to a network.
    pub fn route(&self, network: IpNet) -> RouteMessage {
        match self {
            Self::Device { index, .. } => route::at_last_into(*index, network),
            Self::Closed => route::closed(network),
        }
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        if let Self::Device { answering, .. } = self {
            answering.abort();
        }
    }
}

/// Answers each packet in the name of its destination, until the device is gone.
async fn refuse(tun: AsyncDevice) {
    let mut buffer = vec![0; LONGEST_READ];
    while let Ok(length) = tun.recv(&mut buffer).await {
        let packet = buffer.get(..length).and_then(|bytes| Packet::parse(bytes.to_vec()));
        if let Some(answer) = packet.and_then(|packet| icmp::answer(&packet, Refusal::NoPeer)) {
            // An answer that the kernel refuses is like one that got lost.
            let _ = tun.send(&answer).await;
        }
    }
}
