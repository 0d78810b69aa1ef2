//! The kernel's routes into the device of a tunnel, and the way of the tunnel's own datagrams past them.
//!
//! The caller gives it the networks of the peers, at the start and whenever they change. A network is a route
//! of the main table, which the kernel removes with the device. The default route of a family is in a table
//! of its own, which rules ask behind the main one (`docs/tunnel.md` section 5). Beside each route stands a
//! barrier, so that packets are refused while the route is missing. [`crate::keep`] restores what others
//! remove. Invariant: while a default route leads into the device, the tunnel's own datagrams pass it. Rules
//! that a killed process left are harmless, because their table is empty, or they lead to routes that the
//! user wanted to stay. The next default route takes them over.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::RouteMessage;
use tokio::sync::Mutex;

use crate::barrier::Barrier;
use crate::device::Device;
use crate::interface::{Beside, Interface, Ipv6, Part};
use crate::route::{self, is_default};
use crate::rules::{self, Outer, PRIORITIES, family, priority};

/// The routes of a device.
pub struct Routes {
    interface: Arc<Interface>,
    is_closed_after: bool,
    ipv6: Ipv6,
    state: Mutex<State>,
}

/// What leads where at present.
pub struct State {
    outer: Vec<Outer>,
    led: BTreeSet<IpNet>,
    /// There is one as soon as a network is led.
    barrier: Option<Barrier>,
}

/// What others have removed, or may have.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The device, or an address.
    pub interface: bool,
    /// The device of the barrier.
    pub barrier: bool,
    /// Rules with these priorities.
    pub rules: BTreeSet<u32>,
    /// Routes of these networks.
    pub routes: BTreeSet<IpNet>,
    /// The routes of these networks were replaced by routes into these devices.
    pub replaced: BTreeSet<(IpNet, Option<u32>)>,
}

impl Lost {
    /// Anything may be gone.
    pub fn add_everything(&mut self) {
        (self.interface, self.barrier) = (true, true);
        self.rules.extend(PRIORITIES);
    }
}

impl Routes {
    /// No routes yet into a device. `outer` are the tunnel's own datagrams. With `is_closed_after`, the
    /// barriers of the routes are `unreachable` routes, which outlive this process.
    ///
    /// # Errors
    /// The kernel's routing cannot be talked to.
    pub async fn open(device: &Device, outer: Vec<Outer>, is_closed_after: bool) -> Result<Self, RouteError> {
        let interface = Arc::clone(device.interface());
        let ipv6 = interface.ipv6().await.map_err(RouteError::Netlink)?;
        let state = Mutex::new(State { outer, led: BTreeSet::new(), barrier: None });
        Ok(Self { interface, is_closed_after, ipv6, state })
    }

    /// Leads these networks into the device, and no others. Networks of IPv6 are left out if IPv6 is off on
    /// the whole machine.
    ///
    /// # Errors
    /// The kernel refuses a route, mostly because it has one for the same network. Nothing changes then.
    pub async fn follow(&self, networks: impl IntoIterator<Item = IpNet>) -> Result<(), RouteError> {
        // The kernel itself leads the networks of our addresses there.
        let is_reached = |network: &IpNet| self.interface.addresses().iter().any(|own| own.trunc().contains(network));
        let mut wanted: BTreeSet<_> = networks.into_iter().filter(|network| !is_reached(network)).collect();
        match (&self.ipv6, wanted.iter().copied().find(is_ipv6)) {
            (Ipv6::OnlyElsewhere(other), Some(network)) => {
                return Err(RouteError::NoIpv6 {
                    network,
                    device: self.interface.name().to_owned(),
                    other: other.clone(),
                });
            }
            (Ipv6::Off, _) => wanted.retain(|network| !is_ipv6(network)),
            _ => {}
        }
        let state = &mut *self.state.lock().await;
        if !wanted.is_empty() && state.barrier.is_none() {
            state.barrier = Some(self.barrier().await.map_err(RouteError::Barrier)?);
        }
        let mut added = Vec::new();
        for &network in wanted.difference(&state.led) {
            if let Err(error) = self.add(state, network).await {
                for network in added {
                    self.undo(state, network).await;
                }
                return Err(error);
            }
            added.push(network);
        }
        for &network in state.led.difference(&wanted) {
            self.remove(state, network).await;
        }
        state.led = wanted;
        Ok(())
    }

    /// Whether networks of IPv6 are left out, because IPv6 is off on the whole machine.
    pub fn leave_ipv6_out(&self) -> bool {
        self.ipv6 == Ipv6::Off
    }

    /// Networks among these that overlap with the network of another device.
    ///
    /// # Errors
    /// The kernel's routing cannot be talked to.
    pub async fn beside(&self, networks: impl IntoIterator<Item = IpNet>) -> Result<Vec<Beside>, RouteError> {
        self.interface.beside(networks).await.map_err(RouteError::Netlink)
    }

