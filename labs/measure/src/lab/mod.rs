//! `cargo measure lab`: checks the namespace lab, and uses it to measure peers on the same links, the share
//! that our rate control leaves to kernel TCP, how close the simulator's TCP is to the kernel's, the tunnel,
//! and live video beside its peers.
//!
//! A person runs this command as root on a quiet machine; no step does, because the times depend on the load
//! of the machine. Each of its parts can be run alone. With `--write` the text of a part goes
//! between its two marks in its document, and its tables into `docs/data/measured-PART.csv`. Invariant: every
//! printed figure was measured in this call.

mod contests;
mod live;
mod peers;
mod tunnel;

use crate::context::{Context, lab_of};
use crate::figures::Machine;
use crate::tables;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The line of `cargo xtask`'s help.
pub const ABOUT: &str = "the namespace lab (as root): self-check, peers, flows beside kernel TCP, the simulator's TCP, the tunnel, live video; `check`, `peers`, `contests`, `tcp`, `tunnel`, `live`, `tunnel-share` ...: some parts; \
     `--full`: all rows and three seeds, hours; `--binary FILE`: a command that is built already; `--write`: into docs/lab.md, docs/tunnel.md, docs/live.md and docs/data";

/// Measures a part. Returns Markdown, and whether its goals hold. `full` asks for all rows.
type Measure = fn(context: &Context, binary: &Path, full: bool) -> Result<(String, bool), String>;

/// A part: its name, its document, what measures it, and what its table has.
type Part = (&'static str, &'static str, Measure, &'static str);

/// The parts, in the order of their documents. A word on the command line chooses the part of this name, or
/// those whose names begin with it and `-`.
const PARTS: [Part; 18] = [
    ("check", LAB, check, "What the link did beside what its scenario says"),
    ("peers", LAB, peers::measure, "Peers"),
    ("contests", LAB, contests::measure, "Shares of one queue"),
    ("tcp", LAB, tcp, "NewReno over loss"),
    ("tunnel-share", TUNNEL, tunnel::share::measure, "The share of one CUBIC flow"),
    ("tunnel-added", TUNNEL, added, "Round trips directly and through the tunnel"),
    ("tunnel-delay", TUNNEL, tunnel::delay::measure, "Delay of records through the tunnel, beside `forward`"),
    ("tunnel-crowd", TUNNEL, tunnel::crowd::measure, "Two hundred flows over rebindings"),
    ("tunnel-kill", TUNNEL, tunnel::kill::measure, "Silence after a kill"),
    ("live-5", LIVE, live::five, "5 % of loss, one way + 80 ms"),
    ("live-10", LIVE, live::ten, "10 % of loss, one way + 80 ms"),
    ("live-runs", LIVE, live::runs, "5 % of loss in runs of four, one way + 80 ms"),
    ("live-short", LIVE, live::short, "5 % of loss, one way + 30 ms"),
    ("live-frames", LIVE, live::frames, "Decoded frames, by codec and carrier"),
    ("live-fall", LIVE, live::fall, "An encoder that follows the capacity, and one that does not"),
    ("live-long", LIVE, live::long, "Ten minutes, by carrier"),
    ("live-keys", LIVE, live::keys, "Decoded frames with and without `--protect-key-frames`"),
    ("live-delay", LIVE, live::delay, "Delay and jitter, one carrier at a time"),
];
const LAB: &str = "docs/lab.md";
const TUNNEL: &str = "docs/tunnel.md";
const LIVE: &str = "docs/live.md";
/// The exit code of a command whose figures missed their bounds.
const MISSED: i32 = 8;
/// The end of each part in the document.
const END: &str = "<!-- end -->\n";

/// The parsed command line.
struct Options {
    parts: Vec<Part>,
    full: bool,
    write: bool,
    /// A command that is built already.
    binary: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: &[String]) -> Option<Self> {
        let mut options = Self { parts: Vec::new(), full: false, write: false, binary: None };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--binary" => options.binary = Some(arguments.next()?.into()),
                "--full" => options.full = true,
                "--write" => options.write = true,
                name => {
                    let is_meant = |part: &str| {
                        part.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
                    };
                    let before = options.parts.len();
                    options.parts.extend(PARTS.iter().filter(|(part, ..)| is_meant(part)));
                    if options.parts.len() == before {
                        return None;
                    }
                }
            }
        }
        if options.parts.is_empty() {
            options.parts = PARTS.to_vec();
        }
        Some(options)
    }
}

