//! Redundancy: decides which repair, if any, the next free slot of a lane carries.
//!
//! Each lane has two policies. The [`answer`] policy sends repairs for losses that the peer reported. The
//! [`proactive`] policy sends repairs before the peer reports anything. The [`plan`] module computes how much
//! repair is needed. Each policy is a function of its [`CodingContext`] and its own state, so a table can
//! test it. The connection sends what a policy returns at once, computed from the newest window. Coded
//! packets are never queued.
//!
//! A user chooses both policies with a [`Redundancy`]; the file `choice` lists all policies. `Policies` holds
//! the two policies of one lane and asks the answer policy first. `papers` has the policies of published
//! papers, for comparison.
//!
//! Each part uses only those before it in this list: the types of this file and `report`; `tally` and
//! `in_flight`; `open_blocks`, `known` and [`plan`]; [`proactive`] and [`answer`], of which neither uses the
//! other; `papers`; `choice`; `policies`.
//!
//! A peer decides how many blocks are open and how many repairs are in flight. So no policy walks over all of
//! them for a packet or a report: it looks at the blocks that something happened to.

pub mod answer;
mod choice;
mod in_flight;
mod known;
mod open_blocks;
mod papers;
pub mod plan;
mod policies;
pub mod proactive;
mod report;
mod tally;
mod tuning;

use core::ops::Range;
use core::time::Duration;

use tidewire_codec::{Code, SourceId};

use crate::Time;
use crate::path::LossEstimate;
use in_flight::Flying;
use tuning::TAIL_FRACTION;

pub use answer::AnswerPolicy;
pub(crate) use choice::parse_block;
pub use choice::{Answer, BadRedundancy, Proactive, Redundancy};
pub use in_flight::InFlight;
pub(crate) use open_blocks::{HasSpan, OpenBlocks};
pub(crate) use papers::{BUCKET_RANGE, PIPELINE_RANGE};
pub use papers::{BucketBlocks, PipelineBlocks, Ratio, RcdpBlocks, SphinxBlocks, Trigger};
pub use plan::{Plan, Planned, Planner, Target};
pub(crate) use policies::Policies;
pub use proactive::ProactivePolicy;
pub use report::Report;
pub(crate) use report::{MAX_REGIONS, MAX_RUNS};
pub(crate) use tuning::is_known_clean;

/// Default longest span of a repair, in symbols: the span that a receiver accepts by default (docs/wire.md
/// section 2).
pub(crate) const DEFAULT_SPAN: u16 = 256;

/// Longest span that the wire format allows, in symbols. If a peer allows less, generations are cut to that
/// length.
const LONGEST_SPAN: u16 = 1_024;

/// The packet that a policy wants to send in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repair {
    /// Send the source symbol again.
    Resend(SourceId),
    /// Send a combination of `count` source symbols that starts at `first`. If it ends beyond the newest
    /// source symbol, the lane first adds empty ones, which are not sent themselves.
    Coded {
        /// First source symbol of the span.
        first: SourceId,
        /// Symbols in the span.
        count: u16,
        /// The repair symbol of a whole generation. `None` means a random combination; the lane chooses its
        /// key by counting.
        row: Option<GenerationRow>,
        /// True if the repair answers a reported deficit; false if it is proactive.
        on_feedback: bool,
    },
}

/// Names a repair symbol of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationRow {
    /// The code. All repairs of a generation have the same one.
    pub code: Code,
    /// The key.
    pub key: u16,
}

impl GenerationRow {
    /// The code of a repair. Combinations that are not of a generation are random.
    pub(crate) fn code_of(row: Option<Self>) -> Code {
        row.map_or(Code::Rlc, |row| row.code)
    }
}

impl Repair {
    /// One past the newest source symbol that this repair can restore.
    pub fn end(&self) -> SourceId {
        match *self {
            Self::Resend(id) => id.next(),
            Self::Coded { first, count, .. } => first.plus(u64::from(count)),
        }
    }
}

