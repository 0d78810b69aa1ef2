//! The command line of `cargo measure figures`, the same for all subjects.

use super::Subject;

/// The parsed command line.
#[derive(Debug)]
pub struct Options {
    pub subject: &'static Subject,
    /// Number of runs of each row. Their seeds are 1, 2 and so on.
    pub seeds: u64,
    /// Measure only rows whose name contains this.
    only: String,
    /// Length of a run in seconds, where a run has a time.
    pub seconds: u64,
    /// Length of the file, where a run sends one.
    pub bytes: usize,
    /// The argument of `send --redundancy`; `None` for its default.
    pub redundancy: Option<String>,
    /// Whether runs that could share the machine run one after the other.
    pub alone: bool,
    /// Whether the report replaces the committed one.
    pub write: bool,
}

impl Options {
    /// Whether the row of this name is chosen. Case and spaces are ignored, so that `--only` needs no quotes.
    pub fn wants(&self, name: &str) -> bool {
        let plain = |text: &str| text.split_whitespace().collect::<String>().to_lowercase();
        plain(name).contains(&plain(&self.only))
    }
}

/// Reads the arguments behind `figures`: the name of one of `subjects` (the first if there is none) and its
/// options.
pub fn parse(arguments: &[String], subjects: &'static [Subject]) -> Result<Options, String> {
    let named = arguments.first().and_then(|word| subjects.iter().find(|subject| subject.name == word));
    let subject = named.or(subjects.first()).ok_or("there is nothing to measure")?;
    let mut options = Options {
        subject,
        seeds: 3,
        only: String::new(),
        seconds: subject.seconds,
        bytes: DEFAULT_BYTES,
        redundancy: None,
        alone: false,
        write: false,
    };
    let mut rest = arguments[usize::from(named.is_some())..].iter();
    while let Some(option) = rest.next() {
        let name = option.as_str();
        if !COMMON.contains(&name) && !subject.options.contains(&name) {
            return Err(format!("`figures {}` has no option `{name}`", subject.name));
        }
        let mut value = || rest.next().ok_or_else(|| format!("`{name}` lacks its value"));
        match name {
            "--write" => options.write = true,
            "--alone" => options.alone = true,
            "--seeds" => options.seeds = number(value()?, 1)?,
            "--only" => options.only.clone_from(value()?),
            "--seconds" => options.seconds = number(value()?, LEAST_SECONDS)?,
            "--bytes" => options.bytes = bytes(value()?)?,
            "--redundancy" => options.redundancy = Some(value()?.clone()),
            _ => return Err(format!("there is no option `{name}`")),
        }
    }
    let rows = (subject.rows)();
    if !rows.iter().any(|row| options.wants(row)) {
        return Err(format!("no row name contains `{}`; the rows are {}", options.only, rows.join("; ")));
    }
    Ok(options)
}

fn number(text: &str, least: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|&number| number >= least);
    number.ok_or_else(|| format!("`{text}` is not a whole number of at least {least}"))
}

/// Reads a length with its unit. A file too short for a steady state is refused here, not after the first
/// run.
fn bytes(text: &str) -> Result<usize, String> {
    let (number, scale) = UNITS
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))
        .ok_or_else(|| format!("`{text}` has no unit; try --bytes 48MB"))?;
    let number: usize = number.trim_end().parse().map_err(|_| format!("`{text}` is not a length; try --bytes 48MB"))?;
    let bytes = number.checked_mul(*scale).filter(|bytes| *bytes <= MAX_BYTES);
    let bytes = bytes.ok_or_else(|| format!("{text} is too long; at most 1GB"))?;
    if bytes < MIN_BYTES {
        return Err(format!("{text} may be sent before the steady state begins after 3 s; give at least 20MB"));
    }
    Ok(bytes)
}

