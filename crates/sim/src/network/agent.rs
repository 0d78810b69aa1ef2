//! A flow in a network: both of its ends, and the oracle that checks what arrives.
//!
//! [`Network`](super::Network) holds one [`Agent`] for each flow. It hands over packets, wakes the agent at
//! its time, and takes what the agent sends. Five kinds of flows are agents: `ours`, `relayed`, `tcp`,
//! `bucket` and `datagrams`.

use core::fmt;
use core::time::Duration;

use tidewire_proto::Time;

use super::bucket::Buckets;
use super::datagrams::Datagrams;
use super::ours::Ours;
use super::plan::{Carrier, FlowPlan, Plan};
use super::relayed::Relayed;
use super::report::FlowReport;
use super::tcp::Tcp;
use crate::chain;
use crate::link::Corruption;
use crate::pair::{End, Parcel};
use crate::tcp as model;
use crate::tcp::bucket::{Combination, DegreeAck};

/// A packet of a flow or tunnel, with the end that it goes to.
#[derive(Clone, Debug)]
pub struct Letter {
    pub(super) to: Addressee,
    pub(super) end: End,
    pub(super) cargo: Cargo,
}

/// What a packet belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Addressee {
    /// The flow with this number.
    Flow(usize),
    /// The tunnel with this number.
    Tunnel(usize),
}

/// The contents of a packet.
#[derive(Clone, Debug)]
pub(super) enum Cargo {
    /// A datagram of our protocol.
    Ours(Parcel),
    /// A datagram of a hop of a path with relays, with the number of the hop.
    Hop {
        number: usize,
        parcel: chain::Parcel,
    },
    /// A segment or an acknowledgement of TCP.
    Tcp(model::Packet),
    /// A combination of a bucket of segments, or its acknowledgement.
    Combination(Combination),
    Degrees(DegreeAck),
    /// A datagram without control, with its number and its bytes.
    Datagram {
        number: u64,
        bytes: Vec<u8>,
    },
}

impl Cargo {
    /// A value that differs for different contents, for the fingerprint of a run.
    pub(super) fn digest(&self) -> u64 {
        match self {
            Self::Ours(parcel) => parcel.digest(),
            Self::Hop { number, parcel } => parcel.digest() ^ *number as u64,
            Self::Tcp(model::Packet::Segment(segment)) => segment.digest ^ segment.stamp.0,
            Self::Tcp(model::Packet::Ack(ack)) => ack.next ^ ack.echo.0,
            Self::Combination(packet) => packet.bucket ^ u64::from(packet.seed).rotate_right(16) ^ packet.stamp.0,
            Self::Degrees(ack) => ack.degrees ^ ack.echo.0,
            Self::Datagram { number, .. } => *number,
        }
    }
}

/// A packet that a flow sends.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) from: End,
    /// Bytes of UDP payload, or as many as make the IP packet as long.
    pub(super) len: usize,
    pub(super) supports_marks: bool,
    pub(super) cargo: Cargo,
}

/// Both ends of a flow; see the module.
pub(super) trait Agent: fmt::Debug {
    /// When the flow has something to do.
    fn next_moment(&self) -> Option<Time>;
    /// Does what is due.
    fn run(&mut self, now: Time);
    /// The next packet to send. Call until `None`.
    fn poll_departure(&mut self) -> Option<Sent>;
    /// Takes a packet that arrived at `end`.
    fn hand(&mut self, now: Time, end: End, cargo: Cargo, marked: bool, damage: &[Corruption]);
    /// Whether nothing more will happen that is worth waiting for.
    fn is_over(&self) -> bool;
    /// What came out by `now`. The owner adds the names.
    fn outcome(&mut self, now: Time) -> FlowReport;
}

/// Starts flow number `index` over a way with this round trip.
///
/// # Panics
/// Panics if the flow is one of ours or of buckets through a tunnel, which does not exist, or a peer of the
/// lab.
pub(super) fn start(plan: &Plan, index: usize, flow: &FlowPlan, round_trip: Duration) -> Box<dyn Agent> {
    // The first flow has the seed of the plan, so that a plan with one connection is a scenario of two ends.
    let seed = plan.seed.wrapping_add((index as u64).wrapping_mul(super::FOLD));
    match &flow.carrier {
        Carrier::Ours { ends, streams, via } if !via.is_empty() => {
            Box::new(Relayed::start(via.len() + 1, ends, streams, plan.limit(), seed))
        }
        Carrier::Ours { ends, streams, .. } => {
            assert!(flow.through.is_none(), "flow {} of ours through a tunnel: tunnels carry TCP and UDP", flow.name);
            Box::new(Ours::start(ends, streams, [flow.start, plan.limit()], seed))
        }
        Carrier::Tcp { control, marks, content } => {
            let longest = flow.through.map(|_| super::tunnel::MTU);
            Box::new(Tcp::start((*control, *marks, longest), content, flow.start, round_trip))
        }
        Carrier::Peer { peer, .. } => panic!("flow {}: the simulator has no peer {peer}", flow.name),
        Carrier::Bucket { coding, content } => {
            assert!(
                flow.through.is_none(),
                "flow {} of buckets through a tunnel: tunnels carry TCP and UDP",
                flow.name
            );
            Box::new(Buckets::start(*coding, content, flow.start, round_trip, seed))
        }
        Carrier::Datagrams { content } => Box::new(Datagrams::start(content, flow.start, seed)),
    }
}
