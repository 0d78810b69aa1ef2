//! Where figures were measured: a figure without machine, load and commit says nothing.

use crate::context::Context;
use std::fmt;

/// The machine and the code, as they were before the first run.
pub struct Machine {
    model: String,
    cores: usize,
    load: String,
    commit: String,
}

impl Machine {
    /// Looks now. What this system does not tell is called unknown.
    pub fn look(context: &Context) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let model = read("/proc/cpuinfo");
        let model = model.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        Self {
            model: model.map_or("unknown processor", |(_, model)| model).into(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load: if load.is_empty() { "unknown".into() } else { load },
            commit: commit(context),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, cores, load, commit } = self;
        write!(f, "Machine: {model}, {cores} cores, load average before the runs {load}. Commit: {commit}.")
    }
}

fn commit(context: &Context) -> String {
    let Ok(commit) = context.output_of("git rev-parse --short=10 HEAD") else { return "unknown".into() };
    // The reports themselves may be written again; everything else counts.
    let changes = context.output_of("git status --porcelain --untracked-files=no -- . :!docs/figures.md :!docs/lab.md");
    let clean = changes.is_ok_and(|changes| changes.trim().is_empty());
    format!("{}{}", commit.trim(), if clean { "" } else { " with changes not committed" })
}
