//! The policies of the grid, in families with one number each. Along the number more is sent and the delay
//! falls, so a family can be read at any overhead.

use core::fmt;

use tidewire_proto::profile::{Profile, STREAM, block};
use tidewire_proto::redundancy::{Answer, Redundancy};

use super::baselines;
use super::cells::Cell;

/// A policy without its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// SR-ARQ: lost symbols are sent again.
    Arq,
    /// The same with several copies. The number is the number of copies.
    Nack,
    /// A block code of `k` source symbols with answers. The number is its repairs per source symbol.
    Block(u16),
    /// The streaming code without answers. The number of this and of the next three is the repairs per source
    /// symbol.
    Open,
    /// The streaming code with answers.
    Closed,
    /// The streaming code with answers of two repairs more than the deficit.
    Margin,
    /// The streaming code with uncoded answers.
    Caterpillar,
    /// The rule of adaptive causal RLNC. The number is its threshold.
    AcRlnc,
}

impl Family {
    /// All families that ours is compared with.
    pub const ALL: [Self; 11] = [
        Self::Arq,
        Self::Nack,
        Self::Block(16),
        Self::Block(32),
        Self::Block(64),
        Self::Block(128),
        Self::Open,
        Self::Closed,
        Self::Margin,
        Self::Caterpillar,
        Self::AcRlnc,
    ];

    /// Initial values of the number, from little sent to much.
    pub(super) fn ladder(self, cell: &Cell) -> Vec<f64> {
        let taken = cell.taken();
        let shares = |least: f64| -> Vec<f64> {
            let steps = [0.5 * taken, taken + 0.015, taken + 0.05, taken + 0.15, taken + 0.3, taken + 0.55];
            steps.into_iter().filter(|&share| share >= least.max(0.005)).collect()
        };
        match self {
            Self::Arq => vec![1.0],
            Self::Nack => vec![2.0, 3.0, 4.0],
            // Rounded to whole repairs, without duplicates.
            Self::Block(k) => {
                let mut repairs: Vec<f64> =
                    shares(0.0).iter().map(|share| (share * f64::from(k)).round() / f64::from(k)).collect();
                repairs.retain(|&share| share > 0.0);
                repairs.dedup();
                repairs
            }
            // Without answers, a share below what the loss requires is never enough.
            Self::Open => shares(taken + 0.005),
            Self::Closed | Self::Margin | Self::Caterpillar => shares(0.0),
            Self::AcRlnc => vec![0.0, 0.3, 0.7],
        }
    }

    /// The allowed value next to `number`, if not every value is allowed.
    pub(super) fn nearest(self, number: f64) -> Option<f64> {
        match self {
            Self::Arq | Self::Nack => None,
            Self::Block(k) => Some((number * f64::from(k)).round() / f64::from(k)),
            Self::AcRlnc | Self::Open | Self::Closed | Self::Margin | Self::Caterpillar => Some(number),
        }
    }

    /// The profile of a member.
    pub(super) fn profile(self, number: f64) -> Profile {
        let streaming = Redundancy::every(1.0 + 1.0 / number);
        let redundancy = match self {
            Self::Arq => Redundancy::ARQ,
            Self::Nack => baselines::nack(number),
            Self::Block(k) => return block(k, (number * f64::from(k)).round() as u16),
            Self::Open => Redundancy { answer: Answer::Open, ..streaming },
            Self::Closed => streaming,
            Self::Margin => baselines::streaming_margin(number),
            Self::Caterpillar => baselines::caterpillar(number),
            Self::AcRlnc => baselines::ac_rlnc(number),
        };
        Profile { redundancy, ..STREAM }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arq => f.write_str("SR-ARQ"),
            Self::Nack => f.write_str("NACK, copies"),
            Self::Block(k) => write!(f, "block {k}"),
            Self::Open => f.write_str("streaming, open"),
            Self::Closed => f.write_str("streaming"),
            Self::Margin => f.write_str("streaming + 2"),
            Self::Caterpillar => f.write_str("caterpillar"),
            Self::AcRlnc => f.write_str("AC-RLNC"),
        }
    }
}
