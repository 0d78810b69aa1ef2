//! The kernel's table of devices, addresses, routes and rules, over netlink.
//!
//! [`crate::interface`], [`crate::barrier`] and [`crate::routes`] call it. Each method is one request, or one
//! dump of devices, addresses or rules. Routes are never dumped: a table may have a million.
//! Invariant: an error is the kernel's own, so the callers can tell what is there already from what is
//! refused.

use std::io;
use std::net::IpAddr;

use futures_util::{Stream, StreamExt};
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkHeader, LinkLayerType, LinkMessage};
use rtnetlink::packet_route::route::RouteMessage;
use rtnetlink::packet_route::rule::RuleMessage;
use rtnetlink::{Error, Handle, IpVersion, LinkUnspec, new_connection};
use tokio::task::JoinHandle;

/// A socket of the kernel's routing.
pub struct Netlink {
    handle: Handle,
    serving: JoinHandle<()>,
}

/// A device as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is set up.
    pub is_up: bool,
    /// Its longest packet.
    pub mtu: u32,
    /// Whether it has a network of Ethernet, as wired and wireless devices, bridges and virtual machines do.
    pub is_ethernet: bool,
}

/// An address of a device, with the prefix length of its network.
#[derive(Clone, Debug)]
pub struct Held {
    /// The number of the device.
    pub index: u32,
    /// The address.
    pub network: IpNet,
    message: AddressMessage,
}

impl Netlink {
    /// Opens the socket.
    ///
    /// # Errors
    /// The kernel's routing cannot be talked to.
    pub fn open() -> io::Result<Self> {
        let (connection, handle, _) = new_connection()?;
        Ok(Self { handle, serving: tokio::spawn(connection) })
    }

    /// The device with this number.
    pub async fn device(&self, index: u32) -> io::Result<Shown> {
        let mut found = Box::pin(self.handle.link().get().match_index(index).execute());
        let link = found.next().await.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(shown(&link.map_err(system)?))
    }

    /// The device with this name, if there is one.
    pub async fn named(&self, name: &str) -> io::Result<Option<Shown>> {
        let mut found = Box::pin(self.handle.link().get().match_name(name).execute());
        match found.next().await.transpose().map_err(system) {
            Ok(link) => Ok(link.as_ref().map(shown)),
            Err(error) if error.raw_os_error() == Some(NO_DEVICE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All devices.
    pub async fn devices(&self) -> io::Result<Vec<Shown>> {
        all(self.handle.link().get().execute(), |link| Some(shown(&link))).await
    }

    /// Sets a device up or down.
    pub async fn set_up(&self, index: u32, is_up: bool) -> io::Result<()> {
        let link = LinkUnspec::new_with_index(index);
        let link = if is_up { link.up() } else { link.down() };
        self.handle.link().set(link.build()).execute().await.map_err(system)
    }

    /// Sets the longest packet of a device.
    pub async fn set_mtu(&self, index: u32, mtu: u32) -> io::Result<()> {
        let link = LinkUnspec::new_with_index(index).mtu(mtu).build();
        self.handle.link().set(link).execute().await.map_err(system)
    }

    /// The addresses of all devices.
    pub async fn addresses(&self) -> io::Result<Vec<Held>> {
        all(self.handle.address().get().execute(), held).await
    }

    /// Gives a device an address. One that it has already is as good.
    pub async fn add_address(&self, index: u32, network: IpNet) -> io::Result<()> {
        let added = self.handle.address().add(index, network.addr(), network.prefix_len()).execute().await;
        added.or_else(|error| if is_there(&error) { Ok(()) } else { Err(system(error)) })
    }

    /// Takes an address from its device.
    pub async fn delete_address(&self, held: &Held) -> io::Result<()> {
        self.handle.address().del(held.message.clone()).execute().await.map_err(system)
    }

    /// Adds a route. Returns false if the table has one in its place, this one or another.
    pub async fn add_route(&self, route: &RouteMessage) -> io::Result<bool> {
        added(self.handle.route().add(route.clone()).execute().await)
    }

    /// Deletes a route with these properties.
    pub async fn delete_route(&self, route: &RouteMessage) -> io::Result<()> {
        self.handle.route().del(route.clone()).execute().await.map_err(system)
    }

    /// The rules of a family.
    pub async fn rules(&self, family: AddressFamily) -> io::Result<Vec<RuleMessage>> {
        let family = if family == AddressFamily::Inet6 { IpVersion::V6 } else { IpVersion::V4 };
        all(self.handle.rule().get(family).execute(), Some).await
    }

    /// Adds a rule. Returns false if it is there.
    pub async fn add_rule(&self, rule: &RuleMessage) -> io::Result<bool> {
        let mut adding = self.handle.rule().add();
        *adding.message_mut() = rule.clone();
        added(adding.execute().await)
    }

    /// Deletes a rule with these properties.
    pub async fn delete_rule(&self, rule: &RuleMessage) -> io::Result<()> {
        self.handle.rule().del(rule.clone()).execute().await.map_err(system)
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What a message about a device says.
pub fn shown(link: &LinkMessage) -> Shown {
    let (mut name, mut mtu) = (String::new(), 0);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(of) => name.clone_from(of),
            LinkAttribute::Mtu(of) => mtu = *of,
            _ => {}
        }
    }
    let LinkHeader { index, ref flags, ref link_layer_type, .. } = link.header;
    let (is_up, is_ethernet) = (flags.contains(LinkFlags::Up), *link_layer_type == LinkLayerType::Ether);
    Shown { index, name, is_up, mtu, is_ethernet }
}

/// What a message about an address says. Of an address of a link between two ends, ours is `Local`.
fn held(message: AddressMessage) -> Option<Held> {
    let of = |attribute: &AddressAttribute| match attribute {
        AddressAttribute::Local(address) => Some((0, *address)),
        AddressAttribute::Address(address) => Some((1, *address)),
        _ => None,
    };
    let (_, address): (u8, IpAddr) = message.attributes.iter().filter_map(of).min()?;
    let network = IpNet::new(address, message.header.prefix_len).ok()?;
    Some(Held { index: message.header.index, network, message })
}

/// Everything that a dump has and `read` understands.
async fn all<M, T>(dump: impl Stream<Item = Result<M, Error>>, read: impl Fn(M) -> Option<T>) -> io::Result<Vec<T>> {
    let (mut dump, mut found) = (Box::pin(dump), Vec::new());
    while let Some(message) = dump.next().await {
        found.extend(read(message.map_err(system)?));
    }
    Ok(found)
}

fn added(result: Result<(), Error>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if is_there(&error) => Ok(false),
        Err(error) => Err(system(error)),
    }
}

fn is_there(error: &Error) -> bool {
    matches!(error, Error::NetlinkError(message) if message.to_io().kind() == io::ErrorKind::AlreadyExists)
}

/// What the kernel says, without the words of the library around it.
fn system(error: Error) -> io::Error {
    match error {
        Error::NetlinkError(message) => message.to_io(),
        error => io::Error::other(error),
    }
}

/// `ENODEV`, which has no kind of its own.
pub const NO_DEVICE: i32 = 19;
