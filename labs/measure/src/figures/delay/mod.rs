//! `cargo measure figures delay`: measures how late records arrive in order, by `tidewire bench` over the
//! emulated link, and compares the delays with the goals. The same records cross the same link in the
//! simulator, whose delays must agree.
//!
//! All settings are the defaults. The seeds of a row run at the same time if they leave most of two cores
//! idle; `--alone` shows whether that changes the figures. Each figure is given for the whole run and from
//! the third second on, because start-up is part of a job, but delay matters mostly after it. Both have the
//! same goal.

mod report;
mod row;
mod run;

use super::measured::{Measured, Seeds};
use super::{Report, Session, Subject};
use report::{Line, Text};
use row::ROWS;
use run::{Figures, Scenario};

/// See the module.
pub const SUBJECT: Subject = Subject {
    name: "delay",
    report: "docs/figures-delay.md",
    options: &["--seconds", "--alone"],
    // The peers of docs/lab.md were measured for as long.
    seconds: 15,
    rows: || ROWS.iter().map(|row| row.name.into()).collect(),
    measure,
};

/// Measures every chosen row: first all its seeds with real processes, then the same seeds in virtual time.
fn measure(session: &Session<'_>) -> Result<Report, String> {
    let Session { options, binary, .. } = session;
    let mut lines = Vec::new();
    for row in ROWS.iter().filter(|row| options.wants(row.name)) {
        let order = if options.alone || row.is_busy() { Seeds::InTurn } else { Seeds::Together };
        let seeds = (options.seeds, order);
        let scenario = |seed| Scenario::write(row, seed, row.seconds(options.seconds));
        let emulated = Measured::of(row.name, seeds, |seed| scenario(seed)?.emulate(binary), Figures::line);
        let simulated = Measured::of("  simulated", seeds, |seed| scenario(seed)?.simulate(binary), Figures::line);
        lines.push(Line { row, emulated, simulated });
    }
    let text = Text { session, lines: &lines };
    Ok(Report { text: text.to_string(), holds: text.missed() == 0 })
}
