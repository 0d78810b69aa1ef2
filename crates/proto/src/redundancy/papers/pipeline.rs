//! Pipeline coding (Ageneau, Boukhatem and Gerla, "Fairness Evaluation of Pipeline Coded and non Coded TCP
//! Flows", section I; after Chen and others, "Pipeline network coding for multicast streams", 2010).
//!
//! A source symbol joins the open generation as soon as it can leave, and a random combination of the whole
//! generation so far leaves in its place. So no symbol waits for a generation to fill. R - 1 further
//! combinations per symbol follow; the fraction is carried. Spans are nested, and the lane slides: a receiver
//! decodes each symbol as soon as enough combinations arrived.
//!
//! A generation is closed when it has G symbols. It is also closed when source symbols pause
//! ([`CodingContext::pause`]): then the fraction that it still owes is rounded up, and what was sent too much
//! is owed less by the generations after it. Invariant: a combination mixes symbols of one generation only.

use core::fmt;

use tidewire_codec::SourceId;
use tidewire_model::sphinx::MAX_LOSS;

use crate::Time;
use crate::redundancy::{CodingContext, ProactivePolicy, Repair};

/// ComboCoding's margin beyond the least ratio: the paper prints the ratio as `1.4 + 1/(1-p)` (section II-A),
/// which is 2.4 without loss. Without the 1 it is 1.4, near the 1.25 to 1.5 that the paper calls high.
const COMBO: f64 = 0.4;

/// The text of [`PipelineBlocks::systematic`].
const SYSTEMATIC: &str = "systematic";

/// Maximum number of symbols of a generation (the largest of the paper, section II-A).
pub(crate) const MOST_SYMBOLS: u16 = 64;
/// Maximum of [`Ratio::Fixed`]. Chosen: above the 2.4 of ComboCoding's printed rule.
pub(crate) const MOST_RATIO: f64 = 4.0;

/// What the text of a pipeline may say.
pub(crate) const PIPELINE_RANGE: &str = "pipeline:G,R takes G from 1 to 64 symbols, and R from 1 to 4 or one of min, \
                                         combo, combo-printed and adaptive; ,systematic may follow";

/// The parameters of the policy `pipeline`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PipelineBlocks {
    /// Source symbols of a generation, 1 to 64.
    pub symbols: u16,
    /// Packets per source symbol.
    pub ratio: Ratio,
    /// Whether source symbols leave themselves, and only the further packets are combinations.
    pub systematic: bool,
}

/// Packets per source symbol. All but `Fixed` and `ComboPrinted` keep to
/// [`CodingLimits::max_overhead`](crate::redundancy::CodingLimits::max_overhead).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Ratio {
    /// This many, 1 to 4.
    Fixed(f64),
    /// `1/(1-p)` at the loss rate p: the least that replaces the losses on average (section II-A).
    Least,
    /// `0.4 + 1/(1-p)`: ComboCoding's rule as it was probably meant.
    Combo,
    /// `1.4 + 1/(1-p)`: ComboCoding's rule as the paper prints it (section II-A).
    ComboPrinted,
    /// As many as the planner computes.
    Planned,
}

impl Ratio {
    /// The ratios that have a name.
    const NAMED: [(&'static str, Self); 4] = [
        ("min", Self::Least),
        ("combo", Self::Combo),
        ("combo-printed", Self::ComboPrinted),
        ("adaptive", Self::Planned),
    ];

    /// Combinations per source symbol beyond the first packet.
    fn extra(self, cx: &CodingContext<'_>) -> f64 {
        let arrives = 1.0 - cx.path.loss.rate.clamp(0.0, MAX_LOSS);
        let measured = match self {
            Self::Fixed(ratio) => return ratio - 1.0,
            Self::ComboPrinted => return COMBO + 1.0 / arrives,
            Self::Least => 1.0 / arrives - 1.0,
            Self::Combo => COMBO + 1.0 / arrives - 1.0,
            Self::Planned => cx.planned.share,
        };
        measured.min(cx.limits.max_overhead)
    }
}

impl PipelineBlocks {
    /// Parses `G,R` or `G,R,systematic`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (symbols, rest) = text.split_once(',')?;
        let (ratio, systematic) = match rest.split_once(',') {
            None => (rest, false),
            Some((ratio, SYSTEMATIC)) => (ratio, true),
            Some(_) => return None,
        };
        let symbols = symbols.parse().ok().filter(|symbols| (1..=MOST_SYMBOLS).contains(symbols))?;
        let named = Ratio::NAMED.iter().find(|(name, _)| *name == ratio).map(|&(_, ratio)| ratio);
        let fixed = || ratio.parse().ok().filter(|ratio| (1.0..=MOST_RATIO).contains(ratio)).map(Ratio::Fixed);
        Some(Self { symbols, ratio: named.or_else(fixed)?, systematic })
    }
}

