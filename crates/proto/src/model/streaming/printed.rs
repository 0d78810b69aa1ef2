//! What paper K prints where it differs from what is right, to reproduce its table and to show the difference. Nothing decides by these.

use super::Streaming;

/// Theorem 2: "upper bound" of the mean delay in slots, `E(S²) (l-1) / (2 E(S+))`. Its proof counts `l` source symbols in a group
/// instead of `l - 1`; it lies below the true mean ([`Streaming::mean_delay`]) for loss of 10 % and more.
pub fn mean_delay_bound(code: &Streaming) -> f64 {
    code.second_moment() * (code.l - 1.0) / (2.0 * code.mean_cycle())
}

/// E(S³) by (8), whose bracket is `2 - 2e - 2le² + le + l²e³` where [`Streaming::third_moment`] has `2 - 2e - le² + l²e²`.
pub fn third_moment(code: &Streaming) -> f64 {
    let (e, l) = (code.e, code.l);
    let bracket = 2.0 - 2.0 * e - 2.0 * l * e * e + l * e + l * l * e * e * e;
    code.second_moment() + code.spread() * bracket / code.slack().powi(5)
}

/// Operations per source symbol by (7) with (8): the figures of Table I, which are cut off, not rounded.
pub fn operations(code: &Streaming) -> f64 {
    code.operations_from(third_moment(code))
}

/// Theorem 3's proof: the probability that a stream of `groups` groups delivers more than `(l-1)/l (1 - lost/groups)` source symbols
/// per packet is at least this, `1 - P(S >= lost)`. It is not: the busy period in which the stream happens to end is longer than
/// others (compare [`Streaming::ending`]). The theorem holds all the same, since it is for long streams. `None` as
/// [`Streaming::failure`].
pub fn goodput_bound(code: &Streaming, lost: u32) -> Option<f64> {
    Some(1.0 - code.failure(lost.checked_sub(1)?)?)
}
