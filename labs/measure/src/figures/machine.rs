//! Describes where figures were measured. A figure means nothing without its machine, load and commit.

use crate::context::Context;
use std::fmt;

/// The machine and the commit, as they were before the first run.
pub struct Machine {
    model: String,
    cores: usize,
    load: String,
    /// The priority of our processes; empty for the usual one.
    priority: &'static str,
    commit: String,
}

impl Machine {
    /// Reads the values now. A value that the system does not report is called unknown.
    pub fn look(context: &Context) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let model = read("/proc/cpuinfo");
        let model = model.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        Self {
            model: model.map_or("unknown processor", |(_, model)| model).into(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load: if load.is_empty() { "unknown".into() } else { load },
            priority: priority(&read("/proc/self/stat")),
            commit: commit(context),
        }
    }
}

#[cfg(test)]
impl Machine {
    /// A machine without any value.
    pub fn unknown() -> Self {
        Self { model: String::new(), cores: 0, load: String::new(), priority: "", commit: String::new() }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, cores, load, priority, commit } = self;
        write!(f, "Machine: {model}, {cores} cores, load average before the runs {load}{priority}. Commit: {commit}.")
    }
}

/// Whether we have real-time priority, as under `chrt -f 1`. It is field 40 of proc(5)'s stat, the 38th
/// behind the name.
fn priority(stat: &str) -> &'static str {
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    match behind_name.split_whitespace().nth(37) {
        None | Some("0") => "",
        Some(_) => ", at real-time priority",
    }
}

fn commit(context: &Context) -> String {
    let Ok(commit) = context.output_of("git rev-parse --short=10 HEAD") else { return "unknown".into() };
    // A run may rewrite the reports themselves; changes of other files count.
    let reports = ":!docs/data :!docs/figures*.md :!docs/lab.md :!docs/lab-peers.svg :!docs/tunnel.md :!docs/live.md";
    let changes = context.output_of(&format!("git status --porcelain --untracked-files=no -- . {reports}"));
    let clean = changes.is_ok_and(|changes| changes.trim().is_empty());
    format!("{}{}", commit.trim(), if clean { "" } else { " with changes not committed" })
}
