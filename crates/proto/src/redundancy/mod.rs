//! Redundancy: which repair, if any, the next free slot carries.
//!
//! A policy is asked each time a packet may leave ([`RedundancyPolicy::next_repair`]) and answers from its
//! context and its own state alone, so that a table can test it. What it answers is sent at once, computed
//! from the freshest window; nothing coded is ever queued. One file per policy.

mod adaptive;
mod block;
mod cap;
mod every;
mod none;
mod regions;
mod steady;
pub mod target;

use core::fmt;
use core::ops::Range;
use core::str::FromStr;
use core::time::Duration;

use tidewire_codec::{Code, SourceId};

use crate::Time;
use crate::path::LossEstimate;

pub use adaptive::Adaptive;
pub use block::Block;
pub use every::{Every, answer_deficit, resend_unseen};
pub use none::NoRedundancy;
pub use regions::RegionAnswers;
pub use steady::{SteadyPath, steady_share};
pub use target::{Plan, Target};

/// What a policy wants in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The source symbol itself once more.
    Resend(SourceId),
    /// A combination of `count` source symbols from `first`.
    Coded {
        /// Which coefficients.
        code: Code,
        /// First source symbol of the span.
        first: SourceId,
        /// Symbols in the span.
        count: u16,
        /// Coefficient key where the policy must choose it (a row of a block code); else the lane counts.
        key: Option<u16>,
        /// Answers a reported deficit rather than being sent before any is known.
        on_feedback: bool,
    },
}

impl Repair {
    /// One past the newest source symbol that it can give.
    pub fn end(&self) -> SourceId {
        match *self {
            Self::Resend(id) => id.next(),
            Self::Coded { first, count, .. } => first.plus(u64::from(count)),
        }
    }
}

/// A repair packet that was sent and whose fate is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairInFlight {
    /// Packet number.
    pub packet: u64,
    /// First source symbol of its span.
    pub first: SourceId,
    /// Symbols in its span; a source symbol sent again counts as a span of one.
    pub count: u16,
    /// Answers a reported deficit.
    pub on_feedback: bool,
}

impl RepairInFlight {
    /// What stands in the place of a repair whose fate is known: it covers no symbol and answers nothing.
    pub(crate) fn blank(packet: u64) -> Self {
        Self { packet, first: SourceId(u64::MAX), count: 0, on_feedback: false }
    }

    /// Whether this is no repair any more.
    pub fn is_blank(&self) -> bool {
        self.count == 0
    }

    /// Whether it mixes this source symbol.
    pub fn covers(&self, id: SourceId) -> bool {
        id >= self.first && id.0 - self.first.0 < u64::from(self.count)
    }
}

/// What the receiver last said of the lane.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// All ids below are decoded.
    pub edge: SourceId,
    /// One past the highest id that `undecoded` speaks of.
    pub end: SourceId,
    /// Independent symbols lacking for all below `end`.
    pub deficit: u64,
    /// Undecoded runs from the edge up, at most 32.
    pub undecoded: Vec<Range<SourceId>>,
    /// What was seen beyond `end`, where more runs are lacking than could be named: adjacent regions from
    /// there up, and how many independent symbols are lacking in each once all below it is decoded.
    pub regions: Vec<(Range<SourceId>, u64)>,
    /// How many reports there were.
    pub serial: u64,
}

/// Runs of undecoded ids that FEEDBACK can name (wire.md section 5).
pub(crate) const MAX_RUNS: usize = 32;
/// Regions beyond them that it can tell of.
pub(crate) const MAX_REGIONS: usize = 63;

impl Report {
    /// Undecoded ids below `limit`, as far as they were named.
    pub fn undecoded_below(&self, limit: SourceId) -> u64 {
        self.undecoded.iter().map(|run| run.end.0.min(limit.0).saturating_sub(run.start.0)).sum()
    }

    /// Deficit of the ids below `settled`: what is lacking whatever becomes of the packets still under way.
    ///
    /// The receiver's rows are credited to the settled part, so this is a lower bound.
    pub fn settled_deficit(&self, settled: SourceId) -> u64 {
        let below = self.undecoded_below(settled);
        self.deficit.saturating_sub(self.undecoded_below(self.end) - below).min(below)
    }

