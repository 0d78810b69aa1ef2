//! `cargo xtask figures forward`: the delay of records that cross `tidewire forward` and `serve`, against the goals of L1; and what two hundred
//! connections notice of one that nobody reads.
//!
//! As [`super`], run by hand on a quiet machine. The applications are threads of this process, everything between them are real processes.
//! Invariant: records that did not all arrive give no figures.

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
    // As the peers were measured.
    seconds: 12,
    rows: || {
        let delays = delay::ROWS.iter().map(|row| name("delay", row.name));
        delays.chain(crowd::ROWS.iter().map(|row| name("crowd", row.0))).collect()
    },
    measure,
};

/// One way over the link, of `cell::LINK_OPTIONS`.
const ONE_WAY: Duration = Duration::from_millis(30);
/// How much longer than planned a run may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// By what a row of this table is chosen.
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
