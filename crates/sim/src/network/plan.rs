//! What a network consists of and carries.
//!
//! `file` makes a [`Plan`] of a scenario file, and experiments make it in code. The simulator and the lab run
//! it. Invariant: a plan that was read from a file has a way between the ends of each flow.

use core::ops::Range;
use core::time::Duration;

use tidewire_proto::config::Config;

use super::topology::{Joint, Node, Role, Topology};
use crate::load::Flow;
use crate::scenario::Scenario;
use crate::tcp::bucket::Coding;
use crate::video::{Pace, Playback, Video};

/// A network and its flows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The source of all randomness.
    pub seed: u64,
    /// How long it runs. Without, until all flows have ended.
    pub time: Option<Duration>,
    /// Least time between two samples of a queue.
    pub sample: Duration,
    /// Nodes and links.
    pub topology: Topology,
    /// The tunnels.
    pub tunnels: Vec<TunnelPlan>,
    /// The flows.
    pub flows: Vec<FlowPlan>,
}

/// A tunnel between two nodes. Flows through it see one link between its ends.
#[derive(Clone, Debug)]
pub struct TunnelPlan {
    /// Its name.
    pub name: String,
    /// Number of the node that connects.
    pub from: usize,
    /// Number of the node that listens.
    pub to: usize,
    /// The settings of both ends.
    pub config: Box<Config>,
    /// The same settings as the file has them: pairs of a key and its text.
    pub settings: Vec<(String, String)>,
    /// Whether packets wait for each other before they enter at the near end. Only the simulator has this, as
    /// the baseline to pipeline coding.
    pub batch: Option<Batch>,
}

/// How packets wait at the entrance of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batch {
    /// Packets that enter together; at least 1.
    pub packets: usize,
    /// All that wait enter when no packet came for this long.
    pub pause: Duration,
}

/// One flow between two nodes.
#[derive(Clone, Debug)]
pub struct FlowPlan {
    /// Its name.
    pub name: String,
    /// Number of the node that sends.
    pub from: usize,
    /// Number of the node that receives.
    pub to: usize,
    /// Number of the tunnel that carries its packets. Its ends are those of the flow, in either order.
    pub through: Option<usize>,
    /// When it starts: a connection of ours begins its handshake then. Its streams have their own start,
    /// after the connection was made; a scenario file sets that one.
    pub start: Duration,
    /// What carries it.
    pub carrier: Carrier,
}

/// What carries a flow, and its content.
#[derive(Clone, Debug)]
pub enum Carrier {
    /// A connection of ours: the settings of the end at `from` and of the other one, and its streams.
    Ours {
        /// Settings of both ends.
        ends: Box<[Config; 2]>,
        /// The streams. [`End::Near`](crate::pair::End::Near) is the end at `from`.
        streams: Vec<Flow>,
        /// The nodes of the relays that recode between the ends, in their order; empty without any.
        via: Vec<usize>,
    },
    /// TCP.
    Tcp {
        /// Its congestion control.
        control: Control,
        /// Whether it supports congestion marks (RFC 3168).
        marks: bool,
        /// What the application sends.
        content: Content,
    },
    /// NewReno over buckets. Only the simulator has it, and no scenario file.
    Bucket {
        /// The code.
        coding: Coding,
        /// What the application sends.
        content: Content,
    },
    /// UDP datagrams without acknowledgements.
    Datagrams {
        /// What the application sends. It has a rate, or frames.
        content: Content,
    },
    /// Programs of the lab's table of peers, which only the lab has.
    Peer {
        /// The peer's name in the table.
        peer: String,
        /// What the application sends.
        content: Content,
    },
}

/// A congestion control of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// NewReno without SACK.
    NewReno,
    /// CUBIC. The simulator's has no SACK, the kernel's has.
    Cubic,
    /// BBR, which only the lab has.
    Bbr,
}

/// What an application sends.
#[derive(Clone, Debug)]
pub enum Content {
    /// As fast as possible.
    Bulk {
        /// This many bytes; `None` means without end.
        bytes: Option<u64>,
    },
    /// Records at a constant rate.
    Paced {
        /// Bytes per second.
        rate: u64,
        /// Bytes of a record, or of a datagram.
        record: u64,
        /// Bytes in all; `None` means without end.
        bytes: Option<u64>,
    },
    /// The frames of a video.
    Video {
        /// The frames, and whether they come at their times.
        video: Video,
        /// Largest datagram that a frame is cut into.
        record: u64,
    },
}

/// Bytes of a stream of ours that has no end.
pub(super) const ENDLESS: u64 = u64::MAX >> 2;
/// Longest run without a time of its own, as of a [`Trial`](crate::report::Trial).
const DEFAULT_LIMIT: Duration = Duration::from_secs(600);
/// Least time between two samples by default. Chosen: a figure of some minutes shows no more.
pub(super) const DEFAULT_SAMPLE: Duration = Duration::from_millis(100);

impl Plan {
    /// A plan without flows.
    pub fn new(seed: u64, topology: Topology) -> Self {
        Self { seed, time: None, sample: DEFAULT_SAMPLE, topology, tunnels: Vec::new(), flows: Vec::new() }
    }

    /// When the run ends at the latest.
    pub fn limit(&self) -> Duration {
        self.time.unwrap_or(DEFAULT_LIMIT)
    }