    /// From now on, these are the tunnel's own datagrams.
    ///
    /// # Errors
    /// The kernel refuses a rule.
    pub async fn pass(&self, outer: Vec<Outer>) -> Result<(), RouteError> {
        let state = &mut *self.state.lock().await;
        let before = std::mem::replace(&mut state.outer, outer);
        for family in families(&state.led) {
            let (wanted, old) = (rules::of(family, &state.outer), rules::of(family, &before));
            for rule in wanted.iter().filter(|rule| !old.contains(rule)) {
                self.interface.netlink().add_rule(rule).await.map_err(RouteError::Rule)?;
            }
            for rule in old.iter().filter(|rule| !wanted.contains(rule)) {
                // One that is gone already is as good.
                let _ = self.interface.netlink().delete_rule(rule).await;
            }
        }
        Ok(())
    }

    /// Removes what would outlive the device, and is not to outlive it. A device that itself outlives this
    /// process is left as it was found.
    pub async fn close(&self) {
        let state = &mut *self.state.lock().await;
        for network in std::mem::take(&mut state.led) {
            self.undo(state, network).await;
        }
        state.barrier = None;
        self.interface.restore().await;
    }

    /// The device.
    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The number of the barrier's device, if it has one.
    pub(crate) async fn barrier_device(&self) -> Option<u32> {
        self.state.lock().await.barrier.as_ref().and_then(Barrier::shown).map(|(_, index)| index)
    }

    /// Adds again what is missing, and returns that. Rules come first: without them, no barrier holds.
    ///
    /// # Errors
    /// What cannot be added, and what the kernel says.
    pub(crate) async fn restore(&self, lost: &Lost) -> Result<Vec<Part>, (Part, io::Error)> {
        let state = &mut *self.state.lock().await;
        let (netlink, mut restored) = (self.interface.netlink(), Vec::new());
        for family in families(&state.led) {
            for rule in rules::of(family, &state.outer).into_iter().filter(|rule| lost.rules.contains(&priority(rule)))
            {
                let part = Part::Rule(if family == AddressFamily::Inet { 4 } else { 6 }, priority(&rule));
                if netlink.add_rule(&rule).await.map_err(|error| (part.clone(), error))? {
                    restored.push(part);
                }
            }
        }
        if lost.barrier {
            restored.extend(self.restore_barrier(state).await?);
        }
        let is_all = lost.interface || lost.barrier;
        let routes = self.routes_of(state, |network| is_all || lost.routes.contains(network));
        if lost.interface || !routes.is_empty() {
            restored.extend(self.interface.ensure().await?);
        }
        for (part, route) in routes {
            match netlink.add_route(&route).await {
                Ok(true) => restored.push(part),
                Ok(false) => {}
                // The device was set down again. The news of that are on their way.
                Err(error) if error.kind() == io::ErrorKind::NetworkDown => {}
                Err(error) => return Err((part, error)),
            }
        }
        for &(network, _) in lost.replaced.iter().filter(|(_, device)| *device != Some(self.interface.index())) {
            if state.led.contains(&network) {
                return Err((Part::Route(network), io::ErrorKind::AlreadyExists.into()));
            }
        }
        Ok(restored)
    }

    /// The routes of some networks: into the device, those of its addresses, and the barriers.
    fn routes_of(&self, state: &State, is_wanted: impl Fn(&IpNet) -> bool) -> Vec<(Part, RouteMessage)> {
        let mut routes = Vec::new();
        for &network in state.led.iter().filter(|network| is_wanted(network)) {
            routes.push((Part::Route(network), self.into(network)));
            let barrier = state.barrier.as_ref().map(|barrier| barrier.route(network));
            routes.extend(barrier.map(|route| (Part::Barrier(network), route)));
        }
        for own in self.interface.addresses().iter().filter(|own| own.prefix_len() < own.max_prefix_len()) {
            if is_wanted(&own.trunc()) {
                routes.push((Part::Route(own.trunc()), route::connected(self.interface.index(), *own)));
            }
        }
        routes
    }

    async fn restore_barrier(&self, state: &mut State) -> Result<Option<Part>, (Part, io::Error)> {
        let Some((name, index)) = state.barrier.as_ref().and_then(Barrier::shown) else { return Ok(None) };
        let part = Part::Up(name.to_owned());
        let fail = |error| (part.clone(), error);
        match self.interface.netlink().device(index).await {
            Ok(shown) if shown.is_up => Ok(None),
            Ok(_) => self.interface.netlink().set_up(index, true).await.map(|()| Some(part.clone())).map_err(fail),
            Err(_) => {
                state.barrier = Some(self.barrier().await.map_err(fail)?);
                Ok(Some(part))
            }
        }
    }

    async fn barrier(&self) -> io::Result<Barrier> {
        if self.is_closed_after {
            return Ok(Barrier::Closed);
        }
        Barrier::device(self.interface.netlink(), self.interface.name()).await
    }

