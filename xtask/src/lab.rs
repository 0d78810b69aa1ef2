//! `cargo xtask lab`: checks the namespace lab and measures in it what our rate control leaves to the kernel's TCP.
//!
//! Run by hand as root on a quiet machine, never by `test`, like `figures`: what is timed there depends on who else uses the machine.
//! Each row is one `tidewire lab contest`, the first table one `tidewire lab check`; with `--write` the tables go into
//! `docs/lab.md`, between its two marks. Invariant: no figure is printed that was not measured in this call.

use crate::context::Context;
use crate::figures::Machine;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The line of `cargo xtask`'s help.
pub const ABOUT: &str =
    "the namespace lab's own check, and flows beside kernel TCP (root); `--write`: into docs/lab.md";

/// Who meets whom: title, flows in the order of their start.
const CONTESTS: [&str; 10] = [
    "tidewire,cubic",
    "cubic,tidewire",
    "tidewire,cubic,cubic",
    "tidewire,cubic,cubic,cubic",
    "tidewire,cubic,cubic,cubic,cubic",
    "tidewire,bbr",
    "tidewire,reno",
    "cubic,cubic",
    "bbr,cubic",
    "tidewire,tidewire",
];
/// Queues, in milliseconds: a quarter of a round trip, one, two. All contests meet the second, the first of them all.
const QUEUES: [u32; 3] = [15, 60, 120];
/// What the link is else.
const LINK: &str = "seed = 7\n[link]\nrate = \"25mbit\"\nrtt = \"60ms\"\n[forward]\n";
/// The least share that CUBIC is to keep.
const KEPT: f64 = 0.4;
/// Where the tables stand in the document.
const MARKS: [&str; 2] = ["<!-- begin: cargo xtask lab --write -->\n", "<!-- end -->\n"];

/// Runs the command with the arguments behind its name: 0 if all was measured and every goal holds.
pub fn main(arguments: &[String]) -> ExitCode {
    let write = match arguments {
        [] => false,
        [one] if one == "--write" => true,
        _ => {
            eprintln!("cargo xtask lab [--write]   {ABOUT}");
            return ExitCode::from(2);
        }
    };
    match measure(write) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Checks, measures, prints; whether all goals hold.
fn measure(write: bool) -> Result<bool, String> {
    let context = Context::new(false)?;
    context.run("cargo build --release --package tidewire-cli")?;
    let binary = context.target.join("release/tidewire");
    let machine = Machine::look(&context);
    let (mut text, mut holds) = check(&binary)?;
    text +=
        "\n| flows, in the order of their start | queue ms | share of the link, each | queueing ms | queue drops |\n";
    text += "| --- | --- | --- | --- | --- |\n";
    for (n, flows) in CONTESTS.iter().enumerate() {
        for queue in QUEUES.iter().filter(|&&queue| n == 0 || queue == QUEUES[1]) {
            let (row, held) = contest(&binary, flows, *queue)?;
            println!("{row}");
            text += &format!("{row}\n");
            holds &= held;
        }
    }
    let text = format!("{machine}\n\n{text}");
    println!("\n{text}");
    if write {
        let path = context.root.join("docs/lab.md");
        let document = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        std::fs::write(&path, between_marks(&document, &text)?).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(holds)
}

/// The lab's check of itself.
fn check(binary: &Path) -> Result<(String, bool), String> {
    let mut text = String::from("| figure | wanted | measured | may differ by | |\n| --- | --- | --- | --- | --- |\n");
    let mut holds = true;
    for line in lines(Command::new(binary).args(["lab", "check", "--json", "--time", "120s"]), "finding")? {
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

/// One contest: its row, and whether a single CUBIC beside ours kept what it is to keep.
fn contest(binary: &Path, flows: &str, queue: u32) -> Result<(String, bool), String> {
    let scenario = std::env::temp_dir().join(format!("tidewire-contest-{}.toml", std::process::id()));
    let text = format!("{LINK}queue = \"{queue}ms\"\n");
    std::fs::write(&scenario, text).map_err(|e| format!("{}: {e}", scenario.display()))?;
    let mut command = Command::new(binary);
    command.args(["lab", "contest", "--json", "--flows", flows]).arg(&scenario);
    let found = lines(&mut command, "");
    // Nothing is lost with it.
    let _ = std::fs::remove_file(&scenario);
    let found = found?;
    let shares: Vec<(&str, f64)> = found
        .iter()
        .filter(|line| line["event"] == "flow")
        .map(|line| (line["name"].as_str().unwrap_or_default(), line["share"].as_f64().unwrap_or(f64::NAN)))
        .collect();
    let link = found.iter().find(|line| line["event"] == "lab_stats").ok_or("no lab_stats")?;
    let number = |key: &str| link["forward"][key].as_f64().unwrap_or(f64::NAN);
    let goal = flows.split(',').count() == 2 && flows.contains("cubic") && flows.contains("tidewire");
    let kept = shares.iter().filter(|(name, _)| *name == "cubic").all(|(_, share)| *share >= KEPT);
    let each: Vec<_> = shares.iter().map(|(name, share)| format!("{name} {:.1} %", 100.0 * share)).collect();
    let verdict = match (goal, kept) {
        (false, _) => "",
        (true, true) => " (cubic >= 40 %: ok)",
        (true, false) => " (cubic >= 40 %: MISSED)",
    };
    let dropped = 100.0 * number("queue_dropped") / number("offered");
    let row = format!(
        "| {} | {queue} | {}{verdict} | {:.1} | {dropped:.2} % |",
        flows.replace(',', ", "),
        each.join(", "),
        number("queueing_ms"),
    );
    Ok((row, !goal || kept))
}

/// The lines of `--json` that tell `event`; all of them if it is empty. Exit code 8 says that a figure was off, which they do too.
fn lines(command: &mut Command, event: &str) -> Result<Vec<Value>, String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !matches!(output.status.code(), Some(0 | 8)) {
        return Err(format!("{command:?} ended with {}: {text}", output.status));
    }
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(lines.filter(|line| event.is_empty() || line["event"] == event).collect())
}

/// The document with `text` between its marks.
fn between_marks(document: &str, text: &str) -> Result<String, String> {
    let [begin, end] = MARKS;
    let lacks = || format!("docs/lab.md lacks its marks {begin}{end}");
    let (before, rest) = document.split_once(begin).ok_or_else(lacks)?;
    let (_, after) = rest.split_once(end).ok_or_else(lacks)?;
    Ok(format!("{before}{begin}\n{text}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let [begin, end] = MARKS;
        let written = between_marks(&format!("a\n{begin}old\n{end}z\n"), "new\n").unwrap();
        assert_eq!(written, format!("a\n{begin}\nnew\n\n{end}z\n"));
        assert_eq!(between_marks(&written, "new\n").unwrap(), written);
        assert!(between_marks("none", "new").is_err());
        let document = include_str!("../../docs/lab.md");
        assert!(between_marks(document, "").is_ok());
    }
}
