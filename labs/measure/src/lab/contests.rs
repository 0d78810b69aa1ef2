//! Contests: which share of one queue each Tidewire flow and each kernel TCP flow gets. Each row is one run
//! of `tidewire-lab contest`.
//!
//! This is a part of `cargo measure lab`.

use super::{lines, with_scenario};
use crate::context::{Context, lab_of};
use std::path::Path;
use std::process::Command;

/// The flows of each contest, in the order of their start.
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
/// Queues in milliseconds: a quarter of a round trip, one and two. The first contest runs with all three, the
/// others only with the second.
const QUEUES: [u32; 3] = [15, 60, 120];
/// The rest of the scenario.
const LINK: &str = "seed = 7\n[link]\nrate = \"25mbit\"\nrtt = \"60ms\"\n[forward]\n";
/// The share of the link that CUBIC must keep.
const KEPT: f64 = 0.4;
/// Measured time, in the usual run and in the full one.
const TIMES: [&str; 2] = ["20s", "30s"];

/// Runs all contests. Returns their table, and whether CUBIC kept its share.
pub fn measure(_: &Context, binary: &Path, full: bool) -> Result<(String, bool), String> {
    let mut text = String::from(
        "| flows, in the order of their start | queue ms | share of the link, each | queueing ms | queue drops |\n",
    );
    text += "| --- | --- | --- | --- | --- |\n";
    let mut holds = true;
    for (n, flows) in CONTESTS.iter().enumerate() {
        for queue in QUEUES.iter().filter(|&&queue| n == 0 || queue == QUEUES[1]) {
            let (row, held) = contest(binary, flows, *queue, TIMES[usize::from(full)])?;
            println!("{row}");
            text += &format!("{row}\n");
            holds &= held;
        }
    }
    Ok((text, holds))
}

/// Runs one contest. Returns its row, and whether a single CUBIC flow beside one of ours kept its share.
fn contest(binary: &Path, flows: &str, queue: u32, time: &str) -> Result<(String, bool), String> {
    let found = with_scenario(&format!("{LINK}queue = \"{queue}ms\"\n"), |scenario| {
        let mut command = Command::new(lab_of(binary));
        command.args(["contest", "--json", "--flows", flows, "--time", time]).arg(scenario);
        lines(&mut command, "")
    })?;
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
