//! `tidewire-lab contest [SCENARIO] --flows tidewire,cubic`: measures how flows share one queue.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::options::Output;
use tidewire_command::report::{Console, rate};
use tidewire_command::stdout;
use tidewire_lab::contest::{Contest, MOST_FLOWS, Outcome, profile};
use tidewire_units::parse_duration;

use crate::hosts::{sentences, stats};
use crate::{link_of, product};

/// The link if no scenario is given.
const DEFAULT: &str = include_str!("contest.toml");

/// The event of `tidewire-lab contest`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// What one flow achieved.
    Flow {
        /// `tidewire`, `tidewire=PROFILE`, or the kernel's name of its congestion control.
        name: &'a str,
        /// Rate at which its application received.
        goodput_bps: f64,
        /// That rate over the rate of the link.
        share: f64,
    },
}

/// Arguments of `tidewire-lab contest`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Scenario file. The default link has 25 Mbit/s, 60 ms round trip, a queue of one round trip and no loss
    scenario: Option<PathBuf>,
    /// Seed of all random numbers, in place of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Flows in the order of their start: tidewire, tidewire=PROFILE, or a congestion control of the kernel's
    /// TCP (cubic, bbr, reno ...)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "tidewire,cubic")]
    flows: Vec<String>,
    /// Time from the start of the last flow until counting begins
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    settle: Duration,
    /// Time to count
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    time: Duration,
    #[command(flatten)]
    pub output: Output,
}

/// Runs the contest.
///
/// # Errors
/// [`Exit::Usage`] for a wrong scenario or too many flows, [`Exit::LocalIo`] if hosts or flows cannot
/// be made.
pub fn run(args: &Args, console: &Console) -> Result<(), Failure> {
    let link = link_of(args.scenario.as_deref(), DEFAULT, args.seed)?;
    if args.flows.len() > MOST_FLOWS {
        return Err(Failure::message(
            Exit::Usage,
            format_args!("--flows names {} flows; name at most {MOST_FLOWS}", args.flows.len()),
        ));
    }
    if args.time.is_zero() {
        return Err(Failure::message(Exit::Usage, "--time is 0; write at least 1s"));
    }
    let program = product::file().or_exit(Exit::Other)?;
    let contest = Contest { link, program, flows: args.flows.clone(), settle: args.settle, time: args.time };
    let outcome = contest.run().or_exit(Exit::LocalIo)?;
    for ((name, &goodput_bps), share) in contest.flows.iter().zip(&outcome.goodput_bps).zip(outcome.shares()) {
        console.event(&Event::Flow { name, goodput_bps, share });
    }
    console.event(&stats(&outcome.counts));
    if !console.json() {
        stdout::write(&table(&contest, &outcome));
        console.say(&sentences(&outcome.counts));
    }
    if outcome.unread > 0 {
        console.warn(&format!(
            "the lab did not read {} packets in time: the machine is too busy, so run it alone",
            outcome.unread
        ));
    }
    Ok(())
}

fn table(contest: &Contest, outcome: &Outcome) -> String {
    let mut out = String::new();
    for ((name, &goodput), share) in contest.flows.iter().zip(&outcome.goodput_bps).zip(outcome.shares()) {
        let kind = if profile(name).is_some() { "" } else { "TCP " };
        out += &format!("{:<16} {:>12} {:>7.1} %\n", format!("{kind}{name}"), rate(goodput), 100.0 * share);
    }
    out
}
