//! How fair flows share a lossy path when some of them are coded, after P.-L. Ageneau, N. Boukhatem and
//! M. Gerla: "Fairness Evaluation of Pipeline Coded and non Coded TCP Flows" ("paper F").
//!
//! The experiments of `papers/fairness` call it. A coded flow may take what flows without code cannot use,
//! because they take losses for congestion. It is unfair only where it takes what another flow would have
//! without it. Jain's index J does not tell these two apart. The modified index J' does: it compares with a
//! run in which no flow is coded. `docs/fairness.md` has the derivation. Invariant: an [`Allocation`] exists
//! only where the paper's assumption holds, that the flows together carry at least as much as without code.

use core::fmt;

/// Jain's index `J = (sum x)^2 / (n sum x^2)` of throughputs: 1 if all are equal, `1/n` if one flow has all.
/// `None` without a throughput above 0.
///
/// ```
/// use tidewire_model::fairness::jain;
/// assert_eq!(jain(&[7.0, 3.0]), Some(25.0 / 29.0));
/// ```
pub fn jain(throughputs: &[f64]) -> Option<f64> {
    let Sums { all, squares } = Sums::of(throughputs);
    (squares > 0.0).then(|| all * all / (throughputs.len() as f64 * squares))
}

/// The least redundancy that replaces the losses of a fraction `loss` of packets on average,
/// `R = 1/(1 - loss)`, in packets sent for each source packet.
pub fn least_redundancy(loss: f64) -> f64 {
    1.0 / (1.0 - loss)
}

/// Throughputs of coded and other flows over one path, beside the fair ones.
///
/// ```
/// use tidewire_model::fairness::Allocation;
/// // A coded flow with 7 Mbit/s and one without code with 3. Two flows without code would have 4 each.
/// let shares = Allocation::new(&[7.0, 3.0], 1, 4.0)?;
/// assert_eq!((shares.fair_coded(), shares.fair_uncoded()), (6.0, 4.0));
/// assert_eq!(shares.index(), 529.0 / 554.0);
/// # Ok::<(), tidewire_model::fairness::NoFairShare>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allocation {
    flows: f64,
    coded: f64,
    /// Sums over the coded flows and over the others.
    with: Sums,
    without: Sums,
    /// What each flow has if none is coded, `x'`.
    alone: f64,
}

impl Allocation {
    /// The throughputs of all flows, the `coded` coded ones first. `alone` is the mean throughput of a flow
    /// in a run in which none is coded. All have the same unit.
    ///
    /// # Errors
    /// [`NoFairShare`] if a number is out of range, or if the flows carry less than without code.
    pub fn new(throughputs: &[f64], coded: usize, alone: f64) -> Result<Self, NoFairShare> {
        let is_throughput = |x: f64| x >= 0.0 && x.is_finite();
        if let Some(&wrong) = throughputs.iter().find(|&&x| !is_throughput(x)) {
            return Err(NoFairShare::Throughput(wrong));
        }
        if !is_throughput(alone) || alone == 0.0 {
            return Err(NoFairShare::Alone(alone));
        }
        let flows = throughputs.len();
        if coded == 0 || coded > flows {
            return Err(NoFairShare::Coded { coded, flows });
        }
        let (first, rest) = throughputs.split_at(coded);
        let (with, without) = (Sums::of(first), Sums::of(rest));
        let shares = Self { flows: flows as f64, coded: coded as f64, with, without, alone };
        let (carried, uncoded) = (with.all + without.all, shares.flows * alone);
        if shares.left() <= 0.0 {
            return Err(NoFairShare::NothingLeft { carried, others: (shares.flows - shares.coded) * alone });
        }
        if carried < uncoded * (1.0 - ROUNDING) {
            return Err(NoFairShare::Worse { carried, uncoded, lambda: shares.lambda() });
        }
        Ok(shares)
    }

    /// What the flows without code leave to the coded ones in the fair allocation, `c - (n - k) x'`.
    fn left(&self) -> f64 {
        self.with.all + self.without.all - (self.flows - self.coded) * self.alone
    }

    /// The fair throughput of a coded flow, `y = (c - (n - k) x')/k`.
    pub fn fair_coded(&self) -> f64 {
        self.left() / self.coded
    }

