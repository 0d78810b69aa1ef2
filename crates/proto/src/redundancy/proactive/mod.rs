//! Proactive repair: what a lane sends before anything is known to be lost. One file for each policy.

mod adaptive;
mod block;
mod cap;
mod every;
mod none;

use core::fmt;

use tidewire_codec::SourceId;

use super::{CodingContext, Repair, RepairInFlight};
use crate::{Custom, Time};

pub use adaptive::Adaptive;
pub use block::Block;
pub use every::Every;
pub use none::NoRepair;

/// A generation that no further symbol joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// First source symbol.
    pub first: SourceId,
    /// Source symbols in it.
    pub count: u16,
    /// Repairs that will be asked for in any case: the rows of its code from 0 up.
    pub repairs: u16,
}

/// When and over what to send repair that nobody asked for.
pub trait ProactivePolicy: Send + fmt::Debug {
    /// The source symbol `cx.sent - 1` was just sent for the first time.
    fn on_source_sent(&mut self, _cx: &CodingContext<'_>) {}
    /// The fate of a source symbol's first transmission is known. What was taken for lost can arrive after
    /// all.
    fn on_source_settled(&mut self, _id: SourceId, _arrived: bool) {}
    /// The fate of a coded repair is known.
    fn on_repair_settled(&mut self, _repair: &RepairInFlight, _arrived: bool) {}
    /// The slot goes to this answer. An answer can make a proactive repair unnecessary.
    fn on_answer(&mut self, _cx: &CodingContext<'_>, _answer: &Repair) {}
    /// A slot is free and nothing is to be answered: the repair worth sending now, which is then sent. It is
    /// asked for each packet, so it must be cheap.
    fn next(&mut self, cx: &CodingContext<'_>) -> Option<Repair>;
    /// A generation that [`Self::on_source_sent`] or [`Self::next`] has just closed, once: workers make its repairs
    /// ahead.
    fn poll_closed(&mut self) -> Option<Closed> {
        None
    }
    /// When to ask again although nothing arrived and nothing was sent.
    fn poll_timeout(&self, _cx: &CodingContext<'_>) -> Option<Time> {
        None
    }
}

/// Which proactive policy to run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Proactive {
    /// Nothing is sent before it is asked for.
    None,
    /// One repair after every `spacing - 1` source symbols, evenly placed.
    Every {
        /// Packets per repair, that repair included; real, above 1.
        spacing: f64,
    },
    /// Blocks of `k` source symbols with `r` repairs each. It answers deficits itself, by generation.
    Block {
        /// Source symbols in a generation.
        k: u16,
        /// Repairs sent with it.
        r: u16,
    },
    /// As much as the planner finds.
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
            Self::Adaptive => f.write_str("adaptive"),
            Self::Custom(custom) => custom.fmt(f),
        }
    }
}