impl fmt::Display for PipelineBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pipeline:{},", self.symbols)?;
        match (self.ratio, Ratio::NAMED.iter().find(|(_, ratio)| *ratio == self.ratio)) {
            (Ratio::Fixed(ratio), _) => write!(f, "{ratio}")?,
            (_, named) => f.write_str(named.map_or("", |(name, _)| name))?,
        }
        if self.systematic { write!(f, ",{SYSTEMATIC}") } else { Ok(()) }
    }
}

/// The policy; see the module.
#[derive(Debug)]
pub(crate) struct Pipeline {
    blocks: PipelineBlocks,
    /// The newest generation: its first symbol, one past its last, and whether no further symbol joins it.
    first: SourceId,
    end: SourceId,
    is_closed: bool,
    /// Combinations that must leave: those in place of source symbols, and those of a generation that a pause
    /// closed.
    owed: u32,
    /// Further combinations that are due. Below zero if a pause rounded up.
    extra: f64,
}

impl Pipeline {
    /// `blocks` must be within the ranges of its fields.
    pub(crate) fn new(blocks: PipelineBlocks) -> Self {
        Self { blocks, first: SourceId(0), end: SourceId(0), is_closed: true, owed: 0, extra: 0.0 }
    }

    /// When the open generation is closed if no symbol joins it.
    fn deadline(&self, cx: &CodingContext<'_>) -> Option<Time> {
        (!self.is_closed && !cx.flow.backlog).then(|| cx.flow.last + cx.pause())
    }

    /// Closes the generation after a pause. What it still owes is sent.
    fn close(&mut self) {
        self.is_closed = true;
        if self.extra > ROUNDING {
            self.owed += self.extra.ceil() as u32;
            self.extra -= self.extra.ceil();
        }
    }
}

/// Tolerance of sums of ratios, so that rounding does not delay a combination by a symbol.
const ROUNDING: f64 = 1e-9;

impl ProactivePolicy for Pipeline {
    fn withholds_sources(&self) -> bool {
        !self.blocks.systematic
    }

    fn on_source_sent(&mut self, cx: &CodingContext<'_>) {
        if self.is_closed {
            self.first = SourceId(cx.sent.0.saturating_sub(1));
        }
        self.end = cx.sent;
        self.owed += u32::from(!self.blocks.systematic);
        self.extra += self.blocks.ratio.extra(cx);
        let count = self.end.since(self.first);
        self.is_closed = count >= u64::from(self.blocks.symbols.min(cx.limits.max_span));
    }

    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair> {
        if self.deadline(cx).is_some_and(|deadline| deadline <= cx.now) {
            self.close();
        }
        let is_extra = self.owed == 0;
        if is_extra && self.extra + ROUNDING < 1.0 {
            return None;
        }
        // The peer needs no combination of symbols below the base.
        let first = self.first.max(cx.base);
        let count = u16::try_from(self.end.since(first)).ok().filter(|&count| count > 0);
        let Some(count) = count else {
            (self.owed, self.extra) = (0, self.extra.min(0.0));
            return None;
        };
        if is_extra {
            self.extra -= 1.0;
        } else {
            self.owed -= 1;
        }
        Some(Repair::Coded { first, count, row: None, on_feedback: false })
    }

    fn poll_timeout(&self, cx: &CodingContext<'_>) -> Option<Time> {
        self.deadline(cx).filter(|_| cx.base < self.end && self.extra > ROUNDING)
    }
}

#[cfg(test)]
mod tests;
