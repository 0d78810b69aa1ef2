//! Where, when and of what code figures were measured in real time: without it they say nothing.
//!
//! `tidewire papers NAME --lab` writes it beside the rows. What this system does not tell is called unknown.

use std::fs::read_to_string;
use std::process::Command;

use serde::Serialize;

/// As of before the first run.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    processor: String,
    cores: usize,
    kernel: String,
    load_average: String,
    /// Whether this process runs before all others, as under `chrt -f 1`.
    real_time_priority: bool,
    /// Of the folder this was run in, which is where papers are kept.
    commit: String,
    version: &'static str,
    date: String,
}

impl Conditions {
    /// Looks now.
    pub fn look() -> Self {
        let read = |path| read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load: Vec<_> = read("/proc/loadavg").split_whitespace().take(3).map(str::to_owned).collect();
        Self {
            processor: known(model.map_or("", |(_, model)| model)),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            // The version, without what a distribution adds.
            kernel: known(read("/proc/sys/kernel/osrelease").split('-').next().unwrap_or_default()),
            load_average: known(&load.join(" ")),
            real_time_priority: is_real_time(&read("/proc/self/stat")),
            commit: commit(),
            version: env!("CARGO_PKG_VERSION"),
            date: output("date", &["-u", "+%Y-%m-%dT%H:%MZ"]),
        }
    }
}

/// The commit of the code, and whether it was changed since; what papers keep may be written again.
fn commit() -> String {
    let commit = output("git", &["rev-parse", "--short=10", "HEAD"]);
    let changes = output("git", &["status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)papers"]);
    let changed = if changes == UNKNOWN { "" } else { " with changes not committed" };
    format!("{commit}{changed}")
}

/// What a program prints, if it does.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    known(&output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default())
}

const UNKNOWN: &str = "unknown";

fn known(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() { UNKNOWN } else { text }.to_owned()
}

/// The real-time priority is field 40 of proc(5)'s stat, the 38th behind the name, which may hold blanks.
fn is_real_time(stat: &str) -> bool {
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    behind_name.split_whitespace().nth(37).is_some_and(|priority| priority != "0")
}

/// Jiffies of all processors so far: those that the host of a virtual machine kept for itself, and all.
#[derive(Clone, Copy, Debug)]
pub struct Jiffies {
    stolen: u64,
    all: u64,
}

impl Jiffies {
    /// Of now.
    pub fn now() -> Self {
        Self::read(&read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The first line of proc(5)'s stat: user, nice, system, idle, iowait, irq, softirq, steal; what follows is counted in user too.
    fn read(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        let counts: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|count| count.parse().ok()).collect();
        Self { stolen: counts.get(7).copied().unwrap_or(0), all: counts.iter().sum() }
    }

    /// Share of the processors' time that was stolen since `before`.
    pub fn stolen_since(self, before: Self) -> f64 {
        self.stolen.saturating_sub(before.stolen) as f64 / self.all.saturating_sub(before.all).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_and_priority_are_read_off_proc() {
        let [before, after] = ["cpu 10 0 5 80 1 0 4 0 3 3", "cpu 20 0 5 155 1 0 4 15 9 9"].map(Jiffies::read);
        assert_eq!((after.stolen_since(before), before.stolen_since(before)), (0.15, 0.0));
        assert_eq!(Jiffies::read("").stolen_since(before), 0.0);
        // "pid (name) state" and the fields behind, of which the 38th is the priority.
        let stat = |priority: u32| format!("7 (a) b) S{} {priority} 1", " 0".repeat(36));
        assert_eq!([0, 1].map(|priority| is_real_time(&stat(priority))), [false, true]);
    }

    #[test]
    fn what_is_not_told_is_unknown() {
        assert_eq!((known(" \n").as_str(), known("x\n").as_str()), (UNKNOWN, "x"));
        assert_eq!(output("no-such-program", &[]), UNKNOWN);
        assert!(Conditions::look().cores > 0);
    }
}
