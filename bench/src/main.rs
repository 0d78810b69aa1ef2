//! Benchmarks of Tidewire: how fast the codec and the transport are on this machine, beside their peers, in
//! ratios that hold on other machines too. People run it by hand; `cargo xtask bench` runs both parts with
//! `--quick`, which judges no time but keeps every check of results alive.
//!
//! ```sh
//! cargo run --release --manifest-path bench/Cargo.toml -- codec              # everything
//! cargo run --release --manifest-path bench/Cargo.toml -- codec kernels --tier avx2
//! cargo run --release --manifest-path bench/Cargo.toml -- transport loopback
//! ```
//! Every suite checks results before it times them. It panics if a codec is wrong, Tidewire's or a peer's.
#![deny(unsafe_code)]

mod blocks;
mod decoder;
mod goals;
mod kernels;
mod long;
mod machine;
mod peers;
mod plot;
mod recoder;
mod report;
mod stream;
mod symbols;
mod timing;
mod transport;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

use machine::Machine;
use report::Report;
use serde_json::json;
use tidewire_codec::kernel::Kernel;
use timing::Effort;

/// A suite of the codec: its name on the command line and its function.
type Suite = (&'static str, fn(&[&'static Kernel], Effort, &mut Report));

const SUITES: &[Suite] = &[
    ("kernels", kernels::run),
    ("stream", stream::run),
    ("decoder", decoder::run),
    ("recoder", recoder::run),
    ("blocks", blocks::run),
    ("long", long::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Options::parse(&arguments).and_then(|options| run(&options)) {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("{problem}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

/// The options of the command line.
#[derive(Default)]
struct Options {
    /// Run the transport rather than the codec.
    transport: bool,
    /// Names of suites; empty for all.
    suites: Vec<String>,
    /// Names of tiers; empty for all that this processor runs.
    tiers: Vec<String>,
    quick: bool,
    json: bool,
    write: bool,
    require: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut arguments = arguments.iter().map(String::as_str);
        let transport = match arguments.next() {
            Some("codec") => false,
            Some("transport") => true,
            _ => return Err("say what to measure: codec or transport".into()),
        };
        let mut options = Self { transport, ..Self::default() };
        while let Some(argument) = arguments.next() {
            match argument {
                "--quick" => options.quick = true,
                "--json" => options.json = true,
                "--write" => options.write = true,
                "--require" => options.require = true,
                "--tier" if !transport => options.tiers.push(arguments.next().ok_or("--tier wants a name")?.into()),
                suite if options.has_suite(suite) => options.suites.push(suite.into()),
                other => return Err(format!("there is no suite or option `{other}`")),
            }
        }
        if options.write && (options.quick || !options.suites.is_empty() || !options.tiers.is_empty()) {
            return Err(
                "only a full run is written into the document: --write goes with no filter and no --quick".into()
            );
        }
        Ok(options)
    }

    fn has_suite(&self, asked: &str) -> bool {
        let transport = transport::SUITES.iter().map(|(name, _)| *name).filter(|_| self.transport);
        let codec = SUITES.iter().map(|(name, _)| *name).filter(|_| !self.transport);
        transport.chain(codec).any(|name| name == asked)
    }

    fn is_asked(&self, suite: &str) -> bool {
        self.suites.is_empty() || self.suites.iter().any(|asked| asked == suite)
    }

    fn kernels(&self) -> Result<Vec<&'static Kernel>, String> {
        if self.tiers.is_empty() {
            // The scalar kernel is the reference for the others; its speed matters only where there are no
            // others.
            let is_fast = |tier: &&Kernel| tier.name() != "scalar";
            let fast: Vec<_> = Kernel::available().filter(is_fast).collect();
            return Ok(if fast.is_empty() { Kernel::available().collect() } else { fast });
        }
        let named = |name: &String| Kernel::named(name).ok_or_else(|| format!("this processor has no kernel `{name}`"));
        self.tiers.iter().map(named).collect()
    }
}

fn run(options: &Options) -> Result<ExitCode, String> {
    let tiers = options.kernels()?;
    let machine = Machine::look();
    let mut report = Report::default();
    if options.transport {
        let work = if options.quick { transport::Work::QUICK } else { transport::Work::FULL };
        transport::SUITES
            .iter()
            .filter(|(name, _)| options.is_asked(name))
            .for_each(|(_, suite)| suite(work, &mut report));
    } else {
        let effort = if options.quick { Effort::QUICK } else { Effort::FULL };
        let asked = SUITES.iter().filter(|(name, _)| options.is_asked(name));
        asked.for_each(|(_, suite)| suite(&tiers, effort, &mut report));
    }
    if options.quick {
        // One short round only shows that everything runs and is correct.
        report.verdicts.clear();
    }
    let caution =
        if options.quick { "**One short round: all results are right, the times say nothing.**\n\n" } else { "" };
    let text = format!("{machine}\n{caution}{}", report.markdown());
    if options.json {
        let facts = machine.facts.iter().map(|(name, value)| (name.to_string(), json!(value)));
        println!("{}", json!({ "v": 1, "machine": facts.collect::<serde_json::Map<_, _>>(), "report": report.json() }));
    } else {
        print!("{text}");
    }
    if options.write {
        write(options, &machine, &report)?;
    }
    Ok(if options.require && !report.is_reached() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Writes the tables into `docs/data` and links to them into `docs/performance.md`. For the codec, it also
/// draws the picture beside that page.
fn write(options: &Options, machine: &Machine, report: &Report) -> Result<(), String> {
    // Found at run time: if two checkouts share a target directory, the program may belong to the other one.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("start this by cargo run, so that it finds docs/")?;
    let docs = PathBuf::from(manifest).join("../docs");
    let in_file = |name: &str, problem: &dyn Display| format!("{}: {problem}", docs.join(name).display());
    let put =
        |name: &str, text: String| std::fs::write(docs.join(name), text).map_err(|problem| in_file(name, &problem));
    let part = if options.transport { report::TRANSPORT } else { report::CODEC };
    for (name, text) in report.files(&part) {
        put(&name, text)?;
    }
    if !options.transport {
        put("performance.svg", plot::blocks(report).ok_or("a full run has the tables of the picture")?)?;
    }
    let document = std::fs::read_to_string(docs.join(PAGE)).map_err(|problem| in_file(PAGE, &problem))?;
    let text = format!("{machine}\n{}", report.links(&part));
    put(PAGE, report::insert(&document, &part, &text).map_err(|problem| in_file(PAGE, &problem))?)
}

/// The page of the results, in `docs/`.
const PAGE: &str = "performance.md";

const HELP: &str = "\
codec [SUITE...] [OPTION...]    the erasure codes; suites: kernels, stream, decoder, recoder,
                                blocks, long; all by default
transport [SUITE...] [OPTION...]    the whole transport; suites: loopback, process, policy,
                                shards; all by default
  --tier NAME    of the codec: this kernel only (may be repeated): gfni-512, gfni-256, avx2, ssse3, neon, scalar
  --quick        one short round: whether all runs and is right; no goal is judged
  --json         for programs: every figure with its quartiles
  --write        put the tables of a full run into docs/data and their links into docs/performance.md
  --require      exit with 1 when a goal is missed";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn suites_and_tiers_are_filters_and_only_a_full_run_is_written() {
        let options = parse("codec blocks kernels --tier avx2 --quick").unwrap();
        assert_eq!((options.suites.len(), options.tiers.len(), options.quick), (2, 1, true));
        assert!(parse("codec --write --json").is_ok());
        assert!(parse("transport loopback --quick").is_ok_and(|options| options.transport));
        for line in [
            "",
            "blocks",
            "codec block",
            "codec --tier",
            "codec --write --quick",
            "codec blocks --write",
            "transport blocks",
            "transport --tier avx2",
        ] {
            assert!(parse(line).is_err(), "{line:?} was accepted");
        }
    }
}
