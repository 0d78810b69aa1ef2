//! All policies, and the argument of `--redundancy`: a proactive policy and, after a comma, an answer policy.
//!
//! The command line, scenario files and the wire use this parser. [`super::Policies`] builds the two
//! policies.

use core::fmt;
use core::str::FromStr;

use super::LONGEST_SPAN;
use super::answer::{AnswerPolicy, AsPlanned, Deficit, Open, Resend};
use super::papers::{
    BUCKET_RANGE, Bucket, BucketBlocks, Icm, PIPELINE_RANGE, Pipeline, PipelineBlocks, Ratio, Rcdp, RcdpBlocks, Sphinx,
    SphinxBlocks, Trigger,
};
use super::proactive::{Adaptive, Block, Every, NoRepair, ProactivePolicy};
use crate::Custom;

/// A pair of policies: proactive repair and answers to feedback. Every combination is valid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Redundancy {
    /// Policy for repairs that are sent before a loss is known.
    pub proactive: Proactive,
    /// Policy for answers to reported losses.
    pub answer: Answer,
}

impl Redundancy {
    /// Plain retransmission.
    pub const ARQ: Self = Self { proactive: Proactive::None, answer: Answer::Resend };
    /// As much repair as the path and the target need.
    pub const ADAPTIVE: Self = Self { proactive: Proactive::Adaptive, answer: Answer::Planned };

    /// Combines the proactive policy with its usual answer policy.
    pub const fn new(proactive: Proactive) -> Self {
        let answer = match proactive {
            Proactive::None => Answer::Resend,
            Proactive::Adaptive => Answer::Planned,
            // These policies send their own answers.
            Proactive::Block { .. } | Proactive::Rcdp(_) => Answer::Open,
            Proactive::Sphinx(SphinxBlocks { threshold: None, .. }) => Answer::Icm(Trigger::Settled),
            Proactive::Sphinx(_) => Answer::Icm(Trigger::PRINTED),
            Proactive::Every { .. } | Proactive::Pipeline(_) | Proactive::Bucket(_) | Proactive::Custom(_) => {
                Answer::Deficit
            }
        };
        Self { proactive, answer }
    }

    /// One proactive repair in every `spacing` packets, and as many answers as the reported deficit.
    /// `spacing` must be above 1.
    pub const fn every(spacing: f64) -> Self {
        Self::new(Proactive::Every { spacing })
    }

    pub(super) fn needs_plan(self) -> bool {
        let is_planned = match self.proactive {
            Proactive::Pipeline(blocks) => blocks.ratio == Ratio::Planned,
            proactive => proactive == Proactive::Adaptive,
        };
        is_planned || self.answer == Answer::Planned
    }
}

impl Default for Redundancy {
    fn default() -> Self {
        Self::ADAPTIVE
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.proactive)?;
        if self.answer == Self::new(self.proactive).answer { Ok(()) } else { write!(f, ",{}", self.answer) }
    }
}

/// Which proactive policy to run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Proactive {
    /// No proactive repair.
    None,
    /// One repair after every `spacing - 1` source symbols, evenly placed.
    Every {
        /// Packets per repair, the repair included: a real number above 1.
        spacing: f64,
    },
    /// Generations of `k` source symbols with `r` repairs each. This policy sends its own answers, per
    /// generation.
    Block {
        /// Source symbols in a generation.
        k: u16,
        /// Proactive repairs per generation.
        r: u16,
    },
    /// Blocks whose repairs follow the measured loss rate.
    Sphinx(SphinxBlocks),
    /// Blocks whose repairs are sent until the peer has recovered them. This policy sends its own answers.
    Rcdp(RcdpBlocks),
    /// Generations that are coded while they grow: each source symbol leaves as a combination.
    Pipeline(PipelineBlocks),
    /// Blocks of what is ready to be sent, as combinations.
    Bucket(BucketBlocks),
    /// As much repair as the planner computes.
    Adaptive,
    /// A policy from outside this crate.
    Custom(Custom<dyn ProactivePolicy>),
}

