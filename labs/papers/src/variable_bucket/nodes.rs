//! The paper's two networks: the line of three nodes, and twenty nodes at random places.
//!
//! `runs` makes topologies of it. Invariants: the ends of a flow are as many hops apart as Table 2 says; two
//! nodes are neighbours if and only if they are within [`RANGE`] of each other.

use tidewire_sim::network::{Carrier, Content, Control};

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Sender, gateway and receiver, and no other traffic.
    Line,
    /// Twenty nodes with the traffic of Table 2.
    Twenty,
    /// The same without other traffic.
    TwentyAlone,
}

/// Places of the twenty nodes on the 100 x 100 area: drawn uniformly, until the graph was connected and had
/// the distances of Table 2.
const NODES: [[i32; 2]; 20] = [
    [7, 11],
    [10, 46],
    [21, 94],
    [85, 39],
    [32, 77],
    [27, 77],
    [4, 74],
    [87, 20],
    [55, 81],
    [50, 92],
    [65, 47],
    [69, 56],
    [64, 34],
    [4, 3],
    [46, 59],
    [40, 48],
    [54, 67],
    [21, 71],
    [22, 30],
    [29, 3],
];
/// The range of a node, in the place of Friis' propagation. Chosen: with it, the nodes have 5.7 neighbours on
/// average, and the longest way has five hops as in Table 2.
const RANGE: i32 = 32;
/// Sender and receiver of the video: four hops. The paper does not state them.
const VIDEO: [usize; 2] = [2, 7];

impl Place {
    /// Number of nodes.
    pub fn nodes(self) -> usize {
        if self == Self::Line { 3 } else { NODES.len() }
    }

    /// Sender and receiver of the video.
    pub fn video(self) -> [usize; 2] {
        if self == Self::Line { [0, 2] } else { VIDEO }
    }

    /// Table 2: name, ends and carrier of the other flows. Sources and hops are the table's.
    pub fn cross_traffic(self) -> Vec<(&'static str, [usize; 2], Carrier)> {
        if self != Self::Twenty {
            return Vec::new();
        }
        let paced = |bits_per_second: u64, record| Content::Paced { rate: bits_per_second / 8, record, bytes: None };
        let tcp = |content| Carrier::Tcp { control: Control::NewReno, marks: false, content };
        vec![
            ("constant", [0, 8], Carrier::Datagrams { content: paced(1_000_000, 512) }),
            ("web", [1, 9], tcp(paced(2_000_000, 1_400))),
            ("bulk", [3, 13], tcp(paced(2_000_000, 100_000))),
        ]
    }
}

/// The links of a network.
pub(super) fn links(place: Place) -> Vec<[usize; 2]> {
    if place == Place::Line {
        return vec![[0, 1], [1, 2]];
    }
    let is_near = |a: usize, b: usize| {
        let [x, y] = [0, 1].map(|axis| NODES[a][axis] - NODES[b][axis]);
        x * x + y * y <= RANGE * RANGE
    };
    let pairs = (0..NODES.len()).flat_map(|a| (a + 1..NODES.len()).map(move |b| [a, b]));
    pairs.filter(|&[a, b]| is_near(a, b)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Least number of hops between two nodes.
    fn hops(from: usize, to: usize) -> usize {
        let mut hops = [None; NODES.len()];
        hops[from] = Some(0);
        let mut line = VecDeque::from([from]);
        while let Some(node) = line.pop_front() {
            for [a, b] in links(Place::Twenty) {
                let next = if a == node { b } else { a };
                if (a == node || b == node) && hops[next].is_none() {
                    hops[next] = hops[node].map(|hops: usize| hops + 1);
                    line.push_back(next);
                }
            }
        }
        hops[to].unwrap()
    }

    #[test]
    fn the_hops_are_those_of_table_2() {
        let flows = Place::Twenty.cross_traffic();
        let of = |name: &str| flows.iter().find(|flow| flow.0 == name).unwrap().1;
        for (name, source, count) in [("constant", 0, 4), ("web", 1, 3), ("bulk", 3, 5)] {
            let [from, to] = of(name);
            assert_eq!((from, hops(from, to)), (source, count), "{name}");
        }
        assert_eq!(hops(VIDEO[0], VIDEO[1]), 4);
        // All nodes are connected.
        assert!((0..NODES.len()).all(|node| hops(0, node) <= 5));
    }
}
