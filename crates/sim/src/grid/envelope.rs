//! The best of all policies at the overhead that ours used, and the ratio of ours to it.
//!
//! A policy counts if it sent no more than ours for each byte and delivered as much. If one member of a
//! family sent less than ours and the next one more, the delay between them is interpolated geometrically in
//! what was sent, because near capacity it falls by factors.

use super::families::Family;
use super::figures::{Figures, Measured, Part};

/// A member of a family in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The family.
    pub family: Family,
    /// The number of the member.
    pub number: f64,
    /// Its result.
    pub measured: Measured,
}

/// The least value of a figure, and the policy that reached it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Least {
    /// Milliseconds.
    pub value: f64,
    /// The family.
    pub family: Family,
    /// The number of the member; it may be interpolated.
    pub number: f64,
}

/// The least mean and the least p99, possibly of two policies. `None` if no policy sent as little as ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Envelope {
    /// The least mean delay.
    pub mean: Option<Least>,
    /// The least 99th percentile of the delay.
    pub p99: Option<Least>,
}

/// A policy counts if it delivers at least this fraction of what ours does. It allows for one round trip of
/// waiting at the end of a run, and for chance.
const DELIVERED: f64 = 0.98;
/// Delays below these count as equal: a quarter of the time of a packet at 25 Mbit/s for the mean, one packet
/// for p99.
const MEAN_FLOOR_MS: f64 = 0.12;
const P99_FLOOR_MS: f64 = 0.48;
/// The goals for our mean and our p99, as factors of the best (`docs/envelope.md`).
const MEAN_GOAL: f64 = 1.10;
const P99_GOAL: f64 = 1.25;

impl Envelope {
    /// The envelope of `points`, which are in order of their numbers within each family, at what ours sent
    /// and delivered.
    pub fn of(points: &[Point], ours: &Measured, part: Part) -> Self {
        let ours = ours.part(part);
        let least = |figure: fn(&Figures) -> f64, floor: f64| {
            let single = points.iter().filter(|point| counts(point.measured.part(part), ours));
            let single =
                single.filter(|point| point.measured.part(part).sent_per_byte <= ours.sent_per_byte).map(|point| {
                    Least { value: figure(point.measured.part(part)), family: point.family, number: point.number }
                });
            let between = points.windows(2).filter_map(|pair| between(&pair[0], &pair[1], part, ours, figure, floor));
            single.chain(between).min_by(|a, b| a.value.total_cmp(&b.value))
        };
        Self { mean: least(|f| f.mean_ms, MEAN_FLOOR_MS), p99: least(|f| f.p99_ms, P99_FLOOR_MS) }
    }

    /// Whether the mean or the p99 is at most `factor` times that of `other`.
    pub(super) fn is_near(&self, other: &Self, factor: f64) -> bool {
        let near = |one: Option<Least>, other: Option<Least>, floor: f64| match (one, other) {
            (Some(one), Some(other)) => one.value <= factor * other.value.max(floor),
            _ => false,
        };
        near(self.mean, other.mean, MEAN_FLOOR_MS) || near(self.p99, other.p99, P99_FLOOR_MS)
    }

    /// Our mean over the least mean, and our p99 over the least p99; 0 if there is none.
    pub fn ratios(&self, ours: &Figures) -> [f64; 2] {
        let ratio = |ours: f64, least: Option<Least>, floor: f64| {
            least.map_or(0.0, |least| ours.max(floor) / least.value.max(floor))
        };
        [ratio(ours.mean_ms, self.mean, MEAN_FLOOR_MS), ratio(ours.p99_ms, self.p99, P99_FLOOR_MS)]
    }
}

/// Whether both goals are reached.
pub fn reached([mean, p99]: [f64; 2]) -> bool {
    mean <= MEAN_GOAL && p99 <= P99_GOAL
}

fn counts(figures: &Figures, ours: &Figures) -> bool {
    figures.goodput_bps >= DELIVERED * ours.goodput_bps
}

/// The figure at which a family sends as much as ours, between `a`, which sent less, and `b`, which sent
/// more.
fn between(a: &Point, b: &Point, part: Part, ours: &Figures, figure: fn(&Figures) -> f64, floor: f64) -> Option<Least> {
    let (from, to) = (a.measured.part(part), b.measured.part(part));
    let straddles = from.sent_per_byte <= ours.sent_per_byte && ours.sent_per_byte < to.sent_per_byte;
    if a.family != b.family || !straddles || !counts(from, ours) || !counts(to, ours) {
        return None;
    }
    let along = (ours.sent_per_byte - from.sent_per_byte) / (to.sent_per_byte - from.sent_per_byte);
    let (low, high) = (figure(from).max(floor).ln(), figure(to).max(floor).ln());
    let value = (low + along * (high - low)).exp();
    Some(Least { value, family: a.family, number: a.number + along * (b.number - a.number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(sent_per_byte: f64, mean_ms: f64, goodput_bps: f64) -> Measured {
        let figures = Figures { sent_per_byte, mean_ms, p99_ms: 4.0 * mean_ms, goodput_bps };
        Measured { steady: figures, whole: figures }
    }

    fn point(family: Family, number: f64, sent: f64, mean: f64) -> Point {
        Point { family, number, measured: figures(sent, mean, 1e7) }
    }

    #[test]
    fn who_sends_more_or_delivers_less_does_not_count() {
        let ours = figures(1.3, 10.0, 1e7);
        let lazy = Point { measured: figures(1.2, 1.0, 9e6), ..point(Family::Open, 0.1, 0.0, 0.0) };
        let points = [point(Family::Arq, 1.0, 1.1, 40.0), lazy, point(Family::Closed, 0.4, 1.4, 2.0)];
        let envelope = Envelope::of(&points, &ours, Part::Steady);
        assert_eq!(envelope.mean, Some(Least { value: 40.0, family: Family::Arq, number: 1.0 }));
        assert_eq!(envelope.ratios(&ours.steady), [0.25, 0.25]);
        let cheap = figures(1.05, 10.0, 1e7);
        assert_eq!(Envelope::of(&points, &cheap, Part::Whole).ratios(&cheap.whole), [0.0, 0.0]);
    }

    #[test]
    fn a_family_is_read_between_its_points_but_not_across_families() {
        let ours = figures(1.3, 10.0, 1e7);
        let points = [point(Family::Closed, 0.2, 1.2, 16.0), point(Family::Closed, 0.4, 1.4, 4.0)];
        let [mean, p99] = Envelope::of(&points, &ours, Part::Steady).ratios(&ours.steady);
        assert!((mean - 10.0 / 8.0).abs() < 1e-9 && (p99 - 10.0 / 8.0).abs() < 1e-9, "{mean} {p99}");
        assert!(!reached([mean, p99]) && reached([1.1, 1.25]));
        let points = [points[0], point(Family::Margin, 0.4, 1.4, 4.0)];
        assert_eq!(Envelope::of(&points, &ours, Part::Steady).ratios(&ours.steady), [0.625, 0.625]);
    }

    #[test]
    fn delays_below_a_packet_are_equal() {
        let ours = figures(1.3, 0.1, 1e7);
        let envelope = Envelope::of(&[point(Family::Closed, 0.3, 1.3, 0.001)], &ours, Part::Steady);
        assert_eq!(envelope.ratios(&ours.steady), [1.0, 1.0]);
    }
}