/// Options that every subject has.
const COMMON: [&str; 3] = ["--seeds", "--only", "--write"];
const UNITS: [(&str, usize); 3] = [("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];
/// The goals are stated for this length.
const DEFAULT_BYTES: usize = 48_000_000;
/// Takes 6.4 s at the full rate, which leaves two seconds of progress after the steady state began.
const MIN_BYTES: usize = 20_000_000;
/// Chosen: the file and its copy are held in memory to compare them.
const MAX_BYTES: usize = 1_000_000_000;
/// Two seconds of steady state.
const LEAST_SECONDS: u64 = 5;

/// What `--help` prints.
pub const HELP: &str = "\
cargo measure figures [OPTIONS]           goodput of whole files: the README's figures
cargo measure figures forward [OPTIONS]   delay of TCP connections through `tidewire forward`
cargo measure figures delay [OPTIONS]     delay of records, `tidewire bench`, and the same in the simulator
cargo measure figures recording [OPTIONS] what --record and --dashboard cost, a recording's size and page

Measures with real processes on this machine, through `tidewire-lab link`, and compares the figures with the goals. Close
all other programs first. The four take ten, eight, seven and fifteen minutes.

  --seeds N          runs of each row; the tables show medians [default: 3]
  --only SUBSTRING   only rows whose name contains this, without spaces [examples: iid10%, gilbert, crowd, L3]
  --write            replace the report: docs/figures.md, docs/figures-forward.md, docs/figures-delay.md,
                     docs/figures-recording.md
  --bytes LENGTH     files: length of the file [default: 48MB; the goals are stated for it]
  --redundancy P     files: redundancy policy of `send` [default: its own; examples: none, every:5]
  --seconds N        forward, delay, recording: length of a run [default: 12, 15, 12]
  --alone            delay: run the seeds of a row one after the other

Exit code: 0 if every goal holds, 1 if one is missed or a run failed, 2 for a wrong command line.
";

#[cfg(test)]
mod tests {
    use super::super::SUBJECTS;
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>(), &SUBJECTS)
    }

    fn rows(options: &Options) -> Vec<String> {
        (options.subject.rows)().into_iter().filter(|row| options.wants(row)).collect()
    }

    #[test]
    fn every_option_is_understood() {
        let plain = read("").unwrap();
        assert_eq!((plain.subject.name, plain.seeds, plain.bytes, plain.write), ("", 3, 48_000_000, false));
        assert_eq!(rows(&plain), (plain.subject.rows)());
        let all = read("--seeds 1 --only iid5% --bytes 24MB --redundancy every:5 --write").unwrap();
        assert_eq!(
            (all.seeds, all.bytes, all.write, all.redundancy.as_deref()),
            (1, 24_000_000, true, Some("every:5"))
        );
        assert_eq!(rows(&all), ["iid 5 %", "iid 5 %, back 5 %"]);
        let forward = read("forward --seconds 5 --only crowdiid10%").unwrap();
        assert_eq!((forward.seconds, rows(&forward)), (5, vec!["crowd iid 10 %".to_owned()]));
        let delay = read("delay --alone --only L4").unwrap();
        assert_eq!((delay.alone, delay.seconds, rows(&delay).len()), (true, 15, 2));
    }

    #[test]
    fn a_substring_chooses_rows_whatever_its_spaces_and_case() {
        let count = |wanted: &str| read(&format!("--only {wanted}")).map_or(0, |options| rows(&options).len());
        assert_eq!(["iid", "GILBERT", "iid1%", "back"].map(count), [7, 2, 1, 1]);
    }

    #[test]
    fn a_wrong_command_line_is_refused() {
        let wrong = "--seeds|--seeds 0|--seeds few|--only iid3%|--bytes 48|--bytes MB|--bytes 6MB|--bytes 2GB|--fast|now\
                     |--seconds 9|forward --seconds 4|forward --bytes 48MB|delay --redundancy none|goodput";
        for line in wrong.split('|') {
            assert!(read(line).is_err(), "{line:?} was accepted");
        }
    }
}
