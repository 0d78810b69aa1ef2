//! The policy rules of a default route: which packets ask the tunnel's table, and which pass it.
//!
//! [`crate::routes`] adds, compares and deletes them; `docs/tunnel.md` section 5 lists them. Invariant: no
//! rule of ours deletes or changes a rule of the kernel, and each has the protocol `kernel`, because
//! systemd-networkd removes all others when it starts or is set up anew.

use std::mem::discriminant;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use rtnetlink::packet_route::route::RouteProtocol;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use rtnetlink::packet_route::{AddressFamily, IpProtocol};

/// The table with the default route. Chosen: the number of our port, above all tables that have names.
pub const TABLE: u32 = 7_700;
/// The kernel's main table (`RT_TABLE_MAIN`).
pub const MAIN: u32 = 254;
/// Priorities of the rules, in the order in which the kernel asks them. Chosen: behind the kernel's rule of
/// VRFs (1000), before its rule of the main table (32766).
const EXEMPT: u32 = 7_700;
/// See [`EXEMPT`].
const SPECIFIC: u32 = 7_701;
/// See [`EXEMPT`].
const THROUGH: u32 = 7_702;
/// See [`EXEMPT`]. The same as [`THROUGH`]: it stands in while that one is removed.
const SPARE: u32 = 7_703;
/// See [`EXEMPT`].
const PAST: u32 = 7_704;
/// All of them.
pub const PRIORITIES: RangeInclusive<u32> = EXEMPT..=PAST;

/// Datagrams of the tunnel itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// Those from this UDP port of ours, to peers at any address.
    From(u16),
    /// Those to this address and UDP port.
    To(SocketAddr),
}

/// The rules of a family, in the order in which they have to be added: a packet of the tunnel's own never
/// finds a rule that leads into the tunnel before the one that leads past it.
pub fn of(family: AddressFamily, outer: &[Outer]) -> Vec<RuleMessage> {
    let exempt = outer.iter().filter_map(|own| exemption(family, own));
    let lead = [specific(family), through(family, THROUGH), through(family, SPARE)];
    [past(family)].into_iter().chain(exempt).chain(lead).collect()
}

/// Whether the rule that the kernel shows is `wanted`. The kernel shows more than was asked for: properties
/// that every rule has, at their defaults.
pub fn is_same(wanted: &RuleMessage, shown: &RuleMessage) -> bool {
    let value = |kind: &RuleAttribute| shown.attributes.iter().find(|of| discriminant(*of) == discriminant(kind));
    let narrows =
        |of: &&RuleAttribute| !matches!(of, RuleAttribute::Table(_) | RuleAttribute::Protocol(_)) && !is_unset(of);
    let has = |of: &RuleAttribute| wanted.attributes.iter().any(|wanted| discriminant(wanted) == discriminant(of));
    (wanted.header.family, wanted.header.action) == (shown.header.family, shown.header.action)
        && (wanted.header.dst_len, wanted.header.src_len) == (shown.header.dst_len, shown.header.src_len)
        && wanted.attributes.iter().all(|wanted| value(wanted) == Some(wanted))
        && shown.attributes.iter().filter(narrows).all(has)
}

/// The priority of a rule; 0 if it is first.
pub fn priority(rule: &RuleMessage) -> u32 {
    let of = |attribute: &RuleAttribute| match attribute {
        RuleAttribute::Priority(priority) => Some(*priority),
        _ => None,
    };
    rule.attributes.iter().find_map(of).unwrap_or(0)
}

/// The family of a network.
pub fn family(network: &IpNet) -> AddressFamily {
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
fn through(family: AddressFamily, priority: u32) -> RuleMessage {
    let mut through = rule(family, priority, RuleAction::ToTable);
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
    rule.attributes.extend([RuleAttribute::Priority(priority), RuleAttribute::Protocol(RouteProtocol::Kernel)]);
    rule
}

/// Whether the kernel shows this for rules that do not ask for it.
fn is_unset(attribute: &RuleAttribute) -> bool {
    match attribute {
        RuleAttribute::SuppressPrefixLen(value) | RuleAttribute::SuppressIfGroup(value) => *value == u32::MAX,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(wanted: &RuleMessage) -> RuleMessage {
        let mut shown = wanted.clone();
        if !shown.attributes.iter().any(|of| matches!(of, RuleAttribute::Table(_))) {
            shown.attributes.insert(0, RuleAttribute::Table(0));
        }
        if !shown.attributes.iter().any(|of| matches!(of, RuleAttribute::SuppressPrefixLen(_))) {
            shown.attributes.push(RuleAttribute::SuppressPrefixLen(u32::MAX));
        }
        shown
    }

    #[test]
    fn a_rule_is_known_as_the_kernel_shows_it_and_no_other_is() {
        let outer = [Outer::To("192.0.2.7:7700".parse().unwrap()), Outer::From(7_700)];
        let rules = of(AddressFamily::Inet, &outer);
        for (n, wanted) in rules.iter().enumerate() {
            for (m, other) in rules.iter().enumerate() {
                assert_eq!(is_same(wanted, &shown(other)), n == m, "{wanted:?} {other:?}");
            }
        }
        // One of an earlier version: without the protocol, so systemd-networkd would remove it.
        let mut older = shown(&rules[0]);
        older.attributes.retain(|of| !matches!(of, RuleAttribute::Protocol(_)));
        assert!(!is_same(&rules[0], &older));
        // One that takes fewer packets.
        let mut marked = shown(&rules[3]);
        marked.attributes.push(RuleAttribute::FwMark(7));
        assert!(!is_same(&rules[3], &marked));
    }

    #[test]
    fn every_rule_has_the_protocol_kernel_and_the_way_past_comes_first() {
        let outer = [Outer::To("192.0.2.7:7700".parse().unwrap()), Outer::To("[2001:db8::7]:7700".parse().unwrap())];
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let rules = of(family, &outer);
            assert_eq!(rules.iter().map(priority).collect::<Vec<_>>(), [PAST, EXEMPT, SPECIFIC, THROUGH, SPARE]);
            let is_kernels =
                |rule: &RuleMessage| rule.attributes.contains(&RuleAttribute::Protocol(RouteProtocol::Kernel));
            assert!(rules.iter().all(is_kernels));
        }
    }
}
