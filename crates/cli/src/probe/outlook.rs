//! Predicts a flow on a measured path: in-order delay against overhead, by the exact model of the code
//! ([`tidewire_model::gilbert`]) and of plain retransmission ([`tidewire_model::asking`]), and
//! the point that the transport would choose.

use std::time::Duration;

use serde::Serialize;
use tidewire::{Config, Plan, Target};
use tidewire_figures::milliseconds;
use tidewire_model::asking::Asking;
use tidewire_model::gilbert;
use tidewire_proto::path::LossEstimate;
use tidewire_proto::redundancy::plan::{SteadyPath, steady_share};

/// Points of the curve. Chosen: more than a terminal can show separately.
const POINTS: u32 = 20;
/// The curve begins at this multiple of the repair that the loss needs. With less, the code alone never
/// decodes.
const BEYOND_LOSS: f64 = 1.05;
/// The curve ends with one repair for each source symbol.
const MOST: f64 = 1.0;
/// Below this loss there is no curve, because it would be a single point.
const LEAST_LOSS: f64 = 1e-4;
/// Delay where nothing can be predicted. Chosen: longer than anybody waits.
const UNKNOWN: Duration = Duration::from_secs(3_600);
/// Round trips until requested data arrives, on average, in addition to three symbols until the loss is
/// detected: the round trip and half of the sixteenth after which FEEDBACK is sent. Policies plan with more
/// (`redundancy::plan`) to be safe.
const ANSWERED: f64 = 1.03;
const SEEN_SYMBOLS: f64 = 3.0;
/// Halvings in the search for a quantile, to a hundred-thousandth of the time of a retransmission.
const HALVINGS: u32 = 17;

/// The properties of the path and of the flow that determine the delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ground {
    /// Fraction of packets lost without a queue as the cause.
    pub loss: f64,
    /// Mean run of lost packets.
    pub burst: f64,
    /// Round trip.
    pub rtt: Duration,
    /// IP bytes of a packet.
    pub packet_bytes: u16,
    /// IP bits of source packets per second.
    pub rate_bps: f64,
}

/// Delay at one overhead.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// `code` for the curve, `asking` for plain retransmission, `chosen` for what the transport would do.
    pub name: &'static str,
    /// Proactive repairs per source symbol.
    pub repair: f64,
    /// All repairs per source symbol, at least what the loss requires.
    pub overhead: f64,
    /// Median of the in-order delay beyond the one-way time.
    pub p50_ms: f64,
    /// 95th percentile of the same.
    pub p95_ms: f64,
    /// 99th percentile of the same.
    pub p99_ms: f64,
}

/// Predicted delays of one flow over one path.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// The path and the flow.
    pub ground: Ground,
    /// Plain retransmission.
    pub asking: Point,
    /// The point that the transport would choose.
    pub chosen: Point,
    /// The code at rising overhead; empty if hardly anything is lost.
    pub code: Vec<Point>,
    /// The plan for the target, if one was given.
    pub plan: Option<Plan>,
}

/// Predicts a flow on this path. `config` has the target and the limits. Takes about 0.3 s.
pub fn predict(ground: Ground, config: &Config) -> Outlook {
    let model = Model::new(ground);
    let taken = model.taken();
    let code = if ground.loss < LEAST_LOSS {
        Vec::new()
    } else {
        let first = (taken * BEYOND_LOSS).min(MOST);
        let step = (MOST / first).powf(f64::from(POINTS - 1).recip());
        (0..POINTS).map(|n| model.point("code", first * step.powi(n as i32))).collect()
    };
    let loss = LossEstimate::settled(ground.loss, ground.burst);
    let path = SteadyPath { loss, rtt: ground.rtt, interval: model.interval, saturated: false };
    let (max_overhead, deliver) = (config.max_overhead(), config.deliver());
    let target = config.latency().map(|latency| Target { latency, deliver, max_overhead });
    let (share, plan) = steady_share(config.profile().redundancy, &path, max_overhead, target);
    Outlook { ground, asking: model.point("asking", 0.0), chosen: model.point("chosen", share), code, plan }
}

struct Model {
    ground: Ground,
    /// Time between source symbols.
    interval: Duration,
    asking: Option<Asking>,
}

