//! Pictures of delay against overhead as `probe` predicts them: p50, p95 and p99 of in-order delay over the
//! repairs per source symbol, with the points of plain retransmission and of the transport's choice.

pub mod svg;
pub mod terminal;

use crate::probe::outlook::{Outlook, Point};
use tidewire_figures::chart::plane::Plane;

/// One of a point's delays, in milliseconds.
type Quantile = fn(&Point) -> f64;
/// The quantiles that are drawn, with their names.
const LINES: [(&str, Quantile); 3] =
    [("p50", |point| point.p50_ms), ("p95", |point| point.p95_ms), ("p99", |point| point.p99_ms)];

/// Axes that cover all points of the outlook.
fn covering(outlook: &Outlook) -> Plane {
    let points = outlook.code.iter().chain([&outlook.asking, &outlook.chosen]);
    Plane::covering(points.map(|point| (point.overhead, point.p99_ms)))
}

/// Delay at an overhead, interpolated between two points of the curve; `None` outside the curve.
fn between(code: &[Point], overhead: f64, delay: Quantile) -> Option<f64> {
    let pair = code.windows(2).find(|pair| (pair[0].overhead..=pair[1].overhead).contains(&overhead))?;
    let part = (overhead - pair[0].overhead) / (pair[1].overhead - pair[0].overhead).max(1e-9);
    Some(delay(&pair[0]) + part * (delay(&pair[1]) - delay(&pair[0])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::outlook::{Ground, predict};

    pub(super) fn outlook() -> Outlook {
        let rtt = std::time::Duration::from_millis(60);
        let ground = Ground { loss: 0.1, burst: 1.2, rtt, packet_bytes: 1_500, rate_bps: 12.5e6 };
        predict(ground, &tidewire::Config::default())
    }

    #[test]
    fn all_points_lie_in_the_plane() {
        let outlook = outlook();
        let plane = covering(&outlook);
        for point in outlook.code.iter().chain([&outlook.asking, &outlook.chosen]) {
            let (right, up) = plane.place(point.overhead, point.p99_ms);
            assert!((0.0..=1.0).contains(&right) && (0.0..1.0).contains(&up), "{point:?}");
        }
        assert_eq!(between(&outlook.code, 0.0, |point| point.p99_ms), None);
        let first = outlook.code[0];
        assert_eq!(between(&outlook.code, first.overhead, |point| point.p99_ms), Some(first.p99_ms));
    }
}
