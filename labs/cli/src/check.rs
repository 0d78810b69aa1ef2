//! `tidewire-lab check [SCENARIO]`: compares the lab with the link that it emulates.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::options::Output;
use tidewire_command::report::Console;
use tidewire_command::stdout;
use tidewire_lab::check::{self, Finding, Report};
use tidewire_lab::processor::Shares;
use tidewire_lab::way;
use tidewire_units::parse_duration;

use crate::{link_of, network};

/// The link if no scenario is given.
const DEFAULT: &str = include_str!("check.toml");

/// The events of `tidewire-lab check`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// Who used the processors in one crossing, as shares of the time of all processors.
    Processor {
        crossing: &'a str,
        /// Share of the lab itself.
        lab: f64,
        /// Share of other programs of this machine.
        others: f64,
        /// Share that the hypervisor gave to other machines.
        stolen: f64,
    },
    /// One figure of the check.
    Finding {
        name: &'a str,
        /// The crossing that it was measured in.
        crossing: &'a str,
        /// Its unit. Empty for ratios and counts.
        unit: &'a str,
        /// The expected value.
        wanted: f64,
        /// The largest difference allowed.
        allowed: f64,
        measured: f64,
        /// Whether the difference is allowed.
        holds: bool,
    },
}

/// Arguments of `tidewire-lab check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Scenario file. Of a network, the way of its first flow is checked. The default link has 50 Mbit/s,
    /// 20 ms round trip and 10 % loss in bursts of 4 packets
    scenario: Option<PathBuf>,
    /// Seed of all random numbers, in place of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Time to count losses. Two minutes give the mean burst length within 2 %
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_duration)]
    time: Duration,
    #[command(flatten)]
    pub output: Output,
}

/// Runs the check.
///
/// # Errors
/// [`Exit::Usage`] for a wrong scenario, [`Exit::LocalIo`] if the hosts cannot be made,
/// [`Exit::TargetNotMet`] if a figure is off.
pub fn run(args: &Args, console: &Console) -> Result<(), Failure> {
    let scenario = args.scenario.as_deref();
    let plan = scenario.map(|scenario| network::plan_of(scenario, args.seed)).transpose()?.flatten();
    let report = match plan {
        Some(plan) => way::run(&plan, args.time),
        None => check::run(&link_of(scenario, DEFAULT, args.seed)?, args.time),
    };
    let report = report.or_exit(Exit::LocalIo)?;
    for &(crossing, Shares { lab, others, stolen }) in &report.shares {
        console.event(&Event::Processor { crossing, lab, others, stolen });
    }
    for finding in &report.findings {
        let &Finding { name, crossing, unit, wanted, allowed, measured } = finding;
        console.event(&Event::Finding { name, crossing, unit, wanted, allowed, measured, holds: finding.holds() });
    }
    if !console.json() {
        stdout::write(&table(&report));
    }
    let (off, shares) = report.off();
    if off.is_empty() {
        return Ok(());
    }
    let why = shares.map_or_else(|| "is the machine idle?".into(), |shares| shares.to_string());
    Err(Failure::message(Exit::TargetNotMet, format_args!("off: {}; {why}", off.join(", "))))
}

fn table(report: &Report) -> String {
    let mut out = format!("{:<16} {:>14} {:>14} {:>12}\n", "", "wanted", "measured", "allowed");
    for finding in &report.findings {
        let Finding { name, unit, wanted, allowed, measured, .. } = finding;
        let verdict = if finding.holds() { "ok" } else { "OFF" };
        out += &format!("{name:<16} {wanted:>14.4} {measured:>14.4} {allowed:>12.4} {verdict:<3} {unit}\n");
    }
    let added = report.added.distribution();
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.2}"));
    let figures = [0.5, 0.95, 0.99, 1.0].map(|q| ms(added.quantile(q)));
    out += &format!("added delay p50 {}, p95 {}, p99 {}, max {} ms\n", figures[0], figures[1], figures[2], figures[3]);
    for (crossing, Shares { lab, others, stolen }) in &report.shares {
        let [lab, others, stolen] = [lab, others, stolen].map(|share| 100.0 * share);
        out += &format!(
            "processor, {crossing}: the lab {lab:.1} %, other programs {others:.1} %, taken by the hypervisor {stolen:.1} %\n"
        );
    }
    out
}