/// A generation that is complete: no further symbol joins it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// First source symbol.
    pub first: SourceId,
    /// Source symbols in it.
    pub count: u16,
    /// The code of its repairs.
    pub code: Code,
    /// Number of repairs that the policy will send in any case, with keys from 0 up.
    pub repairs: u16,
}

/// A repair packet that was sent and is not yet known to be received or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairInFlight {
    /// Packet number.
    pub packet: u64,
    /// First source symbol of its span.
    pub first: SourceId,
    /// Symbols in its span. A retransmitted source symbol counts as a span of one.
    pub count: u16,
    /// Key of the repair symbol; 0 for a retransmitted source symbol.
    pub key: u16,
    /// True if the repair answers a reported deficit; false if it is proactive.
    pub on_feedback: bool,
}

impl RepairInFlight {
    /// Placeholder for a repair that is no longer in flight. It covers no symbol and answers no deficit.
    pub(crate) fn blank(packet: u64) -> Self {
        Self { packet, first: SourceId(u64::MAX), count: 0, key: 0, on_feedback: false }
    }

    /// Whether this entry is a placeholder.
    fn is_blank(&self) -> bool {
        self.count == 0
    }

    /// One past the newest symbol of its span.
    fn end(&self) -> SourceId {
        self.first.plus(self.count.into())
    }
}

/// All inputs of a policy.
#[derive(Clone, Copy, Debug)]
pub struct CodingContext<'a> {
    /// The time of the slot.
    pub now: Time,
    /// Oldest source symbol that the peer may not have decoded yet.
    pub base: SourceId,
    /// First source symbol whose first transmission is not yet known to be received or lost.
    pub settled: SourceId,
    /// One past the newest source symbol sent.
    pub sent: SourceId,
    /// The newest report of the peer.
    pub report: &'a Report,
    /// Lowest source symbol that is lost, is not known to be decoded, and has no retransmission in flight.
    pub lost: Option<SourceId>,
    /// Repairs in flight.
    pub in_flight: &'a InFlight,
    /// Time since the oldest symbol that the peer may lack was first sent; zero if the peer reported no gap.
    pub oldest: Duration,
    /// What is known about the path.
    pub path: PathState,
    /// How the application sends.
    pub flow: FlowState,
    /// What the policy must respect.
    pub limits: CodingLimits,
    /// The newest decision of the lane's planner; [`Planned::NONE`] if the lane has no planner.
    pub planned: &'a Planned,
}

/// What is known about the path.
#[derive(Clone, Copy, Debug)]
pub struct PathState {
    /// Loss estimate.
    pub loss: LossEstimate,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// True if the path, rather than the application, has limited the sender for the last round trip.
    pub saturated: bool,
    /// Full packets for which the window has room.
    pub room: u64,
    /// True if a probe timeout passed since the last acknowledgement.
    pub is_silent: bool,
}

/// How the application sends on a lane.
#[derive(Clone, Copy, Debug)]
pub struct FlowState {
    /// True if source symbols are waiting to be sent.
    pub backlog: bool,
    /// Further source symbols that the lane and the peer take now.
    pub credit: u64,
    /// Mean time between source symbols.
    pub interval: Duration,
    /// When the newest source symbol was sent.
    pub last: Time,
    /// Whether a symbol that is missing holds up the symbols behind it. False for a lane whose messages are
    /// delivered as soon as each is complete.
    pub in_order: bool,
    /// Whether the peer may lack a symbol that was sent, of a message that the application called important.
    pub important: bool,
}