    /// The fair throughput of each other flow, `x'`.
    pub fn fair_uncoded(&self) -> f64 {
        self.alone
    }

    /// The fair throughput of a flow without code over that of a coded one,
    /// `lambda = k x' / (c - (n - k) x')`: above 0 and at most 1.
    pub fn lambda(&self) -> f64 {
        self.coded * self.alone / self.left()
    }

    /// The modified index J': Jain's index after the throughputs of the coded flows were multiplied by
    /// [`Self::lambda`]. It is 1 if each flow has its fair throughput, and at least `1/n`.
    pub fn index(&self) -> f64 {
        // Both sides of the fraction are multiplied by (c - (n - k) x')^2: no division rounds twice.
        let (weight, left) = (self.coded * self.alone, self.left());
        let sum = weight * self.with.all + left * self.without.all;
        let squares = weight * weight * self.with.squares + left * left * self.without.squares;
        sum * sum / (self.flows * squares)
    }

    /// Jain's index J of the same throughputs.
    pub fn jain(&self) -> f64 {
        let sum = self.with.all + self.without.all;
        sum * sum / (self.flows * (self.with.squares + self.without.squares))
    }
}

/// The sum of throughputs and of their squares.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sums {
    all: f64,
    squares: f64,
}

impl Sums {
    fn of(throughputs: &[f64]) -> Self {
        Self { all: throughputs.iter().sum(), squares: throughputs.iter().map(|x| x * x).sum() }
    }
}

/// Why throughputs have no fair allocation to compare with.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum NoFairShare {
    /// A throughput is below 0 or not a number.
    Throughput(f64),
    /// The throughput without code is not above 0.
    Alone(f64),
    /// No flow is coded, or more than there are.
    Coded {
        /// Coded flows.
        coded: usize,
        /// All flows.
        flows: usize,
    },
    /// The flows carry less together than they would without code: `lambda` is above 1, and the index would
    /// call a coded flow that harms all of them fair.
    Worse {
        /// What they carry, `c`.
        carried: f64,
        /// What they would carry without code, `n x'`.
        uncoded: f64,
        /// [`Allocation::lambda`].
        lambda: f64,
    },
    /// The flows without code would have all that is carried, or more: nothing is left for the coded ones,
    /// and `lambda` is infinite or negative.
    NothingLeft {
        /// What all flows carry, `c`.
        carried: f64,
        /// What the others would carry, `(n - k) x'`.
        others: f64,
    },
}

impl fmt::Display for NoFairShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throughput(x) => write!(f, "throughput {x} is not a number of at least 0"),
            Self::Alone(x) => write!(f, "throughput {x} without code is not above 0: measure it in a run of its own"),
            Self::Coded { coded, flows } => write!(f, "{coded} of {flows} flows are coded: name at least one"),
            Self::Worse { carried, uncoded, lambda } => write!(
                f,
                "the flows carry {carried} with code and {uncoded} without (lambda {lambda}): coding only harms here"
            ),
            Self::NothingLeft { carried, others } => write!(
                f,
                "the flows carry {carried}, and those without code should have {others}: nothing is left for the coded"
            ),
        }
    }
}

impl core::error::Error for NoFairShare {}

