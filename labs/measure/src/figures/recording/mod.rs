//! `cargo measure figures recording`: measures what `--record` and `--dashboard` cost a job, how large a
//! recording is, and how long the page takes to open it.
//!
//! A person runs this on a quiet machine. The same job runs with both options at both ends and without them,
//! in turn. Invariant: a cost is the difference of two medians over the same seeds.

mod browser;
mod report;
mod run;

use super::measured::{Measured, Seeds};
use super::{Report, Session, Subject};
use std::path::Path;

use report::Text;
use run::{Figures, Size};

/// See the module.
pub const SUBJECT: Subject = Subject {
    name: "recording",
    report: "docs/figures-recording.md",
    options: &["--seconds"],
    // Start-up takes the first three.
    seconds: 12,
    rows: || ROWS.iter().map(|row| row.name.into()).chain([SIZE.into(), PAGE.into()]).collect(),
    measure,
};

/// A load of the link of 100 Mbit/s.
pub struct Row {
    pub name: &'static str,
    /// What `bench --bitrate` is given; `None` for as much as the path takes.
    pub bitrate: Option<&'static str>,
}

/// At full load the goodput shows what is lost, and the delay is that of a full queue. At half load the delay
/// shows.
pub const ROWS: [Row; 2] =
    [Row { name: "full load", bitrate: None }, Row { name: "half load", bitrate: Some("50mbit") }];
/// The name of the row that measures the files of a job of ten minutes.
pub const SIZE: &str = "size of ten minutes";
/// The name of the row that measures the files of a simulated flow of as long, in a minute.
pub const PAGE: &str = "page load";

/// Runs of a row without and with the two options.
pub struct Costs {
    pub row: &'static Row,
    pub off: Measured<Figures>,
    pub on: Measured<Figures>,
}

fn measure(session: &Session<'_>) -> Result<Report, String> {
    let Session { options, binary, .. } = session;
    let mut costs = Vec::new();
    for row in ROWS.iter().filter(|row| options.wants(row.name)) {
        let of = |name: &str, is_watched| {
            let run = |seed| run::run(row, seed, options.seconds, is_watched, binary);
            Measured::of(name, (options.seeds, Seeds::InTurn), run, Figures::line)
        };
        costs.push(Costs { row, off: of(row.name, false), on: of("  watched", true) });
    }
    let once = |name: &'static str, run: fn(&Path) -> Result<Size, String>| {
        let is_wanted = options.wants(name);
        is_wanted.then(|| (name, Measured::of(name, (1, Seeds::InTurn), |_| run(binary), Size::line)))
    };
    let sizes: Vec<_> = [once(SIZE, run::size), once(PAGE, run::page)].into_iter().flatten().collect();
    let text = Text { session, costs: &costs, sizes: &sizes };
    Ok(Report { text: text.to_string(), holds: text.missed() == 0 })
}
