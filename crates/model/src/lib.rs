//! Closed forms of delay, redundancy and fairness of coded transports.
//!
//! Redundancy policies of `tidewire-proto` base their decisions on these formulas, experiments are compared
//! with them, and `tidewire probe` and the Python package show what they predict.
//!
//! - [`streaming`]: independent losses, after Karzand, Leith, Cloud and Médard ("paper K"): moments of the
//!   busy period, mean and exact distribution of the in-order delay, cost, and the loss at the end of a
//!   stream.
//! - [`gilbert`]: the same delay under losses in bursts, exactly, from generating functions.
//! - [`asking`]: the same delay for plain retransmission, without proactive repair.
//! - [`fairness`]: how fair coded and other flows share a path, after Ageneau, Boukhatem and Gerla.
//! - [`sphinx`]: degree and number of repairs of a block of the Sphinx protocol. The policy `sphinx` uses it.
//!
//! The functions are pure. Each states its cost and has bounded time and memory for all inputs. The
//! derivations are in docs/coding.md section 3, those of [`sphinx`] in docs/sphinx.md and those of
//! [`fairness`] in docs/fairness.md. Time is in *slots*: one packet, source or repair.

#![forbid(unsafe_code)]
#![warn(clippy::exhaustive_enums)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod algebra;
pub mod asking;
pub mod fairness;
pub mod gilbert;
mod inversion;
pub mod sphinx;
pub mod streaming;

use core::fmt;

/// Why there is no model for the given numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OutOfModel {
    /// The loss rate is not in `[0, 1)`.
    Loss(f64),
    /// The spacing is not in `(1, 4096]`; for [`gilbert`] not in `[2, 4096]`.
    Spacing(f64),
    /// No sequence of losses with this rate has this mean burst, or the burst is longer than 10,000.
    Burst(f64),
    /// Packets lost per repair sent, `l e`. At 1 and above the deficit grows without limit.
    Unstable(f64),
}

impl fmt::Display for OutOfModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loss(loss) => write!(f, "loss rate {loss} is not at least 0 and below 1"),
            Self::Spacing(spacing) => {
                write!(f, "one repair in {spacing} packets: must be above 1 (2 for bursts) and at most {MAX_SPACING}")
            }
            Self::Burst(burst) => {
                write!(f, "mean burst {burst} must be at least 1 and loss/(1 - loss), and at most {MAX_BURST}")
            }
            Self::Unstable(load) => {
                write!(f, "{load} packets are lost per repair: send more repairs, fewer than 1 must be")
            }
        }
    }
}

impl core::error::Error for OutOfModel {}

/// Bounds the loops over one group. A repair mixes a span of at most 1,024 symbols, so a wider spacing has no
/// use.
const MAX_SPACING: f64 = 4_096.0;
/// Coding does not help against longer outages (a span is at most 1,024 symbols), and the arithmetic loses
/// digits with them.
const MAX_BURST: f64 = 10_000.0;

/// Checks that the deficit, with one repair in `spacing` packets at this loss, returns to zero.
fn check(loss: f64, spacing: f64) -> Result<(), OutOfModel> {
    if !(0.0..1.0).contains(&loss) {
        return Err(OutOfModel::Loss(loss));
    }
    if !(spacing > 1.0 && spacing <= MAX_SPACING) {
        return Err(OutOfModel::Spacing(spacing));
    }
    if loss * spacing >= 1.0 {
        return Err(OutOfModel::Unstable(loss * spacing));
    }
    Ok(())
}
