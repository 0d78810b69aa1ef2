//! The kernel's routes into the device of a tunnel, and the way of the tunnel's own datagrams past them.
//!
//! The caller gives it the networks of the peers, at the start and whenever they change. A network is a route
//! of the main table, which the kernel removes with the device. The default route of a family is in a table
//! of its own, which rules ask behind the main one (`docs/tunnel.md` section 5). Invariant: while a default
//! route leads into the device, the tunnel's own datagrams pass it. Rules that a killed process left are
//! harmless: their table is empty. The next default route replaces them.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use rtnetlink::packet_route::{AddressFamily, IpProtocol, route::RouteMessage};
use rtnetlink::{Handle, RouteMessageBuilder, new_connection};
use tokio::task::JoinHandle;

use crate::device::{Device, DeviceError};

/// The table with the default route. Chosen: the number of our port, above all tables that have names.
const TABLE: u32 = 7_700;
/// The kernel's main table (`RT_TABLE_MAIN`).
const MAIN: u32 = 254;
/// Priorities of the rules, in the order in which the kernel asks them. Chosen: behind the kernel's rule of
/// VRFs (1000), before its rule of the main table (32766).
const EXEMPT: u32 = 7_700;
/// See [`EXEMPT`].
const SPECIFIC: u32 = 7_701;
/// See [`EXEMPT`].
const THROUGH: u32 = 7_702;
/// See [`EXEMPT`].
const PAST: u32 = 7_703;
/// Rules of one kind that are removed at most: more than [`Outer`]s that any process had.
const MOST_STALE: usize = 1_000;

/// Datagrams of the tunnel itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// Those from this UDP port of ours, to peers at any address.
    From(u16),
    /// Those to this address and UDP port.
    To(SocketAddr),
}

/// The routes of a device.
pub struct Routes {
    handle: Handle,
    serving: JoinHandle<()>,
    device: u32,
    own: Vec<IpNet>,
    outer: Vec<Outer>,
    led: BTreeSet<IpNet>,
}

impl Routes {
    /// No routes yet into a device with these addresses of ours. `outer` are the tunnel's own datagrams.
    ///
    /// # Errors
    /// The kernel's routing cannot be talked to.
    pub fn new(device: &Device, own: &[IpNet], outer: Vec<Outer>) -> Result<Self, RouteError> {
        let (connection, handle, _) = new_connection().map_err(RouteError::Netlink)?;
        let serving = tokio::spawn(connection);
        Ok(Self { handle, serving, device: device.index()?, own: own.to_vec(), outer, led: BTreeSet::new() })
    }

    /// Leads these networks into the device, and no others.
    ///
    /// # Errors
    /// The kernel refuses a route, mostly because it has one for the same network. Nothing changes then.
    pub async fn follow(&mut self, networks: impl IntoIterator<Item = IpNet>) -> Result<(), RouteError> {
        // The kernel itself leads the networks of our addresses there.
        let is_reached = |network: &IpNet| self.own.iter().any(|own| own.trunc().contains(network));
        let wanted: BTreeSet<_> = networks.into_iter().filter(|network| !is_reached(network)).collect();
        let mut added = Vec::new();
        for &network in wanted.difference(&self.led) {
            if let Err(error) = self.add(network).await {
                for network in added {
                    self.remove(network).await;
                }
                return Err(error);
            }
            added.push(network);
        }
        for &network in self.led.difference(&wanted) {
            self.remove(network).await;
        }
        self.led = wanted;
        Ok(())
    }

    /// From now on, these are the tunnel's own datagrams.
    ///
    /// # Errors
    /// The kernel refuses a rule.
    pub async fn pass(&mut self, outer: Vec<Outer>) -> Result<(), RouteError> {
        let before = std::mem::replace(&mut self.outer, outer);
        for family in self.led.iter().filter(|network| is_default(network)).map(family) {
            for rule in self.outer.iter().filter(|own| !before.contains(own)).filter_map(|own| exemption(family, own)) {
                self.add_rule(rule).await?;
            }
            for rule in before.iter().filter(|own| !self.outer.contains(own)).filter_map(|own| exemption(family, own)) {
                // One that is gone already is as good.
                let _ = self.handle.rule().del(rule).execute().await;
            }
        }
        Ok(())
    }

    /// Removes what would outlive the device.
    pub async fn close(&mut self) {
        let led = std::mem::take(&mut self.led);
        for network in led.iter().filter(|network| is_default(network)) {
            self.remove(*network).await;
        }
    }

    async fn add(&self, network: IpNet) -> Result<(), RouteError> {
        if is_default(&network) {
            return self.add_default(network).await;
        }
        let added = self.handle.route().add(self.route(network, MAIN)).execute().await;
        added.map_err(|error| RouteError::Route { network, error })
    }

