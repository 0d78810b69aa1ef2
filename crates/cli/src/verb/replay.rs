//! `tidewire replay FILE`: runs a recorded flow again, in virtual time, over its recorded path and with other
//! choices, and shows delay against overhead with the recorded run beside it.

use std::io::Write;
use std::path::{Path, PathBuf};

use tidewire_command::exit::{Exit, Failure};
use tidewire_command::options::{Coding, Output};
use tidewire_command::report::Console;

use crate::what_if::{self, News, Row};

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Recording of the end that sent (see --record)
    file: PathBuf,
    /// Recording of the end that received. It has the exact delays, which the sending end only estimates
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
    /// Draw delay against overhead into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    coding: Coding,
}

/// Replays the flow.
///
/// # Errors
/// [`Exit::Usage`] for a file that is no recording, is damaged or has no flow, or choices that exclude each
/// other; [`Exit::LocalIo`] if a file cannot be read or written.
pub fn run(args: &Args, console: &Console) -> Result<(), Failure> {
    let mut tell = |news: News<'_>| {
        match news {
            News::Remark(sentence) => console.say(sentence),
            News::Warning(sentence) => console.warn(&format!("tidewire: {sentence}")),
            News::Row(row) => console.event(&row.event()),
            News::Progress(..) => {}
        }
        true
    };
    // Nothing stops it, so it has rows.
    let rows = what_if::run(&args.file, args.peer.as_deref(), &args.coding, &mut tell)?.unwrap_or_default();
    if !console.json() {
        // A reader that closed the pipe is not a failure.
        let _ = write!(std::io::stdout().lock(), "{}", table(&rows));
    }
    args.svg.as_deref().map_or(Ok(()), |path| draw(path, &rows))
}

/// Makes a table with a line for each run.
fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let mut out = format!("{:<width$}  overhead   loss  in-order delay beyond the one-way time\n", "");
    for row in rows {
        let ms = |q| row.delay.quantile(q).map_or_else(|| "-".into(), |value| format!("{value:.1}"));
        let incomplete = if row.done == Some(false) { "  (not all bytes arrived)" } else { "" };
        out.push_str(&format!(
            "{:<width$}  {:>6.1} %  {:>4.1} %  p50 {}, p95 {}, p99 {}, p99.9 {} ms{incomplete}\n",
            row.name,
            100.0 * row.overhead,
            100.0 * row.loss,
            ms(0.5),
            ms(0.95),
            ms(0.99),
            ms(0.999),
        ));
    }
    out
}

fn draw(path: &Path, rows: &[Row]) -> Result<(), Failure> {
    std::fs::write(path, what_if::picture(rows))
        .map_err(|error| Failure::message(Exit::LocalIo, format_args!("cannot write `{}`: {error}", path.display())))
}
