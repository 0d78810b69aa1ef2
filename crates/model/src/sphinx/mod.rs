//! How many source symbols a repair of a block mixes, and how many repairs follow a block: the semi-random LT
//! code of Li, Li, Wu, Ramakrishnan, Geng, Gui, Wang, Zheng: "Sphinx: A Transport Protocol for High-Speed and
//! Lossy Mobile Networks", 2019, section III-B, equations (1) to (5).
//!
//! A sender cuts data into blocks of `n` source symbols and sends them unmixed. Then it sends `N_pro`
//! repairs, each the XOR of `D_h` random source symbols of the block. [`Block`] computes both numbers
//! from the mean `p_avg` and the standard deviation `delta` of the measured loss rate. `coverage.rs` has
//! the probability (4) in a form without cancellation. docs/sphinx.md lists the symbols, what the paper
//! leaves open, and a table.
//!
//! [`Form::Printed`] reproduces the paper. Its degree reaches `n` when `p_avg + delta <= 1/n`. Then every
//! repair mixes all source symbols, so all repairs of the block are the same symbol and together replace one
//! loss. [`Form::Corrected`] limits the degree. `decoding.rs` replaces (4) and (5) for a receiver that
//! eliminates.

mod coverage;
mod decoding;
#[cfg(test)]
mod tests;

use core::fmt;

use super::streaming::binomial::binomial;
use coverage::{Uncovered, draws_until};

/// A block and the measured loss rate. The constructor checks the numbers, so later calls cannot fail because
/// of them.
///
/// ```
/// use tidewire_model::sphinx::{Block, Form, Rounding};
/// // 100 symbols, 6 % loss, threshold 1/2: the 14 % redundancy that the paper reports.
/// let plan = Block::new(100, 0.06, 0.0)?.plan(0.5, Form::Printed, Rounding::Up)?;
/// assert_eq!((plan.degree, plan.samples, plan.repairs), (17, 222, 14));
/// # Ok::<(), tidewire_model::sphinx::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Source symbols, `n`.
    symbols: u16,
    /// Mean loss rate, `p_avg`.
    loss: f64,
    /// Standard deviation of the loss rate, `delta`.
    deviation: f64,
}

/// Which degree a sender uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// Equation (1) without a limit, to reproduce the paper. The degree may exceed the block.
    Printed,
    /// At most half of the block, at least 1. Among repairs of equal degree, those of half a block
    /// distinguish two lost symbols most often: a repair mixes exactly one of them with probability
    /// `2 D (n - D) / (n (n - 1))`.
    Corrected,
}

/// How the degree becomes a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rounding {
    /// Equation (1) as printed, with a ceiling.
    Up,
    /// The floor. The paper asks for `D_h (p_avg + delta) <= 1`, which only the floor satisfies.
    Down,
}

/// The repairs of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Source symbols that each repair mixes, `D_h` of (1).
    pub degree: u32,
    /// Lost source symbols that the repairs are meant for, `q`.
    pub lost: u16,
    /// Draws of a source symbol that cover all lost ones with the wanted probability: `k` of (4).
    pub samples: u32,
    /// Repairs to send, `N_pro` of (5).
    pub repairs: u32,
}

impl Block {
    /// A block of `symbols` source symbols on a path whose loss rate has this mean and standard deviation.
    ///
    /// # Errors
    /// [`OutOfRange`] if `symbols` is not in 1 to 4,096, `loss` is not in 0 to 0.99, or `deviation` is
    /// negative or above `1 - loss`.
    pub fn new(symbols: u16, loss: f64, deviation: f64) -> Result<Self, OutOfRange> {
        if !(1..=MAX_SYMBOLS).contains(&symbols) {
            return Err(OutOfRange::Symbols(symbols));
        }
        if !(0.0..=MAX_LOSS).contains(&loss) {
            return Err(OutOfRange::Loss(loss));
        }
        if !(deviation >= 0.0 && loss + deviation <= 1.0) {
            return Err(OutOfRange::Deviation { deviation, loss });
        }
        Ok(Self { symbols, loss, deviation })
    }