impl Proactive {
    pub(super) fn build(self) -> Box<dyn ProactivePolicy> {
        match self {
            Self::None => Box::new(NoRepair),
            Self::Every { spacing } => Box::new(Every::new(spacing)),
            Self::Block { k, r } => Box::new(Block::new(k, r)),
            Self::Sphinx(blocks) => Box::new(Sphinx::new(blocks)),
            Self::Rcdp(blocks) => Box::new(Rcdp::new(blocks)),
            Self::Pipeline(blocks) => Box::new(Pipeline::new(blocks)),
            Self::Bucket(blocks) => Box::new(Bucket::new(blocks)),
            Self::Adaptive => Box::new(Adaptive::default()),
            Self::Custom(custom) => custom.build(),
        }
    }
}

impl fmt::Display for Proactive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Every { spacing } => write!(f, "every:{spacing}"),
            Self::Block { k, r } => write!(f, "block:{k},{r}"),
            Self::Sphinx(blocks) => blocks.fmt(f),
            Self::Rcdp(blocks) => blocks.fmt(f),
            Self::Pipeline(blocks) => blocks.fmt(f),
            Self::Bucket(blocks) => blocks.fmt(f),
            Self::Adaptive => f.write_str("adaptive"),
            Self::Custom(custom) => custom.fmt(f),
        }
    }
}

/// Which answer policy to run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// Reported losses are not answered. After a silence, the oldest symbol is still sent again. For
    /// experiments.
    Open,
    /// Each lost source symbol is retransmitted.
    Resend,
    /// Each reported deficit is answered with the same number of repairs.
    Deficit,
    /// Each reported deficit is answered with the same number of repairs plus the planner's margin. Used with
    /// `adaptive`.
    Planned,
    /// The missing source symbols of a block that cannot be decoded are sent again, with repairs beside them.
    /// Used with `sphinx`; the proactive policy must close generations.
    Icm(Trigger),
    /// A policy from outside this crate.
    Custom(Custom<dyn AnswerPolicy>),
}