impl Model {
    fn new(ground: Ground) -> Self {
        // Independent losses come in runs of 1/(1-p) on average.
        let ground = Ground { burst: ground.burst.max(1.0 / (1.0 - ground.loss)), ..ground };
        let interval = Duration::from_secs_f64(8.0 * f64::from(ground.packet_bytes) / ground.rate_bps.max(1e3));
        let answer = ANSWERED * ground.rtt.as_secs_f64() / interval.as_secs_f64() + SEEN_SYMBOLS;
        Self { ground, interval, asking: Asking::new(ground.loss, ground.burst, answer).ok() }
    }

    /// Repairs per source symbol that replace the losses.
    fn taken(&self) -> f64 {
        self.ground.loss / (1.0 - self.ground.loss).max(1e-3)
    }

    fn point(&self, name: &'static str, repair: f64) -> Point {
        let quantile = |q| milliseconds(self.quantile(repair, q));
        Point {
            name,
            repair,
            overhead: repair.max(self.taken()),
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
        }
    }

    /// In-order delay that a fraction `q` of the symbols does not exceed. A symbol that the code has not
    /// decoded by the time of a retransmission is retransmitted, so no delay exceeds that of plain
    /// retransmission.
    fn quantile(&self, repair: f64, q: f64) -> Duration {
        let asking = self.asking.and_then(|asking| asking.quantile(q)).unwrap_or(f64::INFINITY);
        let most = Duration::try_from_secs_f64(asking * self.interval.as_secs_f64()).unwrap_or(UNKNOWN);
        if repair <= 0.0 {
            return most;
        }
        let slot = self.interval.as_secs_f64() / (1.0 + repair);
        let Ground { loss, burst, .. } = self.ground;
        let late = |delay: f64| gilbert::late(loss, burst, 1.0 + 1.0 / repair, delay / slot);
        if late(0.0) <= 1.0 - q {
            return Duration::ZERO;
        }
        let (mut low, mut high) = (0.0, most.as_secs_f64());
        for _ in 0..HALVINGS {
            let middle = (low + high) / 2.0;
            if late(middle) <= 1.0 - q { high = middle } else { low = middle }
        }
        Duration::try_from_secs_f64(high).unwrap_or(UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(loss: f64, burst: f64) -> Ground {
        Ground { loss, burst, rtt: Duration::from_millis(60), packet_bytes: 1_500, rate_bps: 12.5e6 }
    }

    #[test]
    fn more_repair_never_delays_more_and_nothing_is_later_than_asking() {
        for ground in [on(0.02, 1.0), on(0.1, 4.0)] {
            let outlook = predict(ground, &Config::default());
            assert_eq!(outlook.code.len(), POINTS as usize);
            for pair in outlook.code.windows(2) {
                assert!(pair[0].overhead < pair[1].overhead && pair[1].p99_ms <= pair[0].p99_ms + 0.1, "{pair:?}");
            }
            let Outlook { asking, chosen, .. } = outlook;
            assert!(outlook.code.iter().chain([&chosen]).all(|point| point.p95_ms <= asking.p95_ms));
            assert!(asking.p99_ms >= 64.0 && chosen.p95_ms < asking.p95_ms && chosen.repair > 0.0, "{chosen:?}");
        }
    }

    #[test]
    fn a_target_is_planned_for() {
        let mut config =
            Config::builder().latency(Some(Duration::from_millis(30))).max_overhead(0.5).build().expect("in range");
        let outlook = predict(on(0.1, 1.0), &config);
        let plan = outlook.plan.expect("a target was given");
        assert!(plan.nearest.is_none() && outlook.chosen.p99_ms <= 30.0, "{:?}", outlook.chosen);
        config =
            config.to_builder().latency(Some(Duration::from_millis(3))).max_overhead(0.1).build().expect("in range");
        assert!(predict(on(0.1, 4.0), &config).plan.is_some_and(|plan| plan.nearest.is_some()));
    }

    #[test]
    fn a_clean_path_has_no_curve() {
        let outlook = predict(on(0.0, 1.0), &Config::default());
        assert!(outlook.code.is_empty() && outlook.plan.is_none());
        assert_eq!((outlook.chosen.repair, outlook.asking.p99_ms), (0.0, 0.0));
    }
}