    /// Source symbols of the block that are lost on average, `q = n p_avg`, rounded up. The paper does not
    /// say how it rounds; equations (2) to (4) need a whole number.
    pub fn lost(&self) -> u16 {
        snapped(f64::from(self.symbols) * self.loss).ceil() as u16
    }

    /// Equation (1), `D_h = 1 / (p_avg + delta)`, rounded. Saturates at `u32::MAX`.
    ///
    /// # Errors
    /// [`OutOfRange::Lossless`] for [`Form::Printed`] if `p_avg + delta` is 0.
    pub fn degree(&self, form: Form, rounding: Rounding) -> Result<u32, OutOfRange> {
        let rate = self.loss + self.deviation;
        let exact = snapped(rate.recip());
        let degree = match rounding {
            Rounding::Up => exact.ceil(),
            Rounding::Down => exact.floor(),
        };
        match form {
            Form::Printed if rate == 0.0 => Err(OutOfRange::Lossless),
            Form::Printed => Ok(degree as u32),
            Form::Corrected => Ok((degree as u32).min(u32::from(self.symbols / 2).max(1))),
        }
    }

    /// Whether all repairs of this degree mix the same source symbols: the degree is that of the block or
    /// more. Always true for a block of one symbol.
    pub fn repairs_coincide(&self, degree: u32) -> bool {
        degree >= self.symbols.into()
    }

    /// Equation (2): the probability that exactly `among` of `samples` draws with replacement are lost
    /// symbols. Constant time.
    pub fn among_lost(&self, samples: u32, among: u32) -> f64 {
        if among > samples {
            return 0.0;
        }
        let lost = self.lost();
        if lost == self.symbols {
            return if among == samples { 1.0 } else { 0.0 };
        }
        binomial(samples.into(), among.into(), f64::from(lost) / f64::from(self.symbols))
    }

    /// Equation (3): the probability that `among` draws from the lost symbols choose each at least once. The
    /// equation's `S` are Stirling numbers of the second kind. Cost as [`coverage`](Self::coverage).
    pub fn all_chosen(&self, among: u32) -> f64 {
        Uncovered::new(self.lost(), self.lost()).after(among)
    }

    /// Equation (4): the probability that `samples` draws with replacement choose every lost symbol at least
    /// once. Takes about `n q` steps of a nanosecond at most.
    pub fn coverage(&self, samples: u32) -> f64 {
        Uncovered::new(self.symbols, self.lost()).after(samples)
    }

    /// The least number of draws with `P(k) > threshold` in (4).
    ///
    /// # Errors
    /// [`OutOfRange::Threshold`] if `threshold` is not in 1e-3 to 1 - 1e-9. The paper calls it `T` and gives
    /// no value.
    pub fn samples(&self, threshold: f64) -> Result<u32, OutOfRange> {
        check_threshold(threshold)?;
        Ok(draws_until(self.symbols, self.lost(), threshold))
    }

    /// The repairs that go with `missing` retransmitted source symbols: (4) and (5) for the losses among
    /// these, `q = missing p_avg`. The paper generates them "in a similar way" (section III-C1).
    ///
    /// # Errors
    /// As [`degree`](Self::degree) and [`samples`](Self::samples).
    pub fn compensation(
        &self,
        missing: u16,
        threshold: f64,
        form: Form,
        rounding: Rounding,
    ) -> Result<Plan, OutOfRange> {
        let lost = snapped(f64::from(missing.min(self.symbols)) * self.loss).ceil() as u16;
        self.plan_covering(lost, threshold, form, rounding)
    }