/// Runs the command with the arguments behind its name. The exit code is 0 if all parts were measured and
/// every goal holds.
pub fn main(arguments: &[String]) -> ExitCode {
    let Some(options) = Options::parse(arguments) else {
        eprintln!(
            "cargo measure lab [check] [peers] [contests] [tcp] [tunnel] [live] [tunnel-share] ... [--full] [--write] [--binary FILE]   {ABOUT}"
        );
        return ExitCode::from(2);
    };
    match measure(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, prints and writes each part. Returns whether all goals hold.
fn measure(options: &Options) -> Result<bool, String> {
    let context = Context::new()?;
    let binary = match &options.binary {
        Some(built) => built.clone(),
        None => context.commands()?,
    };
    let mut all_hold = true;
    for (name, document, part, title) in &options.parts {
        let machine = Machine::look(&context);
        let (text, holds) = part(&context, &binary, options.full)?;
        let text = format!("{machine}\n\n{text}");
        println!("\n{text}");
        all_hold &= holds;
        if options.write {
            let path = context.root.join(document);
            let in_file = |problem: std::io::Error| format!("{}: {problem}", path.display());
            let old = std::fs::read_to_string(&path).map_err(in_file)?;
            let split = tables::split(&text, &format!("measured-{name}"), title);
            let new = between_marks(&old, name, &split.page).map_err(|problem| format!("{document}: {problem}"))?;
            std::fs::write(&path, new).map_err(in_file)?;
            tables::save(&context.root, &split.files)?;
        }
    }
    Ok(all_hold)
}

/// Runs the lab's self-check.
fn check(_: &Context, binary: &Path, _: bool) -> Result<(String, bool), String> {
    let mut text = String::from("| figure | wanted | measured | may differ by | |\n| --- | --- | --- | --- | --- |\n");
    let mut holds = true;
    for line in lines(Command::new(lab_of(binary)).args(["check", "--json", "--time", "120s"]), "finding")? {
        let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
        let held = line["holds"] == true;
        text += &format!(
            "| {} {} | {:.4} | {:.4} | {:.4} | {} |\n",
            line["name"].as_str().unwrap_or_default(),
            line["unit"].as_str().unwrap_or_default(),
            number("wanted"),
            number("measured"),
            number("allowed"),
            if held { "ok" } else { "OFF" },
        );
        holds &= held;
    }
    Ok((text, holds))
}

/// Compares the simulator's TCP with the kernel's: an example of the lab runs both. The full run has more
/// seeds, and CUBIC too.
fn tcp(context: &Context, _: &Path, full: bool) -> Result<(String, bool), String> {
    let (seeds, controls): (_, &[_]) = if full { ("20", &["reno", "cubic"]) } else { ("5", &["reno"]) };
    let (mut text, mut holds) = (String::new(), true);
    for control in controls {
        let (table, held) = example(context, "newreno", &["30", seeds, control])?;
        holds &= held;
        // One head for all.
        text.extend(table.lines().skip(if text.is_empty() { 0 } else { 2 }).map(|line| format!("{line}\n")));
    }
    Ok((text, holds))
}

/// Measures the round trips that the tunnel adds, and what one flow reaches: an example of the lab does.
fn added(context: &Context, binary: &Path, full: bool) -> Result<(String, bool), String> {
    example(context, "tunnel", &[&binary.display().to_string(), if full { "60" } else { "15" }])
}

/// Runs an example of the lab. Returns the table that it prints, and whether its goals hold.
fn example(context: &Context, name: &str, arguments: &[&str]) -> Result<(String, bool), String> {
    context.run(&format!("cargo build --release --package tidewire-lab --example {name}"))?;
    let mut command = Command::new(context.target.join("release/examples").join(name));
    let output = command.args(arguments).stderr(Stdio::inherit()).output().map_err(|e| format!("{command:?}: {e}"))?;
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0 | MISSED) => Ok((table, output.status.success())),
        _ => Err(format!("{command:?} ended with {}: {table}", output.status)),
    }
}

/// Runs `command` and returns its `--json` lines of this `event`, or all lines if `event` is empty. Exit code
/// 8 is no error: it says that a figure missed its bound, and so do the lines.
fn lines(command: &mut Command, event: &str) -> Result<Vec<Value>, String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !matches!(output.status.code(), Some(0 | MISSED)) {
        return Err(format!("{command:?} ended with {}: {text}", output.status));
    }
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(lines.filter(|line| event.is_empty() || line["event"] == event).collect())
}

/// Runs `run` with a temporary file that holds a scenario.
fn with_scenario<T>(text: &str, run: impl FnOnce(&Path) -> Result<T, String>) -> Result<T, String> {
    let path = std::env::temp_dir().join(format!("tidewire-lab-{}.toml", std::process::id()));
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    let done = run(&path);
    // A file that remains in the temporary folder does no harm.
    let _ = std::fs::remove_file(&path);
    done
}

/// Returns the document with `text` between the marks of a part.
fn between_marks(document: &str, part: &str, text: &str) -> Result<String, String> {
    let begin = format!("<!-- begin: cargo measure lab {part} --write -->\n");
    let lacks = || format!("it lacks its marks {begin}{END}");
    let (before, rest) = document.split_once(&begin).ok_or_else(lacks)?;
    let (_, after) = rest.split_once(END).ok_or_else(lacks)?;
    Ok(format!("{before}{begin}\n{text}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_marks_of_a_part_is_replaced() {
        let begin = |part: &str| format!("<!-- begin: cargo measure lab {part} --write -->\n");
        let document = format!("a\n{}old\n{END}z\n{}other\n{END}", begin("check"), begin("peers"));
        let written = between_marks(&document, "check", "new\n").unwrap();
        assert_eq!(written, document.replace("old\n", "\nnew\n\n"));
        assert_eq!(between_marks(&written, "check", "new\n").unwrap(), written);
        assert!(between_marks(&document, "contests", "new").is_err());
        for (part, document, ..) in PARTS {
            let path = format!("{}/../../{document}", env!("CARGO_MANIFEST_DIR"));
            assert!(between_marks(&std::fs::read_to_string(path).unwrap(), part, "").is_ok(), "{part}");
        }
    }

    #[test]
    fn parts_are_chosen_by_name_and_all_without_one() {
        let parse = |line: &str| {
            let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
            Options::parse(&arguments).map(|options| (options.parts.len(), options.full, options.write))
        };
        assert_eq!(parse(""), Some((18, false, false)));
        assert_eq!(parse("peers --full --write"), Some((1, true, true)));
        assert_eq!(parse("tunnel"), Some((5, false, false)));
        assert_eq!(parse("tunnel-share check"), Some((2, false, false)));
        assert_eq!(parse("live-frames --binary target/debug/tidewire"), Some((1, false, false)));
        assert_eq!((parse("peer"), parse("tunnel-"), parse("--binary")), (None, None, None));
    }
}
