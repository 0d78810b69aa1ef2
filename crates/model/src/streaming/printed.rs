//! Formulas of paper K that differ from the correct ones, to reproduce its table and to show the difference.
//! No decision uses them.

use super::Streaming;

/// Theorem 2: "upper bound" of the mean delay in slots, `E(S²) (l-1) / (2 E(S+))`. Its proof counts `l`
/// source symbols in a group instead of `l - 1`. It lies below the true mean ([`Streaming::mean_delay`]) for
/// losses of 10 % and more.
pub fn mean_delay_bound(code: &Streaming) -> f64 {
    code.second_moment() * (code.l - 1.0) / (2.0 * code.mean_cycle())
}

/// E(S³) by (8). Its bracket is `2 - 2e - 2le² + le + l²e³`, where [`Streaming::third_moment`] has `2 - 2e -
/// le² + l²e²`.
pub fn third_moment(code: &Streaming) -> f64 {
    let (e, l) = (code.e, code.l);
    let bracket = 2.0 - 2.0 * e - 2.0 * l * e * e + l * e + l * l * e * e * e;
    code.second_moment() + code.spread() * bracket / code.slack().powi(5)
}

/// Operations per source symbol by (7) with (8), the numbers of Table I. The table truncates them instead of
/// rounding.
pub fn operations(code: &Streaming) -> f64 {
    code.operations_from(third_moment(code))
}

/// Proof of Theorem 3: the probability that a stream of `groups` groups delivers more than `(l-1)/l (1 -
/// lost/groups)` source symbols per packet is at least this, `1 - P(S >= lost)`. That is wrong, because the
/// busy period in which the stream ends is longer than others (compare [`Streaming::ending`]). The theorem
/// itself holds, since it is about long streams. `None` as in [`Streaming::failure`].
pub fn goodput_bound(code: &Streaming, lost: u32) -> Option<f64> {
    Some(1.0 - code.failure(lost.checked_sub(1)?)?)
}
