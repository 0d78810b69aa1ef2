//! Nodes, the links between them, and the routes.
//!
//! A [`Plan`](super::Plan) holds a topology. The simulator and the lab forward by the same [`Routes`], which
//! are computed once. Invariants: a link joins two different nodes of the topology; only routers forward.

use core::time::Duration;
use std::collections::VecDeque;

use crate::duplex::DuplexConfig;
use crate::pair::End;

/// What a node does with packets for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It has flows and forwards nothing.
    #[default]
    Host,
    /// It forwards. It can have flows too.
    Router,
    /// It recodes for the flows that name it (`docs/relay.md`), and forwards nothing else.
    Relay,
}

/// A node of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, which no other node has.
    pub name: String,
    /// What it does with packets for others.
    pub role: Role,
}

/// A link between two nodes. Packets from the first to the second node go forward.
#[derive(Clone, Debug)]
pub struct Joint {
    /// Its name, which no other link has.
    pub name: String,
    /// The numbers of its nodes.
    pub nodes: [usize; 2],
    /// Both directions.
    pub config: DuplexConfig,
}

/// Nodes and links; see the module.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The links.
    pub links: Vec<Joint>,
}

/// The first step of a way: a link, and the end of it where the packet enters. [`End::Near`] enters forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The number of the link.
    pub link: usize,
    /// The end that the packet enters.
    pub enters: End,
}

/// For each node and each destination, the next hop.
#[derive(Clone, Debug)]
pub struct Routes(Vec<Vec<Option<Hop>>>);

impl Routes {
    /// The next hop at node `at` toward node `to`. `None` if there is no way, or the packet is there.
    pub fn next(&self, at: usize, to: usize) -> Option<Hop> {
        *self.0.get(at)?.get(to)?
    }
}

impl Topology {
    /// The number of the node with this name.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// The ways with the fewest links. Among equals, the link that was named first decides.
    pub fn routes(&self) -> Routes {
        let mut next = vec![vec![None; self.nodes.len()]; self.nodes.len()];
        for (to, _) in self.nodes.iter().enumerate() {
            let mut line = VecDeque::from([to]);
            while let Some(node) = line.pop_front() {
                if node != to && self.nodes[node].role != Role::Router {
                    continue;
                }
                for (link, joint) in self.links.iter().enumerate() {
                    for (enters, from, into) in
                        [(End::Near, joint.nodes[0], joint.nodes[1]), (End::Far, joint.nodes[1], joint.nodes[0])]
                    {
                        if into == node && from != to && next[from][to].is_none() {
                            next[from][to] = Some(Hop { link, enters });
                            line.push_back(from);
                        }
                    }
                }
            }
        }
        Routes(next)
    }

    /// The hops from one node to another, in their order; `None` if there is no way.
    pub fn way(&self, routes: &Routes, from: usize, to: usize) -> Option<Vec<Hop>> {
        let (mut at, mut way) = (from, Vec::new());
        while at != to {
            let hop = routes.next(at, to)?;
            at = self.links[hop.link].nodes[hop.enters.other() as usize];
            way.push(hop);
        }
        Some(way)
    }

    /// Least round trip between two nodes: the sum of the delays of both ways. Zero if there is no way.
    pub fn round_trip(&self, routes: &Routes, from: usize, to: usize) -> Duration {
        let one = |from, to| {
            let way = self.way(routes, from, to).unwrap_or_default();
            way.iter()
                .map(|hop| {
                    let config = &self.links[hop.link].config;
                    if hop.enters == End::Near { config.forward.delay } else { config.back.delay }
                })
                .sum::<Duration>()
        };
        one(from, to) + one(to, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(nodes: &[(&str, Role)], links: &[(usize, usize)]) -> Topology {
        let nodes = nodes.iter().map(|&(name, role)| Node { name: name.to_owned(), role }).collect();
        let link = |(n, &(a, b)): (usize, &(usize, usize))| {
            let mut config = DuplexConfig::default();
            config.set_rtt(Duration::from_millis(10 * (n as u64 + 1)));
            Joint { name: format!("{n}"), nodes: [a, b], config }
        };
        Topology { nodes, links: links.iter().enumerate().map(link).collect() }
    }

    #[test]
    fn ways_are_short_and_lead_through_routers_only() {
        use Role::{Host, Router};
        // A square a - r - b, a - h - b with a host at one corner, and a longer way r - s - b.
        let nodes = [("a", Host), ("h", Host), ("r", Router), ("s", Router), ("b", Host)];
        let square = topology(&nodes, &[(0, 1), (1, 4), (0, 2), (3, 2), (3, 4), (2, 4)]);
        let routes = square.routes();
        let links = |from, to| square.way(&routes, from, to).map(|way| way.iter().map(|h| h.link).collect::<Vec<_>>());
        assert_eq!(links(0, 4), Some(vec![2, 5]));
        assert_eq!(links(4, 0), Some(vec![5, 2]));
        assert_eq!((links(0, 1), links(0, 3), links(0, 0)), (Some(vec![0]), Some(vec![2, 3]), Some(vec![])));
        assert_eq!(square.way(&routes, 0, 3).unwrap()[1], Hop { link: 3, enters: End::Far });
        assert_eq!(square.round_trip(&routes, 0, 4), Duration::from_millis(30 + 60));
        let apart = topology(&nodes, &[(0, 1), (1, 4)]);
        assert_eq!(apart.way(&apart.routes(), 0, 4), None);
    }
}