    async fn add_default(&self, network: IpNet) -> Result<(), RouteError> {
        // This one comes first: it is refused if another process has one, whose rules have to stay.
        self.handle
            .route()
            .add(self.route(network, TABLE))
            .execute()
            .await
            .map_err(|error| RouteError::Default { network, error })?;
        let family = family(&network);
        self.clear(family).await;
        let exempt = self.outer.iter().filter_map(|own| exemption(family, own));
        let rules = [past(family)].into_iter().chain(exempt).chain([specific(family), through(family)]);
        for rule in rules {
            if let Err(error) = self.add_rule(rule).await {
                self.remove(network).await;
                return Err(error);
            }
        }
        Ok(())
    }

    async fn add_rule(&self, rule: RuleMessage) -> Result<(), RouteError> {
        let mut adding = self.handle.rule().add();
        *adding.message_mut() = rule;
        adding.execute().await.map_err(RouteError::Rule)
    }

    /// Routes and rules that are gone already are as good.
    async fn remove(&self, network: IpNet) {
        let table = if is_default(&network) { TABLE } else { MAIN };
        if is_default(&network) {
            self.clear(family(&network)).await;
        }
        let _ = self.handle.route().del(self.route(network, table)).execute().await;
    }

    /// Removes the rules of a family, those last that keep the tunnel's own datagrams out of it.
    async fn clear(&self, family: AddressFamily) {
        let any_exemption = jump(family, []);
        for rule in [through(family), specific(family), any_exemption, past(family)] {
            for _ in 0..MOST_STALE {
                if self.handle.rule().del(rule.clone()).execute().await.is_err() {
                    break;
                }
            }
        }
    }

    fn route(&self, network: IpNet, table: u32) -> RouteMessage {
        let route = RouteMessageBuilder::<IpAddr>::new().output_interface(self.device).table_id(table);
        // It fails for prefixes that are longer than addresses, which no `IpNet` has.
        let route = route.destination_prefix(network.network(), network.prefix_len());
        route.map(RouteMessageBuilder::build).unwrap_or_default()
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Why there are no routes.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// The kernel's routing cannot be talked to.
    #[error("cannot talk to the kernel's routing (netlink): {0}")]
    Netlink(io::Error),
    /// The device is gone.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The kernel refuses a route.
    #[error("cannot add the route {network}: {error}; does `ip route` show one?")]
    Route {
        /// Where it leads.
        network: IpNet,
        /// What the kernel says.
        error: rtnetlink::Error,
    },
    /// The kernel refuses a default route.
    #[error("cannot add the route {network}: {error}; does another tunnel have it? `ip route show table {TABLE}`")]
    Default {
        /// The default route of IPv4 or IPv6.
        network: IpNet,
        /// What the kernel says.
        error: rtnetlink::Error,
    },
    /// The kernel refuses a rule.
    #[error("cannot add a rule for the default route (`ip rule`): {0}")]
    Rule(rtnetlink::Error),
}

fn is_default(network: &IpNet) -> bool {
    network.prefix_len() == 0
}

fn family(network: &IpNet) -> AddressFamily {
    match network {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    }
}

/// The rule that makes the kernel go on behind our rules for the tunnel's own datagrams; `None` if they are
/// not of this family.
fn exemption(family: AddressFamily, own: &Outer) -> Option<RuleMessage> {
    let only = |port| RulePortRange { start: port, end: port };
    match *own {
        Outer::From(port) => Some(jump(family, [RuleAttribute::SourcePortRange(only(port))])),
        Outer::To(to) => {
            let address = to.ip().to_canonical();
            let host = IpNet::from(address);
            let more = [RuleAttribute::Destination(address), RuleAttribute::DestinationPortRange(only(to.port()))];
            let mut rule = jump(family, more);
            rule.header.dst_len = host.prefix_len();
            (self::family(&host) == family).then_some(rule)
        }
    }
}

/// Datagrams of UDP with these attributes pass our other rules.
fn jump<const N: usize>(family: AddressFamily, more: [RuleAttribute; N]) -> RuleMessage {
    let mut jump = rule(family, EXEMPT, RuleAction::Goto);
    jump.attributes.extend([RuleAttribute::Goto(PAST), RuleAttribute::IpProtocol(IpProtocol::Udp)]);
    jump.attributes.extend(more);
    jump
}

/// All routes of the main table come first, except its default route.
fn specific(family: AddressFamily) -> RuleMessage {
    let mut specific = rule(family, SPECIFIC, RuleAction::ToTable);
    specific.attributes.extend([RuleAttribute::Table(MAIN), RuleAttribute::SuppressPrefixLen(0)]);
    specific
}

/// What has no other route goes into the tunnel.
fn through(family: AddressFamily) -> RuleMessage {
    let mut through = rule(family, THROUGH, RuleAction::ToTable);
    through.attributes.push(RuleAttribute::Table(TABLE));
    through
}

/// Where [`exemption`] leads to.
fn past(family: AddressFamily) -> RuleMessage {
    rule(family, PAST, RuleAction::Nop)
}

fn rule(family: AddressFamily, priority: u32, action: RuleAction) -> RuleMessage {
    let mut rule = RuleMessage::default();
    (rule.header.family, rule.header.action) = (family, action);
    rule.attributes.push(RuleAttribute::Priority(priority));
    rule
}