    /// Takes the memory for as many regions as can be told of.
    pub(crate) fn reserve_regions(&mut self) {
        self.regions.reserve(MAX_REGIONS.saturating_sub(self.regions.len()));
    }

    /// One past the highest id seen.
    pub fn seen(&self) -> SourceId {
        self.regions.last().map_or(self.end, |(region, _)| region.end)
    }

    /// The lowest undecoded id, if it is below `limit`.
    pub fn first_gap(&self, limit: SourceId) -> Option<SourceId> {
        self.undecoded.first().map(|run| run.start).filter(|&id| id < limit)
    }
}

/// Everything a policy may know.
#[derive(Debug)]
pub struct CodingContext<'a> {
    /// The moment of the slot.
    pub now: Time,
    /// Oldest source symbol that the peer may lack.
    pub base: SourceId,
    /// First source symbol whose first transmission's fate is open.
    pub settled: SourceId,
    /// One past the newest source symbol sent.
    pub sent: SourceId,
    /// What the peer said.
    pub report: &'a Report,
    /// Lowest source symbol that is lost, not known to be decoded, and not under way again.
    pub lost: Option<SourceId>,
    /// Repairs under way in the order of sending; some entries are blank ([`RepairInFlight::is_blank`]).
    pub in_flight: &'a [RepairInFlight],
    /// The path's loss.
    pub loss: LossEstimate,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Source symbols wait to be sent.
    pub backlog: bool,
    /// The sender has been limited by the path rather than by the application for the last round trip.
    pub saturated: bool,
    /// Mean time between source symbols.
    pub source_interval: Duration,
    /// When the newest source symbol was sent.
    pub last_source: Time,
    /// Longest span that the peer decodes.
    pub max_span: u16,
    /// How long the oldest symbol that the peer may lack has been out; zero where it reported nothing
    /// lacking.
    pub oldest: Duration,
    /// Proactive repair over source bytes that must not be exceeded, over any second.
    pub max_overhead: f64,
    /// How late data may be, if the user says so.
    pub target: Option<Target>,
}

impl CodingContext<'_> {
    /// The newest span of at most `max` symbols that are sent and may be lacking; `None` when there is none.
    pub fn newest_span(&self, max: u16) -> Option<(SourceId, u16)> {
        let first = self.base.0.max(self.sent.0.saturating_sub(u64::from(max)));
        let count = u16::try_from(self.sent.0.saturating_sub(first)).ok().filter(|&count| count > 0)?;
        Some((SourceId(first), count))
    }

    /// The span for a repair of the gap at `gap`: what is settled from there on.
    pub fn gap_span(&self, gap: SourceId) -> u16 {
        let count = self.settled.0.saturating_sub(gap.0).clamp(1, u64::from(self.max_span));
        count as u16
    }

    /// Repairs under way that can be expected to help the gap at the beginning of `span`, and symbols of the
    /// span that were sent again.
    ///
    /// A repair on feedback counts in full. Proactive ones mix newer source symbols too, some of which will
    /// be lost: only what they bring beyond those expected losses counts.
    pub fn under_way_for(&self, span: Range<SourceId>) -> u64 {
        let covering = self
            .in_flight
            .iter()
            .filter(|repair| repair.covers(span.start) || (repair.count == 1 && span.contains(&repair.first)));
        let (answers, proactive) =
            covering.fold(
                (0, 0),
                |(answers, proactive), repair| {
                    if repair.on_feedback { (answers + 1, proactive) } else { (answers, proactive + 1) }
                },
            );
        let open = self.sent.0.saturating_sub(self.settled.0) as f64;
        let surplus = f64::from(proactive) * (1.0 - self.loss.rate) - open * self.loss.rate;
        answers + surplus.max(0.0) as u64
    }
}

