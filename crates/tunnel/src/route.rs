//! Routes as messages for the kernel: the one into the tunnel, and those that refuse packets beside it.
//!
//! [`crate::barrier`] and [`crate::routes`] make them. Invariant: all routes of a network are in one table:
//! the default route in the tunnel's own, which rules ask behind the main one, and every other network in the
//! main table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};

use crate::rules::{MAIN, TABLE};

/// Least preference of all: the kernel prefers every other route of the network.
const LEAST: u32 = u32::MAX;
/// Of a closed route: one more preferred than [`LEAST`], which the kernel of IPv6 has for its own.
const CLOSED: u32 = u32::MAX - 1;

/// Of routes of IPv6 that the kernel makes for addresses (`IP6_RT_PRIO_ADDRCONF`).
const CONNECTED: u32 = 256;

/// Whether a network is everything.
pub fn is_default(network: &IpNet) -> bool {
    network.prefix_len() == 0
}

/// The route of a network into the device with this number. Its packets have this address of ours, unless
/// their program chose one.
pub fn into(device: u32, network: IpNet, source: Option<Ipv4Addr>) -> RouteMessage {
    let mut route = build(network, |route| route.output_interface(device));
    route.attributes.extend(source.map(|address| RouteAttribute::PrefSource(RouteAddress::Inet(address))));
    route
}

/// The route that the kernel makes for the network of an address of the device.
pub fn connected(device: u32, own: IpNet) -> RouteMessage {
    let mut route = build(own.trunc(), |route| route.output_interface(device).protocol(RouteProtocol::Kernel));
    match own {
        IpNet::V4(own) => {
            route.header.scope = RouteScope::Link;
            route.attributes.push(RouteAttribute::PrefSource(RouteAddress::Inet(own.addr())));
        }
        IpNet::V6(_) => route.attributes.push(RouteAttribute::Priority(CONNECTED)),
    }
    route
}

/// The route of a network into the device for packets that have no other route.
pub fn at_last_into(device: u32, network: IpNet) -> RouteMessage {
    build(network, |route| route.output_interface(device).priority(LEAST))
}

/// The route that makes the kernel refuse packets to a network that have no other route. It stays until it is
/// deleted. systemd-networkd removes such routes when it starts, unless their protocol is `kernel`.
pub fn closed(network: IpNet) -> RouteMessage {
    build(network, |route| route.kind(RouteType::Unreachable).protocol(RouteProtocol::Kernel).priority(CLOSED))
}

/// The network of a route in one of our tables, and the device into which it leads, if it does.
pub fn read(route: &RouteMessage) -> Option<(IpNet, Option<u32>)> {
    let mut to: IpAddr = match route.header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let (mut in_table, mut device) = (u32::from(route.header.table), None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => to = (*address).into(),
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => to = (*address).into(),
            RouteAttribute::Table(of) => in_table = *of,
            RouteAttribute::Oif(of) => device = Some(*of),
            _ => {}
        }
    }
    let network = IpNet::new(to, route.header.destination_prefix_length).ok()?;
    (in_table == table(&network)).then_some((network, device))
}

/// The table in which the routes of a network are.
pub fn table(network: &IpNet) -> u32 {
    if is_default(network) { TABLE } else { MAIN }
}

type Builder = RouteMessageBuilder<IpAddr>;

fn build(network: IpNet, with: impl FnOnce(Builder) -> Builder) -> RouteMessage {
    let route = with(Builder::new().table_id(table(&network)));
    // It fails for prefixes that are longer than addresses, which no `IpNet` has.
    let route = route.destination_prefix(network.network(), network.prefix_len());
    route.map(RouteMessageBuilder::build).unwrap_or_default()
}
