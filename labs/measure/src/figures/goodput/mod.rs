//! `cargo measure figures`: measures the goodput of whole files, which the README states.
//!
//! Each run sends one file from `tidewire send` through `tidewire-lab link` to `tidewire receive`.

pub mod cell;
mod report;
mod run;

use super::measured::{Measured, Seeds};
use super::{Report, Session, Subject};
use cell::CELLS;
use report::{Row, Text};
use run::{Figures, Folder, Setup};

/// See the module.
pub const SUBJECT: Subject = Subject {
    name: "",
    report: "docs/figures.md",
    options: &["--bytes", "--redundancy"],
    seconds: 0,
    rows: || CELLS.iter().map(|cell| cell.name.into()).collect(),
    measure,
};

/// Measures every chosen cell.
fn measure(session: &Session<'_>) -> Result<Report, String> {
    let options = session.options;
    let folder = Folder::new(options.bytes)?;
    let setup = Setup { binary: &session.binary, folder: &folder, redundancy: options.redundancy.as_deref() };
    let wanted = CELLS.iter().filter(|cell| options.wants(cell.name));
    // The file of one run is compared before the next begins.
    let seeds = (options.seeds, Seeds::InTurn);
    let rows: Vec<_> = wanted
        .map(|cell| Row { cell, measured: Measured::of(cell.name, seeds, |seed| run::run(cell, seed, &setup), line) })
        .collect();
    Ok(Report { text: Text { session, rows: &rows }.to_string(), holds: rows.iter().all(Row::holds) })
}

/// The figures of a run in one line, printed after each run.
fn line(figures: &Figures) -> String {
    let mut text = format!(
        "{:.2} Mbit/s = {:.3} C(1-p), steady {:.3}, queue drops {:.2} %, queueing {:.1} ms, sent/app {:.3}, \
         p99 {:.0} ms",
        figures.goodput / 1e6,
        figures.share,
        figures.steady,
        figures.queue_drops,
        figures.queueing_ms,
        figures.sent_per_app,
        figures.delay_ms[3],
    );
    if figures.unseen > 0 {
        text += &format!("; {} packets never reached the emulator: the machine is too busy", figures.unseen);
    }
    text
}