impl Answer {
    /// Names that a user can write. Each is also the [`Display`](fmt::Display) text of the answer policy.
    const NAMED: [(&'static str, Self); 4] =
        [("open", Self::Open), ("resend", Self::Resend), ("deficit", Self::Deficit), ("planned", Self::Planned)];

    /// The answer policy with this name.
    fn parse(text: &str) -> Option<Self> {
        let named = Self::NAMED.iter().find(|(name, _)| *name == text).map(|&(_, answer)| answer);
        named.or_else(|| Trigger::parse(text).map(Self::Icm))
    }

    pub(super) fn build(self) -> Box<dyn AnswerPolicy> {
        match self {
            Self::Open => Box::new(Open),
            Self::Resend => Box::new(Resend),
            Self::Deficit => Box::new(Deficit::default()),
            Self::Planned => Box::new(AsPlanned::default()),
            Self::Icm(trigger) => Box::new(Icm::new(trigger)),
            Self::Custom(custom) => custom.build(),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Custom(custom) => return custom.fmt(f),
            Self::Icm(trigger) => return trigger.fmt(f),
            _ => {}
        }
        let named = Self::NAMED.iter().find(|(_, answer)| answer == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

/// The text does not name a redundancy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRedundancy(String);

impl fmt::Display for BadRedundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = match self.0.split([':', ',']).next() {
            Some("pipeline") => Some(PIPELINE_RANGE),
            Some("bucket") => Some(BUCKET_RANGE),
            _ => None,
        };
        if let Some(range) = range {
            return write!(f, "bad redundancy {:?}; {range}", self.0);
        }
        write!(
            f,
            "bad redundancy {:?}; known: none, every:5 (one packet in 5 is repair; above 1), pipeline:16,1.25, adaptive, \
             and block:32,8, sphinx:100, sphinx:100,0.5, rcdp:84, rcdp:84,basic or bucket:15,1.25 in generations; each may be followed by what \
             answers a loss: ,open (nothing), ,resend, ,deficit or ,planned, and after sphinx ,icm, ,icm:2/3 or \
             ,block-sack",
            self.0
        )
    }
}

impl core::error::Error for BadRedundancy {}

impl FromStr for Redundancy {
    type Err = BadRedundancy;

    fn from_str(text: &str) -> Result<Self, BadRedundancy> {
        let ending = text.rsplit_once(',').and_then(|(proactive, name)| Some((proactive, Answer::parse(name)?)));
        let (proactive, answer) = ending.map_or((text, None), |(proactive, answer)| (proactive, Some(answer)));
        let proactive = parse_proactive(proactive).ok_or_else(|| BadRedundancy(text.to_owned()))?;
        let usual = Self::new(proactive);
        Ok(Self { answer: answer.unwrap_or(usual.answer), ..usual })
    }
}

fn parse_proactive(text: &str) -> Option<Proactive> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    match name {
        "none" if rest.is_empty() => Some(Proactive::None),
        "adaptive" if rest.is_empty() => Some(Proactive::Adaptive),
        "every" => {
            let spacing: f64 = rest.parse().ok()?;
            (spacing.is_finite() && spacing > 1.0).then_some(Proactive::Every { spacing })
        }
        "block" => parse_block(rest).map(|(k, r)| Proactive::Block { k, r }),
        "sphinx" => SphinxBlocks::parse(rest).map(Proactive::Sphinx),
        "rcdp" => RcdpBlocks::parse(rest).map(Proactive::Rcdp),
        "bucket" => BucketBlocks::parse(rest).map(Proactive::Bucket),
        "pipeline" => PipelineBlocks::parse(rest).map(Proactive::Pipeline),
        _ => None,
    }
}

/// Parses `K,R`: source symbols and repairs of a generation.
pub(crate) fn parse_block(text: &str) -> Option<(u16, u16)> {
    let (k, r) = text.split_once(',')?;
    let (k, r) = (k.parse().ok()?, r.parse().ok()?);
    ((1..=LONGEST_SPAN).contains(&k) && r <= LONGEST_SPAN).then_some((k, r))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_pair_has_a_text_and_the_usual_answer_is_not_written() {
        for proactive in [
            "none",
            "every:5",
            "every:2.5",
            "adaptive",
            "block:32,8",
            "sphinx:100",
            "sphinx:256,0.5",
            "sphinx:256,0.5,floor",
            "rcdp:84",
            "rcdp:1024,basic",
            "pipeline:16,1.25",
            "pipeline:1,1",
            "pipeline:64,4,systematic",
            "pipeline:64,min",
            "pipeline:64,combo",
            "pipeline:64,combo-printed,systematic",
            "pipeline:32,adaptive",
            "bucket:15,1.25",
            "bucket:64,1,fixed",
        ] {
            let usual: Redundancy = proactive.parse().expect(proactive);
            assert_eq!(usual.to_string(), proactive);
            for name in ["open", "resend", "deficit", "planned", "icm", "icm:1/3", "icm:2/3", "block-sack"] {
                let pair: Redundancy = format!("{proactive},{name}").parse().expect(proactive);
                assert_eq!((pair.proactive, Some(pair.answer)), (usual.proactive, Answer::parse(name)));
                assert_eq!(pair.to_string().parse(), Ok(pair));
            }
        }
        for bad in [
            "",
            "most",
            "every",
            "every:1",
            "every:inf",
            "every:5,",
            "every:5,never",
            "block:32",
            "block:0,8",
            "none:3",
            "sphinx",
            "sphinx:0",
            "sphinx:1025",
            "sphinx:100,1",
            "sphinx:100,nan",
            "sphinx:100,floor",
            "sphinx:100,0.5,ceil",
            "sphinx:100,icm:2",
            "rcdp",
            "rcdp:0",
            "rcdp:0,basic",
            "rcdp:1025",
            "rcdp:basic",
            "rcdp:84,simple",
            "rcdp:84,basic,basic",
            "open",
        ] {
            assert!(bad.parse::<Redundancy>().is_err(), "{bad}");
        }
        for bad in [
            "pipeline",
            "pipeline:16",
            "pipeline:0,1.25",
            "pipeline:65,1.25",
            "pipeline:16,0.99",
            "pipeline:16,4.01",
            "pipeline:16,nan",
            "pipeline:16,most",
            "pipeline:16,1.25,basic",
            "pipeline:16,1.25,systematic,systematic",
        ] {
            let error = bad.parse::<Redundancy>().expect_err(bad).to_string();
            assert!(error.contains("G from 1 to 64 symbols, and R from 1 to 4"), "{error}");
        }
        for bad in ["bucket", "bucket:0,1", "bucket:65,1", "bucket:15,0.9", "bucket:15,1.51", "bucket:15,1,loose"] {
            let error = bad.parse::<Redundancy>().expect_err(bad).to_string();
            assert!(error.contains("CAP from 1 to 64 symbols, and GAMMA from 1 to 1.5"), "{error}");
        }
    }
}
