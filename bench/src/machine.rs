//! The conditions of a measurement. A figure is only useful with its machine, command and commit.

use std::fmt;
use std::process::Command;

/// The machine, the compiler and the code, as they are when the program starts.
pub struct Machine {
    /// Names and values.
    pub facts: Vec<(&'static str, String)>,
}

impl Machine {
    /// Reads the facts now. What this system does not report is called unknown.
    pub fn look() -> Self {
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let load = read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        let system = output("uname", &["-sr"]);
        Self {
            facts: vec![
                ("processor", format!("{}, {cores} cores", or_unknown(processor()))),
                ("caches", or_unknown(caches())),
                ("system", or_unknown(system)),
                ("compiler", or_unknown(output("rustc", &["--version"]))),
                ("command", format!("cargo run --release --manifest-path bench/Cargo.toml -- {command}")),
                ("load before", or_unknown(load)),
                ("date", or_unknown(output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]))),
                ("commit", commit()),
            ],
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.facts {
            writeln!(f, "- {name}: {value}")?;
        }
        Ok(())
    }
}

fn processor() -> String {
    let info = read("/proc/cpuinfo");
    let value = |key| info.lines().find_map(|line| line.strip_prefix(key)?.split_once(": ")).map(|(_, value)| value);
    let family =
        value("cpu family").zip(value("model\t")).map(|(family, model)| format!(" (family {family}, model {model})"));
    value("model name").map_or(String::new(), |name| name.to_string() + &family.unwrap_or_default())
}

/// Size of every cache of the first core except instruction caches, nearest first.
fn caches() -> String {
    let cache = |i| {
        let of = |name| read(&format!("/sys/devices/system/cpu/cpu0/cache/index{i}/{name}")).trim().to_string();
        (of("type") != "Instruction" && !of("size").is_empty()).then(|| format!("L{} {}", of("level"), of("size")))
    };
    (0..5).filter_map(cache).collect::<Vec<_>>().join(", ")
}

fn commit() -> String {
    let commit = output("git", &["rev-parse", "--short=10", "HEAD"]);
    // The report itself may be written again; any other change counts.
    let unchanged = [
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ":/",
        ":!/docs/performance.md",
        ":!/docs/performance.svg",
        ":!/docs/data/performance-*.csv",
    ];
    let clean = !commit.is_empty() && output("git", &unchanged).is_empty();
    or_unknown(commit) + if clean { "" } else { " with changes not committed" }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().into())
}

fn or_unknown(text: String) -> String {
    if text.is_empty() { "unknown".into() } else { text }
}