/// Sums of measured throughputs differ by this much from equal ones. Chosen: some thousand rounding errors of
/// f64.
const ROUNDING: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_paper() {
        let shares = Allocation::new(&[7.0, 3.0], 1, 4.0).unwrap();
        assert_eq!((shares.jain(), shares.index()), (25.0 / 29.0, 529.0 / 554.0));
        assert_eq!(shares.lambda(), 2.0 / 3.0);
        let fair = Allocation::new(&[6.0, 4.0], 1, 4.0).unwrap();
        assert_eq!((fair.jain(), fair.index()), (25.0 / 26.0, 1.0));
        assert_eq!((jain(&[6.0, 4.0]), jain(&[0.0]), jain(&[])), (Some(25.0 / 26.0), None, None));
        assert_eq!(least_redundancy(0.2), 1.25);
    }

    #[test]
    fn what_lies_outside_of_the_assumption_is_refused() {
        let of = |x: &[f64], coded, alone| Allocation::new(x, coded, alone).unwrap_err();
        // 3 + 4 with code, 2 * 4 without: lambda = 4/3.
        let worse = NoFairShare::Worse { carried: 7.0, uncoded: 8.0, lambda: 4.0 / 3.0 };
        assert_eq!(of(&[3.0, 4.0], 1, 4.0), worse);
        let none = NoFairShare::NothingLeft { carried: 4.0, others: 4.0 };
        assert_eq!(
            (of(&[1.0, 3.0], 1, 4.0), of(&[0.0, 3.0], 1, 4.0)),
            (none, NoFairShare::NothingLeft { carried: 3.0, others: 4.0 })
        );
        assert_eq!(of(&[1.0], 0, 1.0), NoFairShare::Coded { coded: 0, flows: 1 });
        assert_eq!(of(&[1.0], 2, 1.0), NoFairShare::Coded { coded: 2, flows: 1 });
        assert_eq!(of(&[1.0, -1.0], 1, 1.0), NoFairShare::Throughput(-1.0));
        assert_eq!(of(&[1.0, 1.0], 1, 0.0), NoFairShare::Alone(0.0));
        assert!(matches!(of(&[1.0, 1.0], 1, f64::NAN), NoFairShare::Alone(_)));
        assert!(worse.to_string().contains("lambda 1.33") && none.to_string().contains("nothing is left"));
        // Equal to without code is allowed, also where sums are rounded.
        let equal = Allocation::new(&[0.1; 10], 3, 0.1).unwrap();
        assert!((equal.index() - 1.0).abs() < 1e-12 && (equal.lambda() - 1.0).abs() < 1e-12);
    }

    /// Greatest common divisor.
    fn gcd(a: u128, b: u128) -> u128 {
        if b == 0 { a } else { gcd(b, a % b) }
    }

    proptest! {
        /// The formulas of the paper in fractions of whole numbers, for any n and k.
        #[test]
        fn the_index_is_that_of_exact_fractions(x in prop::collection::vec(0_u64..1_000, 1..12), k in 1_usize..12, alone in 1_u64..1_000) {
            let (n, k) = (x.len() as u64, k.min(x.len()));
            let carried: u64 = x.iter().sum();
            let floats: Vec<_> = x.iter().map(|&x| x as f64).collect();
            let shares = Allocation::new(&floats, k, alone as f64);
            if carried < n * alone {
                let is_none = carried <= (n - k as u64) * alone;
                prop_assert_eq!(matches!(shares, Err(NoFairShare::NothingLeft { .. })), is_none);
                prop_assert_eq!(matches!(shares, Err(NoFairShare::Worse { .. })), !is_none);
                return Ok(());
            }
            let shares = shares.unwrap();
            // lambda = a/b in lowest terms.
            let (a, b) = (u128::from(k as u64 * alone), u128::from(carried - (n - k as u64) * alone));
            let (a, b) = (a / gcd(a, b), b / gcd(a, b));
            prop_assert_eq!(shares.lambda(), a as f64 / b as f64);
            prop_assert!(shares.lambda() <= 1.0 && shares.lambda() > 0.0);
            let weighted = |i: usize| u128::from(x[i]) * if i < k { a } else { b };
            let sum: u128 = (0..x.len()).map(weighted).sum();
            let squares: u128 = (0..x.len()).map(|i| weighted(i) * weighted(i)).sum();
            let exact = (sum * sum) as f64 / (u128::from(n) * squares) as f64;
            prop_assert!((shares.index() / exact - 1.0).abs() < 1e-14, "{} {exact}", shares.index());
            prop_assert!(shares.index() <= 1.0 + 1e-14 && shares.index() >= 1.0 / n as f64 - 1e-14);
            // The fair allocation carries as much, and its index is 1.
            let fair: Vec<_> = (0..x.len()).map(|i| if i < k { shares.fair_coded() } else { shares.fair_uncoded() }).collect();
            prop_assert!((fair.iter().sum::<f64>() / carried as f64 - 1.0).abs() < 1e-12);
            let fair = Allocation::new(&fair, k, alone as f64).unwrap();
            prop_assert!((fair.index() - 1.0).abs() < 1e-12);
        }
    }
}
