//! Redundancy: which repair, if any, the next free slot of a lane carries.
//!
//! Two policies of a lane decide. The [`answer`] says what to send for what the peer reported; the
//! [`proactive`] policy says what to send before anything is reported. The [`plan`] room works out how much
//! that should be. Each policy is a function of its [`CodingContext`] and its own state, so that a table can
//! test it. The connection sends at once what a policy returns, computed from the newest window; nothing
//! coded is ever queued.
//!
//! A user chooses both policies with a [`Redundancy`]; `Policies` holds them for one lane and asks them in
//! order.

pub mod answer;
mod choice;
pub mod plan;
pub mod proactive;
mod report;

use core::ops::Range;
use core::time::Duration;

use tidewire_codec::{Code, SourceId};

use crate::Time;
use crate::path::LossEstimate;

pub use answer::{Answer, AnswerPolicy};
pub(crate) use choice::parse_block;
pub use choice::{BadRedundancy, Redundancy};
pub use plan::{Plan, Planned, Planner, Target};
pub use proactive::{Closed, Proactive, ProactivePolicy};
pub use report::Report;
pub(crate) use report::{MAX_REGIONS, MAX_RUNS};

/// Longest span of a repair unless a user says otherwise, in symbols: what a receiver accepts by default
/// (wire.md section 2).
pub const DEFAULT_SPAN: u16 = 256;

/// What a policy wants in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The source symbol itself once more.
    Resend(SourceId),
    /// A combination of `count` source symbols from `first`.
    Coded {
        /// First source symbol of the span.
        first: SourceId,
        /// Symbols in the span.
        count: u16,
        /// This row of the lane's code over a whole generation. `None`: a random combination, whose key the
        /// lane counts.
        row: Option<u16>,
        /// It answers a reported deficit; else it is proactive.
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
    /// Symbols in its span; a source symbol that is sent again counts as a span of one.
    pub count: u16,
    /// It answers a reported deficit.
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

/// Everything a policy may know.
#[derive(Clone, Copy, Debug)]
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
    /// Proactive repair over source symbols that must not be exceeded, over any second.
    pub max_overhead: f64,
    /// How late data may be, if the user says so.
    pub target: Option<Target>,
    /// The lane's code, of which a generation has rows.
    pub code: Code,
    /// What the lane's planner decided; [`Planned::NONE`] where the lane has no planner.
    pub planned: &'a Planned,
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

    /// Source symbols whose fate is open: what is sent in about a round trip.
    pub fn flying(&self) -> u64 {
        self.sent.0.saturating_sub(self.settled.0)
    }

    /// Repairs under way that can be expected to help the gap at the beginning of `span`, and symbols of the
    /// span that were sent again.
    ///
    /// An answer counts in full. Proactive repairs mix newer source symbols too, some of which will be lost:
    /// they count only with what they bring beyond those expected losses.
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
        let open = self.flying() as f64;
        let surplus = f64::from(proactive) * (1.0 - self.loss.rate) - open * self.loss.rate;
        answers + surplus.max(0.0) as u64
    }
}

/// The policies of one lane, with the planner that both read.
#[derive(Debug)]
pub(crate) struct Policies {
    /// `None` where neither policy needs a plan.
    planner: Option<Planner>,
    proactive: Box<dyn ProactivePolicy>,
    answer: Box<dyn AnswerPolicy>,
}

impl Policies {
    pub fn new(redundancy: Redundancy) -> Self {
        Self {
            planner: redundancy.needs_plan().then(Planner::default),
            proactive: redundancy.proactive.build(),
            answer: redundancy.answer.build(),
        }
    }

    /// The source symbol `cx.sent - 1` was just sent for the first time.
    pub fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        if let Some(planner) = &mut self.planner {
            planner.on_source_sent(cx);
        }
        let cx = with_plan(cx, self.planner.as_ref());
        self.proactive.on_source_sent(&cx);
        self.answer.on_source_sent(&cx);
    }

    /// The fate of a source symbol's first transmission is known.
    pub fn on_source_settled(&mut self, id: SourceId, arrived: bool) {
        self.proactive.on_source_settled(id, arrived);
        self.answer.on_source_settled(id, arrived);
    }

    /// The fate of a coded repair is known.
    pub fn on_repair_settled(&mut self, repair: &RepairInFlight, arrived: bool) {
        self.proactive.on_repair_settled(repair, arrived);
        self.answer.on_repair_settled(repair, arrived);
    }

    /// A slot is free: the repair worth sending now, which is then sent.
    pub fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        let cx = with_plan(cx, self.planner.as_ref());
        if let Some(repair) = self.answer.next(&cx) {
            self.proactive.on_answer(&cx, &repair);
            return Some(repair);
        }
        self.proactive.next(&cx)
    }

    /// A generation that was closed since this was last asked; asked after each call that may close one.
    pub fn poll_closed(&mut self) -> Option<Closed> {
        self.proactive.poll_closed()
    }

    /// What it does for the target, once it knows enough of the path.
    pub fn plan(&self) -> Option<&Plan> {
        self.planner.as_ref().and_then(|planner| planner.planned().plan.as_ref())
    }

    /// When to ask again although nothing arrived and nothing was sent.
    pub fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        let cx = with_plan(cx, self.planner.as_ref());
        self.proactive.poll_timeout(&cx).into_iter().chain(self.answer.poll_timeout(&cx)).min()
    }
}

/// The context with what the planner decided in it.
fn with_plan<'a>(cx: &CodingContext<'a>, planner: Option<&'a Planner>) -> CodingContext<'a> {
    CodingContext { planned: planner.map_or(&Planned::NONE, Planner::planned), ..*cx }
}

/// A context for tests of policies: 100 source symbols sent, none settled, one sent each 960 us over 60 ms.
#[cfg(test)]
pub(crate) fn context(report: &Report, rate: f64, burst: f64, saturated: bool) -> CodingContext<'_> {
    CodingContext {
        now: Time::from_millis(1_000),
        base: SourceId(0),
        settled: SourceId(0),
        sent: SourceId(100),
        report,
        lost: None,
        in_flight: &[],
        loss: LossEstimate { upper: rate * 1.2, weight: 512.0, ..LossEstimate::settled(rate, burst) },
        rtt: Duration::from_millis(60),
        backlog: false,
        saturated,
        source_interval: Duration::from_micros(960),
        last_source: Time::from_millis(1_000),
        max_span: 256,
        oldest: Duration::ZERO,
        max_overhead: 0.5,
        target: None,
        code: Code::Cauchy,
        planned: &Planned::NONE,
    }
}
