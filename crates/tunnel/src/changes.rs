//! What other programs change in the kernel's routing, as the kernel tells it.
//!
//! [`crate::keep`] waits here. The kernel tells of every change of every device; most of them concern no
//! tunnel. Invariant: news that the kernel could not store stand for a change of everything.

use std::future::ready;
use std::io;

use futures_util::FutureExt;
use futures_util::stream::{BoxStream, StreamExt};
use ipnet::IpNet;
use rtnetlink::packet_core::{NLM_F_REPLACE, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::task::JoinHandle;

use crate::netlink::{Shown, shown};
use crate::route;
use crate::rules::{PRIORITIES, priority};

/// What the kernel tells us of.
const GROUPS: [MulticastGroup; 7] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

/// The news of the kernel.
pub struct Changes {
    news: BoxStream<'static, Change>,
    serving: JoinHandle<()>,
}

/// One change that may concern a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A device is as this says.
    Device(Shown),
    /// The device with this number is gone.
    DeviceGone(u32),
    /// An address of the device with this number is gone.
    Address(u32),
    /// A rule with this priority, which is one of ours, is gone.
    Rule(u32),
    /// A route of this network in one of our tables is gone.
    Route(IpNet),
    /// A route of this network into another device, or none, took the place of one in our tables.
    Replaced(IpNet, Option<u32>),
    /// Any of these: the kernel had more to tell than it could store.
    Anything,
}

impl Changes {
    /// From now on, changes are noted.
    ///
    /// # Errors
    /// The kernel's routing cannot be talked to.
    pub fn follow() -> io::Result<Self> {
        let (connection, _, news) = new_multicast_connection(&GROUPS)?;
        let news = news.filter_map(|(message, _)| ready(read(&message))).boxed();
        Ok(Self { news, serving: tokio::spawn(connection) })
    }

    /// Waits for a change. `None` if the kernel tells nothing any more.
    pub async fn next(&mut self) -> Option<Change> {
        self.news.next().await
    }

    /// A change that the kernel has told already.
    pub fn waiting(&mut self) -> Option<Change> {
        self.news.next().now_or_never().flatten()
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn read(message: &NetlinkMessage<RouteNetlinkMessage>) -> Option<Change> {
    let of = match &message.payload {
        NetlinkPayload::InnerMessage(of) => of,
        NetlinkPayload::Overrun(_) => return Some(Change::Anything),
        _ => return None,
    };
    match of {
        RouteNetlinkMessage::NewLink(of) => Some(Change::Device(shown(of))),
        RouteNetlinkMessage::DelLink(of) => Some(Change::DeviceGone(of.header.index)),
        RouteNetlinkMessage::DelAddress(address) => Some(Change::Address(address.header.index)),
        RouteNetlinkMessage::DelRule(rule) => {
            Some(priority(rule)).filter(|of| PRIORITIES.contains(of)).map(Change::Rule)
        }
        RouteNetlinkMessage::DelRoute(of) => route::read(of).map(|(network, _)| Change::Route(network)),
        RouteNetlinkMessage::NewRoute(of) if message.header.flags & NLM_F_REPLACE != 0 => {
            route::read(of).map(|(network, device)| Change::Replaced(network, device))
        }
        _ => None,
    }
}