    /// The repairs for this block: equations (1), (4) and (5).
    ///
    /// They cover the lost symbols with probability `threshold`. Decoding is less likely or more likely than
    /// that, since (5) counts neither the losses beyond the mean nor what several repairs determine together.
    ///
    /// # Errors
    /// As [`degree`](Self::degree) and [`samples`](Self::samples).
    pub fn plan(&self, threshold: f64, form: Form, rounding: Rounding) -> Result<Plan, OutOfRange> {
        self.plan_covering(self.lost(), threshold, form, rounding)
    }

    fn plan_covering(&self, lost: u16, threshold: f64, form: Form, rounding: Rounding) -> Result<Plan, OutOfRange> {
        check_threshold(threshold)?;
        let (degree, samples) = (self.degree(form, rounding)?, draws_until(self.symbols, lost, threshold));
        let repairs = snapped(f64::from(samples) / (f64::from(degree) * (1.0 - self.loss))).ceil();
        Ok(Plan { degree, lost, samples, repairs: repairs as u32 })
    }
}

/// Whether a probability of coverage is in range.
pub fn is_threshold(threshold: f64) -> bool {
    (MIN_THRESHOLD..=MAX_THRESHOLD).contains(&threshold)
}

fn check_threshold(threshold: f64) -> Result<(), OutOfRange> {
    if is_threshold(threshold) { Ok(()) } else { Err(OutOfRange::Threshold(threshold)) }
}

/// Replaces a number that differs from a whole one by rounding errors only. `100 * 0.07` is the next number
/// above 7, and its ceiling would be 8.
fn snapped(x: f64) -> f64 {
    let whole = x.round();
    if (x - whole).abs() <= ROUNDING_ERROR * whole { whole } else { x }
}

/// Why there are no repairs for the given numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OutOfRange {
    /// The number of source symbols in a block is not in 1 to 4,096.
    Symbols(u16),
    /// The mean loss rate is not in 0 to 0.99.
    Loss(f64),
    /// The standard deviation is negative, or added to the mean loss rate it exceeds 1.
    Deviation {
        /// The standard deviation.
        deviation: f64,
        /// The mean loss rate.
        loss: f64,
    },
    /// The probability of coverage is not in 1e-3 to 1 - 1e-9.
    Threshold(f64),
    /// Mean and deviation of the loss rate are 0, and the printed degree is their reciprocal.
    Lossless,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symbols(symbols) => {
                write!(f, "a block of {symbols} source symbols: must have at least 1 and at most {MAX_SYMBOLS}")
            }
            Self::Loss(loss) => write!(f, "loss rate {loss} is not at least 0 and at most {MAX_LOSS}"),
            Self::Deviation { deviation, loss } => write!(
                f,
                "standard deviation {deviation} of the loss rate {loss} is not at least 0 and at most {}",
                1.0 - loss
            ),
            Self::Threshold(threshold) => {
                write!(f, "coverage {threshold} is not at least {MIN_THRESHOLD} and at most {MAX_THRESHOLD}")
            }
            Self::Lossless => {
                f.write_str("the printed degree is 1/0 for a loss rate of 0 without deviation, use the corrected form")
            }
        }
    }
}

impl core::error::Error for OutOfRange {}

/// Most source symbols in a block. Chosen: four times the longest span of a lane.
pub const MAX_SYMBOLS: u16 = 4_096;
/// Largest mean loss rate. Chosen: (5) divides by the rate of arrivals.
pub const MAX_LOSS: f64 = 0.99;
/// Least probability of coverage. Chosen: below it the terms of the search in `coverage.rs` cancel more.
pub const MIN_THRESHOLD: f64 = 1e-3;
/// Largest probability of coverage. Chosen: `1 - threshold` still has seven digits.
pub const MAX_THRESHOLD: f64 = 1.0 - 1e-9;
/// Relative difference from a whole number that counts as a rounding error. A few operations make less than
/// 1e-15, and measured loss rates have fewer than nine digits.
const ROUNDING_ERROR: f64 = 1e-9;