/// When and over what to send repair.
pub trait RedundancyPolicy: Send + fmt::Debug {
    /// The source symbol `cx.sent - 1` was just sent for the first time.
    fn on_source_sent(&mut self, _cx: &CodingContext<'_>) {}
    /// The first transmission of a source symbol was lost.
    fn on_source_lost(&mut self, _id: SourceId) {}
    /// The fate of a coded repair is known.
    fn on_repair_settled(&mut self, _repair: &RepairInFlight, _arrived: bool) {}
    /// A slot is free: the repair worth sending now, which is then sent. Must be cheap.
    fn next_repair(&mut self, cx: &CodingContext<'_>) -> Option<Repair>;
    /// What it does for the target that the user gave, once it knows enough of the path.
    fn plan(&self) -> Option<&Plan> {
        None
    }
    /// When to ask again although nothing arrived and nothing was sent.
    fn poll_timeout(&self, _cx: &CodingContext<'_>) -> Option<Time> {
        None
    }
}

/// Which policy to run: what a user writes after `--redundancy`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Redundancy {
    /// Plain retransmission.
    None,
    /// One repair after every `spacing - 1` source symbols, evenly placed.
    Every {
        /// Packets per repair, that repair included; real, above 1.
        spacing: f64,
        /// Whether reported deficits are repaired too. Without, nothing is guaranteed: for experiments.
        closed_loop: bool,
    },
    /// Blocks of `k` source symbols with `r` repairs each.
    Block {
        /// Source symbols in a generation.
        k: u16,
        /// Repairs sent with it.
        r: u16,
    },
    /// Chosen by what is measured.
    #[default]
    Adaptive,
    /// A policy from outside this crate; no text stands for it.
    Custom(Custom),
}

/// A policy that somebody else wrote, to be compared with ours in the same connection.
#[derive(Clone, Copy, Debug)]
pub struct Custom {
    /// Tells it from others.
    pub name: &'static str,
    /// Makes it, once for each lane.
    pub build: fn(parameter: f64) -> Box<dyn RedundancyPolicy>,
    /// What `build` is called with.
    pub parameter: f64,
}

impl PartialEq for Custom {
    /// By name: functions have no identity that could be compared.
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.parameter) == (other.name, other.parameter)
    }
}

impl Redundancy {
    pub(crate) fn build(self) -> Box<dyn RedundancyPolicy> {
        match self {
            Self::None => Box::new(NoRedundancy),
            Self::Every { spacing, closed_loop } => Box::new(Every::new(spacing, closed_loop)),
            Self::Block { k, r } => Box::new(Block::new(k, r)),
            Self::Adaptive => Box::new(Adaptive::default()),
            Self::Custom(custom) => (custom.build)(custom.parameter),
        }
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Every { spacing, closed_loop: true } => write!(f, "every:{spacing}"),
            Self::Every { spacing, closed_loop: false } => write!(f, "every:{spacing},open"),
            Self::Block { k, r } => write!(f, "block:{k},{r}"),
            Self::Adaptive => f.write_str("adaptive"),
            Self::Custom(Custom { name, parameter, .. }) => write!(f, "{name}:{parameter}"),
        }
    }
}

/// A text that is no redundancy policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRedundancy(String);

impl fmt::Display for BadRedundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "bad redundancy {:?}; known: none, every:5 (one packet in 5 is repair; above 1), every:5,open (no feedback), block:32,8 (32 source and 8 repair symbols; at most 255 together), adaptive",
            self.0
        )
    }
}

impl core::error::Error for BadRedundancy {}

impl FromStr for Redundancy {
    type Err = BadRedundancy;

    fn from_str(text: &str) -> Result<Self, BadRedundancy> {
        let bad = || BadRedundancy(text.to_owned());
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "none" if rest.is_empty() => Ok(Self::None),
            "adaptive" if rest.is_empty() => Ok(Self::Adaptive),
            "every" => {
                let (number, closed_loop) = match rest.strip_suffix(",open") {
                    Some(number) => (number, false),
                    None => (rest, true),
                };
                let spacing: f64 = number.parse().map_err(|_| bad())?;
                if spacing.is_finite() && spacing > 1.0 { Ok(Self::Every { spacing, closed_loop }) } else { Err(bad()) }
            }
            "block" => {
                let (k, r) = rest.split_once(',').ok_or_else(bad)?;
                let (k, r): (u16, u16) = (k.parse().map_err(|_| bad())?, r.parse().map_err(|_| bad())?);
                if k >= 1 && k.saturating_add(r) <= 255 { Ok(Self::Block { k, r }) } else { Err(bad()) }
            }
            _ => Err(bad()),
        }
    }
}
