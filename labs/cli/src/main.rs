//! The `tidewire-lab` command: the laboratory next door to `tidewire`.
//!
//! Each verb has a file or folder with its arguments, its events and its `run`. The links, contests and
//! papers themselves are libraries ([`tidewire_lab`], [`tidewire_papers`], [`tidewire_sim`]); exit codes,
//! output and options are those of `tidewire` ([`tidewire_command`]). Settings files are not read: a figure
//! follows from its command line and its scenario alone. A UDP proxy needs no privileges; links between hosts
//! in network namespaces need root on Linux.

#[cfg(target_os = "linux")]
mod check;
#[cfg(target_os = "linux")]
mod comparison;
#[cfg(target_os = "linux")]
mod contest;
#[cfg(target_os = "linux")]
mod hosts;
mod link;
mod link_counts;
#[cfg(target_os = "linux")]
mod network;
mod papers;
#[cfg(target_os = "linux")]
mod peers;
#[cfg(target_os = "linux")]
mod product;
mod report;
mod sim;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::help::Tiers;
use tidewire_command::interrupt::block_on;
use tidewire_command::log;
use tidewire_command::manual::{self, Completions};
use tidewire_command::report::{Console, with};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::scenario::Scenario;

/// Emulated links, flows that compete, scenarios in virtual time, and papers made anew.
#[derive(Debug, Parser)]
#[command(name = "tidewire-lab", version, max_term_width = 100, after_help = Exit::help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The verb to run.
#[derive(Debug, Subcommand)]
enum Command {
    /// Emulate a lossy link between UDP sockets. Senders use the --listen address instead of the receiver's
    Link(Box<link::LinkArgs>),
    /// Run the hosts of a scenario in network namespaces, joined by its links, until Ctrl-C (needs root)
    #[cfg(target_os = "linux")]
    Up(hosts::UpArgs),
    /// Run a command on one of two hosts joined by a scenario's link, measure peers across the link, or run
    /// the flows of a network (needs root)
    #[cfg(target_os = "linux")]
    Run(Box<hosts::RunArgs>),
    /// Compare the lab with the link that it emulates: rate, losses, bursts, added delay (needs root)
    #[cfg(target_os = "linux")]
    Check(check::Args),
    /// Measure how flows of kernel TCP and Tidewire share one queue (needs root)
    #[cfg(target_os = "linux")]
    Contest(contest::Args),
    /// Run a scenario in virtual time
    Sim(Box<sim::Args>),
    /// Reproduce the figures and tables of a paper as data
    Papers(papers::Args),
    /// Print the script that makes a shell complete verbs and options
    Completions(Completions),
    /// Print the manual page
    Man,
}

/// The command with its help in two tiers.
fn command() -> clap::Command {
    TIERS.shape(Cli::command())
}

const TIERS: Tiers = Tiers {
    groups: &[
        ("Emulate", &["link", "up", "run", "check"]),
        ("Study", &["contest", "sim", "papers"]),
        ("Set up", &["completions", "man"]),
    ],
    examples: &[
        (
            "link",
            [
                "tidewire-lab link --listen 127.0.0.1:9001 --to 127.0.0.1:9002 --loss 5%",
                "tidewire-lab link --listen 127.0.0.1:9001 --to 127.0.0.1:9002 --rate 25mbit --rtt 60ms",
            ],
        ),
        ("up", ["tidewire-lab up scenario.toml", "tidewire-lab up scenario.toml --seed 7"]),
        ("run", ["tidewire-lab run scenario.toml --peer tcp-bbr", "tidewire-lab run scenario.toml -- iperf3 -c far"]),
        ("check", ["tidewire-lab check", "tidewire-lab check scenario.toml"]),
        ("contest", ["tidewire-lab contest", "tidewire-lab contest --json"]),
        ("sim", ["tidewire-lab sim scenario.toml", "tidewire-lab sim scenario.toml --profile arq"]),
        ("papers", ["tidewire-lab papers", "tidewire-lab papers compare"]),
        (
            "completions",
            [
                "tidewire-lab completions bash > ~/.local/share/bash-completion/completions/tidewire-lab",
                "tidewire-lab completions fish > ~/.config/fish/completions/tidewire-lab.fish",
            ],
        ),
        ("man", ["tidewire-lab man | man -l -", "tidewire-lab man > tidewire-lab.1"]),
    ],
    later: &["workers", "deliver", "max-overhead", "keylog"],
    later_of: &[("link", &["slot", "mtu", "duplicate", "corrupt", "back-rate", "back-police"])],
    whole: &[],
};

fn main() -> ExitCode {
    let cli = match Cli::from_arg_matches(&command().get_matches()).or_exit(Exit::Usage) {
        Ok(cli) => cli,
        Err(failure) => {
            Console::new(false, false).error(&failure);
            return failure.exit.into();
        }
    };
    let console = Console::new(false, false);
    if let Err(failure) = log::start() {
        console.error(&failure);
        return failure.exit.into();
    }
    match cli.command {
        Command::Link(args) => with(args.output.console(), |console| block_on(link::run(args, console))),
        #[cfg(target_os = "linux")]
        Command::Up(args) => with(args.output.console(), |console| block_on(hosts::up(args, console))),
        #[cfg(target_os = "linux")]
        Command::Run(args) => with(args.console(), |console| block_on(hosts::run(*args, console))),
        #[cfg(target_os = "linux")]
        Command::Check(args) => with(args.output.console(), |console| check::run(&args, &console)),
        #[cfg(target_os = "linux")]
        Command::Contest(args) => with(args.output.console(), |console| contest::run(&args, &console)),
        Command::Sim(args) => with(args.output.console(), |console| sim::run(&args, &console)),
        Command::Papers(args) => with(args.output.console(), |console| papers::run(&args, &console)),
        Command::Completions(args) => with(console, |_| {
            args.print(command());
            Ok(())
        }),
        Command::Man => with(console, |_| {
            manual::print(command(), &[]);
            Ok(())
        }),
    }
}

/// Reads the link of a scenario file, or of the text `default` without one. `seed` replaces the file's seed.
fn link_of(scenario: Option<&Path>, default: &str, seed: Option<u64>) -> Result<DuplexConfig, Failure> {
    let scenario = match scenario {
        Some(path) => Scenario::read(path),
        None => Scenario::parse(default, Path::new("default")),
    };
    let mut config = scenario.or_exit(Exit::Usage)?.link;
    if let Some(seed) = seed {
        config.set_seed(seed);
    }
    Ok(config)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn the_help_has_two_tiers() {
        let faults = super::TIERS.faults(&super::command());
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
