//! The delay quantile of the streaming code in a microsecond, for policies that ask thousands of times a second. The exact one is
//! [`Streaming::quantile`](super::streaming::Streaming::quantile).

use super::streaming::Streaming;

/// In-order delay in slots that a fraction `q` of source symbols does not exceed, with one repair in `l` packets at loss `e`: the geometric
/// tail of the busy period, scaled by a constant to the exact p99 (within one slot or 15 % of it at e = 0.1, l = 2 .. 9).
/// Infinity where there is no model.
pub fn quantile(e: f64, l: f64, q: f64) -> f64 {
    let Ok(code) = Streaming::new(e, l) else { return f64::INFINITY };
    let above = (1.0 - code.no_delay()) / (1.0 - q);
    if above <= 1.0 {
        return 0.0;
    }
    TAIL_SCALE * l * above.ln() / -code.tail_ratio().ln()
}

/// Fitted to the exact p99, e = 0.1, l = 2 .. 9 (see the test).
const TAIL_SCALE: f64 = 0.45;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_near_the_exact_p99() {
        for l in 2..=9 {
            let exact = Streaming::new(0.1, l.into()).unwrap().quantile(0.99).unwrap();
            let got = quantile(0.1, l.into(), 0.99);
            assert!((got - exact).abs() < (0.15 * exact).max(1.0), "l={l}: {got} {exact}");
        }
        assert_eq!(quantile(0.1, 10.0, 0.99), f64::INFINITY);
        assert_eq!(quantile(0.0, 10.0, 0.99), 0.0);
    }
}
