//! Where, when and with which code figures were measured in real time.
//!
//! `tidewire-lab papers NAME --lab` writes it beside the rows. A value that this system does not report is
//! "unknown".

use std::fs::read_to_string;
use std::process::Command;

use serde::Serialize;
use tidewire_lab::processor::is_real_time;

/// The conditions before the first run.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    processor: String,
    cores: usize,
    kernel: String,
    load_average: String,
    /// Whether this process has priority over all others, as under `chrt -f 1`.
    real_time_priority: bool,
    /// The commit of the working folder, which is the one where papers are kept.
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
            // The version, without a distribution's suffix.
            kernel: known(read("/proc/sys/kernel/osrelease").split('-').next().unwrap_or_default()),
            load_average: known(&load.join(" ")),
            real_time_priority: is_real_time(),
            commit: commit(),
            version: env!("CARGO_PKG_VERSION"),
            date: output("date", &["-u", "+%Y-%m-%dT%H:%MZ"]),
        }
    }
}

/// The commit of the code, and whether the code was changed since. Kept data of papers may be rewritten.
fn commit() -> String {
    let commit = output("git", &["rev-parse", "--short=10", "HEAD"]);
    let changes = output("git", &["status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)papers"]);
    let changed = if changes == UNKNOWN { "" } else { " with changes not committed" };
    format!("{commit}{changed}")
}

/// The output of a program, if it runs.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    known(&output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default())
}

const UNKNOWN: &str = "unknown";

fn known(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() { UNKNOWN } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_told_is_unknown() {
        assert_eq!((known(" \n").as_str(), known("x\n").as_str()), (UNKNOWN, "x"));
        assert_eq!(output("no-such-program", &[]), UNKNOWN);
        assert!(Conditions::look().cores > 0);
    }
}
