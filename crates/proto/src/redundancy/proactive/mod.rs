//! Proactive policies: the repairs that a lane sends before a loss is known. One file for each policy.

mod adaptive;
mod block;
mod bucket;
mod cap;
mod every;
mod none;
mod pipeline;
mod rcdp;
mod sphinx;

use core::fmt;

use tidewire_codec::{Code, SourceId};

use super::{CodingContext, Repair, RepairInFlight};
use crate::{Custom, Time};

pub use adaptive::Adaptive;
pub use block::Block;
pub(crate) use bucket::BUCKET_RANGE;
pub use bucket::{Bucket, BucketBlocks};
pub use every::Every;
pub use none::NoRepair;
pub(crate) use pipeline::PIPELINE_RANGE;
pub use pipeline::{Pipeline, PipelineBlocks, Ratio};
pub use rcdp::{Rcdp, RcdpBlocks};
pub(in crate::redundancy) use sphinx::FLOOR;
pub use sphinx::{Sphinx, SphinxBlocks};

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

/// Decides when to send proactive repairs, and over which span.
pub trait ProactivePolicy: Send + fmt::Debug {
    /// Whether source symbols are not sent themselves, because repairs replace them. Each symbol must then be
    /// in the span of a repair of its own. Always the same for a policy.
    fn withholds_sources(&self) -> bool {
        false
    }
    /// Called when the source symbol `cx.sent - 1` was sent for the first time.
    fn on_source_sent(&mut self, _cx: &CodingContext<'_>) {}
    /// Called when the first transmission of a source symbol is known to be received or lost. A symbol that
    /// was declared lost can still be reported as received later.
    fn on_source_settled(&mut self, _id: SourceId, _arrived: bool) {}
    /// Called when a coded repair is known to be received or lost.
    fn on_repair_settled(&mut self, _repair: &RepairInFlight, _arrived: bool) {}
    /// Called when the slot is used for this answer. An answer can make a proactive repair unnecessary.
    fn on_answer(&mut self, _cx: &CodingContext<'_>, _answer: &Repair) {}
    /// Returns the repair to send in a free slot, when no answer is due. The caller must send it. This is
    /// called for each packet, so it must be cheap.
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair>;
    /// Returns, once, a generation that [`Self::on_source_sent`] or [`Self::next`] has just closed. Workers
    /// then compute its repairs in advance.
    fn poll_closed(&mut self) -> Option<Closed> {
        None
    }
    /// The time to ask again if nothing arrives and nothing is sent until then.
    fn poll_timeout(&self, _cx: &CodingContext<'_>) -> Option<Time> {
        None
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