    async fn add(&self, state: &State, network: IpNet) -> Result<(), RouteError> {
        // This one comes first: it is refused if another process has one, whose rules have to stay.
        let added = self.add_own(network).await;
        added.map_err(|error| match is_default(&network) {
            true => RouteError::Default { network, error },
            false => RouteError::Route { network, error },
        })?;
        let rest = self.add_rest(state, network).await;
        if rest.is_err() {
            self.undo(state, network).await;
        }
        rest
    }

    /// Adds the route into the device. One that an earlier process left in a device that outlived it is
    /// taken over.
    async fn add_own(&self, network: IpNet) -> io::Result<()> {
        let (netlink, route) = (self.interface.netlink(), self.into(network));
        if netlink.add_route(&route).await? {
            return Ok(());
        }
        let is_ours = self.interface.is_persistent() && netlink.delete_route(&route).await.is_ok();
        if is_ours && netlink.add_route(&route).await? {
            return Ok(());
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Adds the barrier beside a route, and the rules that lead to a default route.
    async fn add_rest(&self, state: &State, network: IpNet) -> Result<(), RouteError> {
        let netlink = self.interface.netlink();
        if let Some(barrier) = &state.barrier {
            // One that an earlier process left closed is as good.
            let added = netlink.add_route(&barrier.route(network)).await;
            added.map_err(|error| RouteError::Route { network, error })?;
        }
        if is_default(&network) {
            self.set_rules(family(&network), &state.outer).await.map_err(RouteError::Rule)?;
        }
        if !self.is_closed_after {
            let _ = netlink.delete_route(&route::closed(network)).await;
        }
        Ok(())
    }

    /// Adds the rules of a family that are missing, after those that an earlier process left are removed.
    async fn set_rules(&self, family: AddressFamily, outer: &[Outer]) -> io::Result<()> {
        let (netlink, wanted) = (self.interface.netlink(), rules::of(family, outer));
        for shown in netlink.rules(family).await? {
            if PRIORITIES.contains(&priority(&shown)) && !wanted.iter().any(|rule| rules::is_same(rule, &shown)) {
                let _ = netlink.delete_rule(&shown).await;
            }
        }
        for rule in &wanted {
            netlink.add_rule(rule).await?;
        }
        Ok(())
    }

    /// The route of a network into the device.
    fn into(&self, network: IpNet) -> RouteMessage {
        route::into(self.interface.index(), network, self.interface.source(&network))
    }

    /// Takes a network out of the device at the end. What is to stay closed stays.
    async fn undo(&self, state: &State, network: IpNet) {
        if self.is_closed_after {
            let _ = self.interface.netlink().delete_route(&self.into(network)).await;
        } else {
            self.remove(state, network).await;
        }
    }

    /// Routes and rules that are gone already are as good.
    async fn remove(&self, state: &State, network: IpNet) {
        let netlink = self.interface.netlink();
        if is_default(&network) {
            // Those last that keep the tunnel's own datagrams out of it.
            for rule in rules::of(family(&network), &state.outer).iter().rev() {
                let _ = netlink.delete_rule(rule).await;
            }
        }
        let _ = netlink.delete_route(&self.into(network)).await;
        if let Some(barrier) = &state.barrier {
            let _ = netlink.delete_route(&barrier.route(network)).await;
        }
    }
}

/// Why there are no routes.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// The kernel's routing cannot be talked to.
    #[error("cannot talk to the kernel's routing (netlink): {0}")]
    Netlink(io::Error),
    /// The kernel refuses a route.
    #[error("cannot add the route {network}: {error}; does `ip route` show one?")]
    Route {
        /// Where it leads.
        network: IpNet,
        /// What the kernel says.
        error: io::Error,
    },
    /// The kernel refuses a default route.
    #[error(
        "cannot add the route {network}: {error}; does another tunnel have it? `ip route show table {}`",
        rules::TABLE
    )]
    Default {
        /// The default route of IPv4 or IPv6.
        network: IpNet,
        /// What the kernel says.
        error: io::Error,
    },
    /// The kernel refuses a rule.
    #[error("cannot add a rule for the default route (`ip rule`): {0}")]
    Rule(io::Error),
    /// The kernel does not make the device of the barrier.
    #[error("cannot make the device that refuses packets while a route is missing: {0}")]
    Barrier(io::Error),
    /// IPv6 is off for the device, and on elsewhere: packets would leave outside the tunnel.
    #[error(
        "IPv6 is off for {device} and on for {other}, so packets to {network} would leave outside the tunnel: set \
         net.ipv6.conf.default.disable_ipv6=0, or leave the route out"
    )]
    NoIpv6 {
        /// A network that was to be reached through the tunnel.
        network: IpNet,
        /// The device of the tunnel.
        device: String,
        /// A device that has IPv6.
        other: String,
    },
}

/// The families that have a default route.
fn families(led: &BTreeSet<IpNet>) -> Vec<AddressFamily> {
    led.iter().filter(|network| is_default(network)).map(family).collect()
}

fn is_ipv6(network: &IpNet) -> bool {
    matches!(network, IpNet::V6(_))
}
