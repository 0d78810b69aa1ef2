//! The command line of `cargo xtask figures`.

use super::cell::{CAPACITY, CELLS, Cell};
use super::run::STEADY_FROM;

/// What was asked for.
#[derive(Debug, PartialEq)]
pub struct Options {
    /// Runs of each cell, with the seeds 1, 2, ...
    pub seeds: u64,
    /// Only cells whose name has this in it.
    pub only: String,
    /// Length of the file.
    pub bytes: usize,
    /// What `send --redundancy` is given; nothing for its default.
    pub redundancy: Option<String>,
    /// Whether the report replaces `docs/figures.md`.
    pub write: bool,
}

impl Options {
    /// The cells to measure; never none.
    pub fn cells(&self) -> Vec<Cell> {
        CELLS.into_iter().filter(|cell| cell.matches(&self.only)).collect()
    }
}

/// Reads the arguments behind `figures`.
pub fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options { seeds: 3, only: String::new(), bytes: DEFAULT_BYTES, redundancy: None, write: false };
    let mut rest = arguments.iter();
    while let Some(option) = rest.next() {
        if option == "--write" {
            options.write = true;
            continue;
        }
        let mut value = || rest.next().ok_or_else(|| format!("`{option}` is no option, or lacks its value"));
        match option.as_str() {
            "--seeds" => options.seeds = seeds(value()?)?,
            "--cells" => options.only.clone_from(value()?),
            "--bytes" => options.bytes = bytes(value()?)?,
            "--redundancy" => options.redundancy = Some(value()?.clone()),
            _ => return Err(format!("there is no option `{option}`")),
        }
    }
    if options.cells().is_empty() {
        let names: Vec<_> = CELLS.iter().map(|cell| cell.name).collect();
        return Err(format!("no cell has `{}` in its name; there are {}", options.only, names.join("; ")));
    }
    Ok(options)
}

fn seeds(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|&seeds| seeds > 0).ok_or_else(|| format!("`{text}` is no number of seeds; try --seeds 3"))
}

/// A length with its unit. One that leaves no steady state to measure is refused here, not after the first run.
fn bytes(text: &str) -> Result<usize, String> {
    let (number, scale) = UNITS
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))
        .ok_or_else(|| format!("`{text}` has no unit; try --bytes 48MB"))?;
    let number: usize = number.trim_end().parse().map_err(|_| format!("`{text}` is no length; try --bytes 48MB"))?;
    let bytes = number.checked_mul(*scale).filter(|bytes| *bytes <= MAX_BYTES);
    let bytes = bytes.ok_or_else(|| format!("{text} is too long; at most 1GB"))?;
    if bytes < MIN_BYTES {
        let seconds = bytes as f64 * 8.0 / CAPACITY;
        return Err(format!(
            "{text} may take only {seconds:.1} s and the steady state begins after {} s; give at least 20MB",
            STEADY_FROM.as_secs()
        ));
    }
    Ok(bytes)
}

const UNITS: [(&str, usize); 3] = [("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];
/// The length the goals are stated for.
const DEFAULT_BYTES: usize = 48_000_000;
/// At full rate 6.4 s: two seconds of progress after the steady state began.
const MIN_BYTES: usize = 20_000_000;
/// Chosen: the file and its copy are held in memory to compare them.
const MAX_BYTES: usize = 1_000_000_000;

/// What `--help` prints.
pub const HELP: &str = "\
cargo xtask figures [OPTIONS]     the README's figures, measured with real processes on this machine

Sends a file with `tidewire send` through `tidewire lab link` (25 Mbit/s, 60 ms) to `tidewire receive` over every kind
of loss, and holds goodput, queueing and bytes sent to the goals. Close everything else first: 27 runs of some 20 s.

  --seeds N          runs of each cell; the tables have their medians [default: 3]
  --cells SUBSTRING  only cells with this in their name, spaces aside [examples: iid10%, gilbert, back]
  --bytes LENGTH     length of the file [default: 48MB, which the goals are stated for]
  --redundancy P     another policy than send's own [examples: none, every:5, block:32,8]
  --write            replace docs/figures.md by the report

`cargo xtask figures forward` measures the delay of forwarded TCP connections instead.

Exit code: 0 if every goal holds, 1 if one is missed or a run failed, 2 for a wrong command line.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn every_option_is_understood() {
        let plain = read("").unwrap();
        assert_eq!((plain.seeds, plain.bytes, plain.write, plain.cells().len()), (3, 48_000_000, false, 9));
        let all = read("--seeds 1 --cells iid5% --bytes 24MB --redundancy every:5 --write").unwrap();
        assert_eq!(
            (all.seeds, all.bytes, all.write, all.redundancy.as_deref()),
            (1, 24_000_000, true, Some("every:5"))
        );
        assert_eq!(all.cells().iter().map(|cell| cell.name).collect::<Vec<_>>(), ["iid 5 %", "iid 5 %, back 5 %"]);
    }

    #[test]
    fn a_wrong_command_line_is_refused() {
        let wrong =
            "--seeds|--seeds 0|--seeds few|--cells iid3%|--bytes 48|--bytes MB|--bytes 6MB|--bytes 2GB|--fast|now";
        for line in wrong.split('|') {
            assert!(read(line).is_err(), "{line:?} was accepted");
        }
    }
}
