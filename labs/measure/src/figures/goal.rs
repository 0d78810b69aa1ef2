//! Measured values and their goals, as the tables show them.

use std::fmt;

/// The bound that a figure must keep.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    /// The goal of at most `bound`. An infinite bound is no goal.
    pub fn at_most(bound: f64) -> Option<Self> {
        bound.is_finite().then_some(Self::AtMost(bound))
    }

    /// Whether `value` reaches the goal. NaN reaches none.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

/// The bound of a figure without a goal; see [`Goal::at_most`].
pub const ANY: f64 = f64::INFINITY;

/// One value and its goal.
pub struct Figure {
    value: f64,
    decimals: usize,
    goal: Option<Goal>,
}

impl Figure {
    pub fn new(value: f64, decimals: usize, goal: Option<Goal>) -> Self {
        Self { value, decimals, goal }
    }

    /// Whether the goal is reached, if there is one.
    pub fn holds(&self) -> bool {
        self.goal.is_none_or(|goal| goal.holds(self.value))
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, decimals, goal } = *self;
        f.write_str(&shown(value, decimals))?;
        match goal {
            None => return Ok(()),
            Some(Goal::AtLeast(least)) => write!(f, " >= {least}")?,
            Some(Goal::AtMost(most)) => write!(f, " <= {most}")?,
        }
        write!(f, " {}", if goal.is_some_and(|goal| goal.holds(value)) { "ok" } else { "**MISSED**" })
    }
}

/// A value as the tables show it, or a dash for NaN: no run gave a value.
pub fn shown(value: f64, decimals: usize) -> String {
    if value.is_nan() { "-".into() } else { format!("{value:.decimals$}") }
}

/// Writes the first two lines of a table.
pub fn heading(f: &mut fmt::Formatter<'_>, columns: &[&str]) -> fmt::Result {
    writeln!(f, "| {} |\n|{}", columns.join(" | "), " --- |".repeat(columns.len()))
}

/// The end of a report: each row that failed with its reason, and how many rows miss a goal.
pub fn ending<'a>(
    f: &mut fmt::Formatter<'_>,
    failures: impl Iterator<Item = (&'a str, &'a String)>,
    missed: usize,
) -> fmt::Result {
    for (name, failure) in failures {
        writeln!(f, "\n{name} **FAILED**, {failure}")?;
    }
    match missed {
        0 => writeln!(f, "\nEvery goal is reached."),
        missed => writeln!(f, "\n{missed} rows miss a goal."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_include_their_bound_and_nan_reaches_none() {
        let (least, most) = (Goal::AtLeast(0.90), Goal::AtMost(2.0));
        assert!(least.holds(0.90) && !least.holds(0.899));
        assert!(most.holds(2.0) && !most.holds(2.1));
        assert!(!least.holds(f64::NAN) && !most.holds(f64::NAN));
        assert!(Goal::at_most(ANY).is_none() && Goal::at_most(2.0).is_some());
    }

    #[test]
    fn a_figure_shows_value_bound_and_verdict() {
        assert_eq!(Figure::new(0.9, 3, Some(Goal::AtLeast(0.88))).to_string(), "0.900 >= 0.88 ok");
        assert_eq!(Figure::new(f64::NAN, 3, Some(Goal::AtMost(2.0))).to_string(), "- <= 2 **MISSED**");
        assert_eq!(Figure::new(1.25, 1, None).to_string(), "1.2");
        assert!(Figure::new(f64::NAN, 1, None).holds());
    }
}
