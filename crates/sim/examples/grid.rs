//! Compares our redundancy policy with the best of all policies, over a grid of links: docs/envelope.md.
//!
//! `cargo run --release -p tidewire-sim --example grid -- [--full] [--cells TEXT] [--seeds N] [--seconds N]
//! [--json FILE]`
//!
//! Each row is printed to standard error when it is measured. The tables go to standard output.

use std::process::ExitCode;

use tidewire_sim::grid::{Effort, Family, Part, around, core, json, judge, markdown};

struct Options {
    full: bool,
    cells: String,
    effort: Effort,
    json: Option<String>,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}; known: --full, --cells TEXT, --seeds N, --seconds N, --json FILE");
            return ExitCode::from(2);
        }
    };
    let mut cells = core();
    if options.full {
        cells.extend(around());
    }
    cells.retain(|cell| cell.to_string().contains(&options.cells));
    let rows = judge(&cells, &Family::ALL, options.effort, |row| {
        let [mean, p99] = row.ratios(Part::Steady);
        eprintln!("{}: mean {mean:.2}, p99 {p99:.2} of the best", row.cell);
    });
    println!("From the third second on:\n\n{}", markdown(&rows, Part::Steady));
    println!("From the beginning:\n\n{}", markdown(&rows, Part::Whole));
    if let Some(path) = options.json
        && let Err(error) = std::fs::write(&path, json(&rows))
    {
        eprintln!("{path}: {error}");
        return ExitCode::from(7);
    }
    ExitCode::SUCCESS
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options =
        Options { full: false, cells: String::new(), effort: Effort { seeds: 3, seconds: 20 }, json: None };
    while let Some(name) = arguments.next() {
        if name == "--full" {
            options.full = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name} without a value"))?;
        let number =
            || value.parse::<u32>().ok().filter(|&n| n > 0).ok_or_else(|| format!("{name} {value}: not a count"));
        match &name[..] {
            "--cells" => options.cells = value,
            "--seeds" => options.effort.seeds = number()?.into(),
            "--seconds" => options.effort.seconds = number()?,
            "--json" => options.json = Some(value),
            _ => {
                return Err(format!("unknown option {name}: there are --full, --cells, --seeds, --seconds and --json"));
            }
        }
    }
    Ok(options)
}
