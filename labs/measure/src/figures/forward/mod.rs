//! `cargo measure figures forward`: measures the delay of records that cross `tidewire forward` and `serve`,
//! and how much a connection that nobody reads delays two hundred others.
//!
//! A person runs this on a quiet machine. The applications are threads of this process; everything between
//! them are real processes. Invariant: a run gives figures only if all its records arrived.

mod application;
mod crowd;
mod delay;
mod report;
mod stage;

use std::time::Duration;

use super::measured::{Measured, Seeds};
use super::{Report, Session, Subject};
use report::Text;

/// See the module.
pub const SUBJECT: Subject = Subject {
    name: "forward",
    report: "docs/figures-forward.md",
    options: &["--seconds"],
    // The peers of docs/lab.md were measured for as long.
    seconds: 12,
    rows: || {
        let delays = delay::ROWS.iter().map(|row| name("delay", row.name));
        delays.chain(crowd::ROWS.iter().map(|row| name("crowd", row.0))).collect()
    },
    measure,
};

/// The one-way time of the link of `cell::LINK_OPTIONS`.
const ONE_WAY: Duration = Duration::from_millis(30);
/// A run may take this much longer than planned.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name by which `--only` chooses a row of this table.
fn name(table: &str, row: &str) -> String {
    format!("{table} {row}")
}

fn measure(session: &Session<'_>) -> Result<Report, String> {
    let Session { options, binary, .. } = session;
    let length = Duration::from_secs(options.seconds);
    let seeds = (options.seeds, Seeds::InTurn);
    let mut delays = Vec::new();
    for row in delay::ROWS.iter().filter(|row| options.wants(&name("delay", row.name))) {
        let run = |seed| delay::run(row, seed, length, binary);
        delays.push((row, Measured::of(row.name, seeds, run, |figures| format!("{figures:.3?}"))));
    }
    let mut crowds = Vec::new();
    for (row, loss) in crowd::ROWS.into_iter().filter(|(row, _)| options.wants(&name("crowd", row))) {
        let run = |seed| crowd::run(loss, seed, length / 2, binary);
        crowds.push((row, Measured::of(row, seeds, run, |figures| format!("{figures:.3?}"))));
    }
    let text = Text { session, delays: &delays, crowds: &crowds };
    Ok(Report { text: text.to_string(), holds: text.missed() == 0 })
}