    /// The same plan with another seed for everything.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        for (n, joint) in self.topology.links.iter_mut().enumerate() {
            joint.config.set_seed(seed_of_link(seed, n));
        }
        self
    }

    /// The first flow that only the lab can run, if there is one.
    pub fn not_simulated(&self) -> Option<&FlowPlan> {
        let is_real =
            |carrier: &Carrier| matches!(carrier, Carrier::Tcp { control: Control::Bbr, .. } | Carrier::Peer { .. });
        self.flows.iter().find(|flow| is_real(&flow.carrier))
    }
}

impl FlowPlan {
    /// The nodes at which a packet of the flow ends or is made anew: both ends, and the relays between them.
    pub fn stations(&self) -> Vec<usize> {
        let via = match &self.carrier {
            Carrier::Ours { via, .. } => &via[..],
            _ => &[],
        };
        [&[self.from][..], via, &[self.to]].concat()
    }

    /// The two nodes of hop `number`, from 0.
    pub(super) fn hop(&self, number: usize) -> [usize; 2] {
        let stations = self.stations();
        [stations[number], stations[number + 1]]
    }
}

/// The seed of link number `n`. The first one has that of the plan.
pub(super) fn seed_of_link(seed: u64, n: usize) -> u64 {
    seed.wrapping_add((n as u64).wrapping_mul(super::FOLD))
}

impl From<&Scenario> for Plan {
    /// The network of two hosts, `near` and `far`, one link and one connection with the scenario's flows.
    fn from(scenario: &Scenario) -> Self {
        let node = |name: &str| Node { name: name.to_owned(), role: Role::Host };
        let link = Joint { name: "link".to_owned(), nodes: [0, 1], config: scenario.link.clone() };
        let topology = Topology { nodes: vec![node("near"), node("far")], links: vec![link] };
        let ends = [scenario.near.clone(), scenario.far.clone()];
        let carrier = Carrier::Ours { ends: Box::new(ends), streams: scenario.flows.clone(), via: Vec::new() };
        let flow = FlowPlan { name: "1".to_owned(), from: 0, to: 1, through: None, start: Duration::ZERO, carrier };
        Self { flows: vec![flow], ..Self::new(scenario.seed, topology) }
    }
}

impl Content {
    /// Bytes in all; `None` if it has no end.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Bulk { bytes } | Self::Paced { bytes, .. } => *bytes,
            Self::Video { video, .. } => Some(video.trace.bytes()),
        }
    }

    /// Bytes of a record.
    pub fn record(&self) -> u64 {
        match self {
            Self::Bulk { .. } => RECORD,
            Self::Paced { record, .. } | Self::Video { record, .. } => (*record).max(1),
        }
    }

    /// Time from one record to the next, if it has a rate.
    pub fn every(&self) -> Duration {
        match self {
            Self::Paced { rate, record, .. } => {
                let nanos = u128::from(*record) * 1_000_000_000 / u128::from((*rate).max(1));
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).max(1))
            }
            Self::Bulk { .. } | Self::Video { .. } => Duration::ZERO,
        }
    }

    /// When record or frame `n` (from 0) is made, after the start.
    pub fn made(&self, n: u64) -> Duration {
        match self {
            Self::Bulk { .. } => Duration::ZERO,
            Self::Paced { .. } => {
                let nanos = self.every().as_nanos().saturating_mul(u128::from(n));
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
            Self::Video { video, .. } => {
                let frame = usize::try_from(n).ok().and_then(|n| video.trace.frames().get(n));
                frame.map_or(Duration::ZERO, |frame| frame.at)
            }
        }
    }

    /// The buffer of a viewer, if it is a video.
    pub fn playback(&self) -> Option<Playback> {
        match self {
            Self::Video { video, .. } => Some(video.playback()),
            Self::Bulk { .. } | Self::Paced { .. } => None,
        }
    }

    /// Bytes that the application has made when the flow is `age` old.
    pub fn produced(&self, age: Duration) -> u64 {
        let all = self.bytes().unwrap_or(u64::MAX);
        match self {
            Self::Bulk { .. } => all,
            Self::Paced { record, .. } => {
                let records = u64::try_from(age.as_nanos() / self.every().as_nanos().max(1)).unwrap_or(u64::MAX);
                records.saturating_add(1).saturating_mul(*record).min(all)
            }
            Self::Video { video, .. } => video.bytes_until(age).min(all),
        }
    }

    /// When byte number `byte` (from 0) is made; `None` behind the last.
    pub fn time_of(&self, byte: u64) -> Option<Duration> {
        match self {
            Self::Video { video, .. } => video.time_of(byte),
            _ if self.bytes().is_some_and(|bytes| byte >= bytes) => None,
            _ => Some(self.made(byte / self.record())),
        }
    }

    /// The content of a stream of ours.
    pub fn of_stream(stream: &Flow) -> Self {
        let bytes = (stream.bytes < ENDLESS).then_some(stream.bytes);
        match (&stream.video, stream.rate) {
            (Some(video), _) => Self::Video { video: video.clone(), record: stream.record },
            (None, Some(rate)) => Self::Paced { rate, record: stream.record, bytes },
            (None, None) => Self::Bulk { bytes },
        }
    }

    /// The records or live frames that became complete with the bytes from `before` to `after`.
    pub fn completed(&self, before: u64, after: u64) -> Range<u64> {
        match self {
            Self::Video { video, .. } if video.pace == Pace::Live => {
                let frames = video.trace.completed(before, after);
                frames.start as u64..frames.end as u64
            }
            Self::Paced { record, .. } => before / (*record).max(1)..after / (*record).max(1),
            Self::Bulk { .. } | Self::Video { .. } => 0..0,
        }
    }
}

/// Bytes of a record by default, as of [`Flow::bulk`].
pub(super) const RECORD: u64 = 1_200;
