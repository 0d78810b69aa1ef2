//! `tidewire replay FILE`: runs a recorded flow again, in virtual time, over its recorded path and with other
//! choices, and shows delay against overhead with the recorded run beside it.

use std::path::{Path, PathBuf};

use tidewire_command::exit::{Exit, Failure};
use tidewire_command::options::{Coding, Output};
use tidewire_command::report::Console;
use tidewire_command::stdout;
use tidewire_dashboard::what_if::{self, Alternative, News, ReplayError, Row};

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
    let alternative = alternative(&args.coding)?;
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
    let rows = what_if::run(&args.file, args.peer.as_deref(), &alternative, &mut tell).map_err(failed)?;
    let rows = rows.unwrap_or_default();
    if !console.json() {
        stdout::write(&table(&rows));
    }
    args.svg.as_deref().map_or(Ok(()), |path| draw(path, &rows))
}

/// The choices of the options. The rate of a replay is the recorded one.
fn alternative(coding: &Coding) -> Result<Alternative, Failure> {
    if coding.rate_control.is_some() || coding.max_rate.is_some() || coding.workers > 0 {
        let text = "a replay keeps the recorded rate: leave out --rate-control, --max-rate and --workers";
        return Err(Failure::message(Exit::Usage, text));
    }
    let Coding { profile, code, redundancy, latency, deliver, max_overhead, .. } = *coding;
    Ok(Alternative { profile, code, redundancy, latency, deliver, max_overhead })
}

fn failed(error: ReplayError) -> Failure {
    let exit = if matches!(error, ReplayError::File(..)) { Exit::LocalIo } else { Exit::Usage };
    Failure::new(exit, error)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser;

    use super::*;

    /// The options of coding as a command line of their own.
    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Words {
        #[command(flatten)]
        coding: Coding,
    }

    /// The choices of the command line, or the first sentence about what is wrong with it.
    fn of_options(choices: &BTreeMap<String, String>) -> Result<Alternative, String> {
        let words = Words::try_parse_from(choices.iter().map(|(name, value)| format!("--{name}={value}")));
        words.map(|words| alternative(&words.coding).unwrap()).map_err(|error| {
            let text = error.render().to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            first.trim_start_matches("error: ").split_whitespace().collect::<Vec<_>>().join(" ")
        })
    }

    #[test]
    fn a_page_and_the_command_line_read_the_same_choices_and_refuse_them_in_the_same_words() {
        let table: [(&str, &[&str]); 6] = [
            ("profile", &["arq", "stream", "bogus", ""]),
            ("code", &["rlnc", "raptorq", "bogus", ""]),
            ("redundancy", &["none", "every:5", "every:0", "--svg=/etc/passwd", "bogus"]),
            ("latency", &["60ms", "1us", "soon"]),
            ("deliver", &["99%", "10%", "most"]),
            ("max-overhead", &["25%", "0.25", "200%"]),
        ];
        for (name, values) in table {
            for value in values {
                for latency in [None, Some("80ms")] {
                    let mut choices = BTreeMap::from([(name.to_owned(), (*value).to_owned())]);
                    if let (Some(latency), true) = (latency, name != "latency") {
                        choices.insert("latency".into(), latency.into());
                    }
                    let of_page = Alternative::parse(&choices).map_err(|error| error.to_string());
                    assert_eq!(of_page, of_options(&choices), "{choices:?}");
                }
            }
        }
    }
}
