//! The grid: our redundancy policy with its defaults against every known policy, through the real protocol
//! and over the same links.
//!
//! For each [`Cell`] ours runs first. Then each [`Family`] of policies runs with the numbers of its ladder,
//! from little sent to much, until it sends more than ours, and twice more with numbers that should send as
//! much. Families that are near the best with the first seed run again with all seeds. [`Envelope`] then
//! gives the best result at no more than what ours sent. Tests and the example `grid` call [`judge`]. The row
//! of a cell depends only on the cell, the seeds and the seconds.

mod baselines;
mod cells;
mod envelope;
mod families;
mod figures;
mod table;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tidewire_proto::profile::{Profile, STREAM};
use tidewire_proto::redundancy::Redundancy;

pub use cells::{Cell, around, core};
pub use envelope::{Envelope, Least, Point, reached};
pub use families::Family;
pub use figures::{Figures, Measured, Part};
pub use table::{json, markdown};

/// How long and how often each policy runs.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of seeds, over which medians are taken.
    pub seeds: u64,
    /// Virtual seconds after the first three.
    pub seconds: u32,
}

/// The results of a cell.
#[derive(Clone, Debug)]
pub struct Row {
    /// The cell.
    pub cell: Cell,
    /// The result of ours.
    pub ours: Measured,
    /// All other results, by family and number.
    pub points: Vec<Point>,
}

impl Row {
    /// The best of the others, at what ours sent in this part of the run.
    pub fn envelope(&self, part: Part) -> Envelope {
        Envelope::of(&self.points, &self.ours, part)
    }

    /// Our mean and p99 over the best.
    pub fn ratios(&self, part: Part) -> [f64; 2] {
        self.envelope(part).ratios(self.ours.part(part))
    }
}

/// Runs every cell with all of `families`, two cells at a time. Passes each row to `done` as it is ready, and
/// returns all rows in the order of `cells`.
pub fn judge(cells: &[Cell], families: &[Family], effort: Effort, done: impl Fn(&Row) + Sync) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(cell) = cells.get(at) else { return };
                    let row = row(cell, families, effort);
                    done(&row);
                    rows.lock().expect("no run panics with it").push((at, row));
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("no run panics with it");
    rows.sort_by_key(|&(at, _)| at);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn row(cell: &Cell, families: &[Family], effort: Effort) -> Row {
    let redundancy = if cell.misjudged == 1.0 { Redundancy::ADAPTIVE } else { baselines::misled(cell.misjudged) };
    let profile = Profile { redundancy, ..STREAM };
    let ours = Measured::of(cell, profile, effort.seeds, effort.seconds);
    let first = Effort { seeds: 1, ..effort };
    let tried: Vec<Vec<Point>> = families.iter().map(|&family| climb(cell, family, &ours, first)).collect();
    let best = Envelope::of(&tried.concat(), &ours, Part::Steady);
    let again = |points: Vec<Point>| {
        let near = effort.seeds > 1 && Envelope::of(&points, &ours, Part::Steady).is_near(&best, NEAR);
        if near { climb(cell, points[0].family, &ours, effort) } else { points }
    };
    let points = tried.into_iter().flat_map(again).collect();
    Row { cell: *cell, ours, points }
}

/// A family whose mean and p99 are both more than this factor above the best with the first seed is not run
/// with the other seeds. Chosen: chance alone never makes such a difference.
const NEAR: f64 = 1.5;
/// Numbers tried between the two that send less and more than ours. After two, what is sent differs by a few
/// thousandths.
const REFINEMENTS: usize = 2;

/// Runs the family's ladder until it sends more than ours, and then numbers that should send as much.
fn climb(cell: &Cell, family: Family, ours: &Measured, effort: Effort) -> Vec<Point> {
    let run = |number| {
        let measured = Measured::of(cell, family.profile(number), effort.seeds, effort.seconds);
        Point { family, number, measured }
    };
    let sent = |point: &Point| point.measured.steady.sent_per_byte;
    let mut points = Vec::new();
    for number in family.ladder(cell) {
        let point = run(number);
        let above = sent(&point) > ours.steady.sent_per_byte;
        points.push(point);
        if above {
            break;
        }
    }
    for _ in 0..REFINEMENTS {
        let Some(at) = points.windows(2).position(|pair| straddles(&pair[0], &pair[1], ours)) else { break };
        let [from, to] = [at, at + 1].map(|at| (points[at].number, sent(&points[at])));
        let along = (ours.steady.sent_per_byte - from.1) / (to.1 - from.1);
        let number = family.nearest(from.0 + along * (to.0 - from.0));
        let Some(number) = number.filter(|&number| number != from.0 && number != to.0) else { break };
        points.insert(at + 1, run(number));
    }
    points
}

fn straddles(from: &Point, to: &Point, ours: &Measured) -> bool {
    let [from, ours, to] = [&from.measured, ours, &to.measured].map(|measured| measured.steady.sent_per_byte);
    from < ours && ours < to
}