/// What a policy must respect.
#[derive(Clone, Copy, Debug)]
pub struct CodingLimits {
    /// Longest span that the peer can decode.
    pub max_span: u16,
    /// Upper limit of proactive repairs per source symbol, within any second; within any four seconds on a
    /// lane with important messages.
    pub max_overhead: f64,
    /// Whether repairs of single symbols with long pauses between them may exceed `max_overhead`.
    pub protects_lone: bool,
    /// The user's latency target, if there is one.
    pub target: Option<Target>,
    /// The code of the lane's profile, for the repairs of a generation.
    pub code: Code,
    /// Whether the lane slides and its source symbols are not sent themselves
    /// ([`ProactivePolicy::withholds_sources`]). Such a symbol is settled when the fate of the first repair
    /// over it is known, and never lost.
    pub is_withheld: bool,
}

impl CodingContext<'_> {
    /// The newest span of at most `max` symbols that were sent and that the peer may lack. `None` if there is
    /// no such symbol.
    pub fn newest_span(&self, max: u16) -> Option<(SourceId, u16)> {
        let first = self.base.0.max(self.sent.0.saturating_sub(u64::from(max)));
        let count = u16::try_from(self.sent.0.saturating_sub(first)).ok().filter(|&count| count > 0)?;
        Some((SourceId(first), count))
    }

    /// Length of the span of a repair for the gap at `gap`: the settled symbols from `gap` on.
    pub fn gap_span(&self, gap: SourceId) -> u16 {
        let count = self.settled.0.saturating_sub(gap.0).clamp(1, u64::from(self.limits.max_span));
        count as u16
    }

    /// Source symbols that pause for so long have ended for now: an eighth of a round trip, or a quarter
    /// longer than usual where they are slow, at most half a round trip.
    pub fn pause(&self) -> Duration {
        (self.path.rtt / TAIL_FRACTION).max(self.flow.interval * 5 / 4).min(self.path.rtt / 2)
    }

    /// Number of source symbols in flight: about the number sent in one round trip.
    pub fn flying(&self) -> u64 {
        self.sent.0.saturating_sub(self.settled.0)
    }

    /// Number of packets in flight that are expected to help the gap at the beginning of `span`: repairs that
    /// cover it, and retransmitted symbols of the span.
    ///
    /// An answer counts in full. A proactive repair also mixes newer source symbols, some of which will be
    /// lost. Proactive repairs therefore count only as far as they exceed these expected losses. If source
    /// symbols are withheld, each newer symbol takes one of the proactive repairs.
    pub fn under_way_for(&self, span: Range<SourceId>) -> u64 {
        let Flying { answers, proactive } = self.in_flight.helping(span.clone());
        let open = if self.limits.is_withheld {
            let end = self.in_flight.newest_end(span).unwrap_or(self.settled);
            end.max(self.settled).since(self.settled) as f64
        } else {
            self.flying() as f64 * self.path.loss.rate
        };
        let surplus = proactive as f64 * (1.0 - self.path.loss.rate) - open;
        answers + surplus.max(0.0) as u64
    }
}

/// A context for tests of policies: 100 source symbols sent, none settled. Symbols are 960 us apart, and the
/// round trip is 60 ms.
#[cfg(test)]
pub(crate) fn context(report: &Report, rate: f64, burst: f64, saturated: bool) -> CodingContext<'_> {
    CodingContext {
        now: Time::from_millis(1_000),
        base: SourceId(0),
        settled: SourceId(0),
        sent: SourceId(100),
        report,
        lost: None,
        in_flight: InFlight::of(&[]),
        oldest: Duration::ZERO,
        path: PathState {
            loss: LossEstimate { upper: rate * 1.2, weight: 512.0, ..LossEstimate::settled(rate, burst) },
            rtt: Duration::from_millis(60),
            saturated,
            room: 100,
            is_silent: false,
        },
        flow: FlowState {
            backlog: false,
            credit: 1_000,
            interval: Duration::from_micros(960),
            last: Time::from_millis(1_000),
            in_order: true,
            important: false,
        },
        limits: CodingLimits {
            max_span: 256,
            max_overhead: 0.5,
            protects_lone: true,
            target: None,
            code: Code::Cauchy,
            is_withheld: false,
        },
        planned: &Planned::NONE,
    }
}
