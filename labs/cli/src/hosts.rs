//! `tidewire-lab up SCENARIO` and `tidewire-lab run SCENARIO -- COMMAND`: two hosts in network namespaces,
//! joined by the scenario's link. [`peers`] has `tidewire-lab run --peer`, [`network`] networks of more
//! nodes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::{self, quietly, unless_interrupted};
use tidewire_command::options::Output;
use tidewire_command::report::{Console, Delay};
use tidewire_lab::emulator::{Counts, Emulator};
use tidewire_lab::hosts::Hosts;
use tidewire_sim::pair::End;

use crate::link_counts::{LinkCounts, counts, describe};
use crate::{link_of, network, peers};

/// How often `--json` reports.
pub const REPORT_PERIOD: Duration = Duration::from_secs(1);

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// The hosts of `tidewire-lab up` or `tidewire-lab run` are ready.
    Hosts {
        /// Network namespace of the near host.
        near: &'a str,
        near_address: String,
        /// Network namespace of the far host.
        far: &'a str,
        far_address: String,
    },
    /// What the link between the hosts has carried so far.
    LabStats {
        /// Counts of the packets from the near host.
        forward: LinkCounts,
        /// Counts of the packets from the far host.
        back: LinkCounts,
        /// Packets that the kernel did not take.
        refused: u64,
        /// How much later than due the emulator handed packets on.
        late_ms: Delay,
    },
}

/// Arguments of `tidewire-lab up`.
#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// Scenario file with the link
    scenario: PathBuf,
    /// Seed of all random numbers, in place of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    pub output: Output,
}

/// Arguments of `tidewire-lab run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Scenario file with the link
    scenario: PathBuf,
    /// Seed of all random numbers, in place of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Host that runs COMMAND, near or far, or node of a network [default: near, or the first node]
    #[arg(long, value_name = "HOST")]
    at: Option<String>,
    /// Shell command for the other host, started first and stopped last [example: "iperf3 -s"]. For a node of
    /// a network: NODE=COMMAND; repeat the option for more nodes [example: "server=iperf3 -s"]
    #[arg(long, value_name = "COMMAND")]
    other: Vec<String>,
    /// Command to run, with its arguments. The near host has address 10.99.0.1, the far host 10.99.0.2. In a
    /// network, the variable ADDRESS_NAME has the address of the node NAME. Without a command, the flows of a
    /// network run
    #[arg(last = true)]
    command: Vec<OsString>,
    #[command(flatten)]
    peers: peers::Args,
    #[command(flatten)]
    pub output: Output,
}

impl RunArgs {
    /// Returns the output. A command that is run keeps stdout for itself.
    pub fn console(&self) -> Console {
        let console = self.output.console();
        if self.command.is_empty() { console } else { console.beside_data() }
    }

    /// Whether peers are measured in place of a command.
    fn measures(&self) -> bool {
        !self.peers.peer.is_empty()
    }
}

fn end_named(name: Option<&str>) -> Result<End, Failure> {
    match name {
        None | Some("near") => Ok(End::Near),
        Some("far") => Ok(End::Far),
        Some(other) => Err(Failure::message(Exit::Usage, format_args!("--at {other}: two hosts are near and far"))),
    }
}

/// Keeps the hosts until Ctrl-C, then reports what crossed the link.
///
/// # Errors
/// [`Exit::Usage`] for a wrong scenario, [`Exit::LocalIo`] if the hosts cannot be made; [`Exit::Sigint`]
/// after Ctrl-C.
pub async fn up(args: UpArgs, console: Console) -> Result<(), Failure> {
    if let Some(plan) = network::plan_of(&args.scenario, args.seed)? {
        return network::up(&plan, &console).await;
    }
    interrupt::heed();
    let (hosts, emulator) = start(&args.scenario, args.seed, &console)?;
    for (end, name) in [(End::Near, "near"), (End::Far, "far")] {
        console.say(&format!("{name} {}: ip netns exec {} COMMAND", hosts.address(end), hosts.name(end)));
    }
    console.say("Ctrl-C removes them and ends what runs there");
    let ended = unless_interrupted(async {
        let mut ticks = tokio::time::interval(REPORT_PERIOD);
        while emulator.is_running() {
            ticks.tick().await;
            console.event(&stats(&emulator.counts()));
        }
        Ok(())
    })
    .await;
    conclude(emulator, &console)?;
    quietly(ended)
}

/// Measures peers, or runs the command on its host and reports what crossed the link.
///
/// # Errors
/// The errors of [`peers::run`], or those of [`up`] and [`Exit::Other`] if the command fails.
pub async fn run(args: RunArgs, console: Console) -> Result<(), Failure> {
    if args.measures() {
        return peers::run(&args.peers, &args.scenario, args.seed, &console);
    }
    if let Some(plan) = network::plan_of(&args.scenario, args.seed)? {
        if args.command.is_empty() {
            return network::run(&plan, args.peers.peers.as_deref(), args.peers.svg.as_deref(), &console);
        }
        let commands = network::Commands { at: args.at.as_deref(), others: &args.other, command: &args.command };
        return network::run_command(&plan, &commands, &console).await;
    }
    if args.command.is_empty() {
        let text = "the flows of two ends run in the simulator only: name a command behind --, or --peer, or a network";
        return Err(Failure::message(Exit::Usage, text));
    }
    let at = end_named(args.at.as_deref())?;
    if args.other.len() > 1 {
        return Err(Failure::message(Exit::Usage, "--other stands once: two hosts have one other host"));
    }
    let (hosts, emulator) = start(&args.scenario, args.seed, &console)?;
    if let Some(other) = args.other.first() {
        // The process that guards the hosts stops this command when they are removed.
        hosts.command(at.other(), "sh").arg("-c").arg(other).stdin(Stdio::null()).spawn().or_exit(Exit::LocalIo)?;
    }
    let mut command = hosts.command(at, &args.command[0]);
    command.args(&args.command[1..]);
    let ended = unless_interrupted(to_its_end(command)).await;
    conclude(emulator, &console)?;
    ended
}

pub async fn to_its_end(command: Command) -> Result<(), Failure> {
    let status = tokio::process::Command::from(command).kill_on_drop(true).status().await.or_exit(Exit::LocalIo)?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::message(Exit::Other, format_args!("the command ended with {status}"))),
    }
}

/// Starts the hosts, and the scenario's link between them.
fn start(scenario: &Path, seed: Option<u64>, console: &Console) -> Result<(Hosts, Emulator), Failure> {
    let link = link_of(Some(scenario), "", seed)?;
    let hosts = Hosts::start().or_exit(Exit::LocalIo)?;
    let device = |end| hosts.device(end).or_exit(Exit::LocalIo);
    let emulator = Emulator::start(device(End::Near)?, device(End::Far)?, &link).or_exit(Exit::LocalIo)?;
    console.event(&Event::Hosts {
        near: hosts.name(End::Near),
        near_address: hosts.address(End::Near).to_string(),
        far: hosts.name(End::Far),
        far_address: hosts.address(End::Far).to_string(),
    });
    Ok((hosts, emulator))
}

fn conclude(emulator: Emulator, console: &Console) -> Result<(), Failure> {
    let counts = emulator.stop().or_exit(Exit::LocalIo)?;
    console.event(&stats(&counts));
    console.say(&sentences(&counts));
    Ok(())
}

/// Converts the counts of the link for `--json`.
pub fn stats(counted: &Counts) -> impl Serialize {
    Event::LabStats {
        forward: counts(&counted.forward()),
        back: counts(&counted.back()),
        refused: counted.refused,
        late_ms: Delay::from(&counted.late.distribution()),
    }
}

/// Describes the counts of the link for people.
pub fn sentences(counted: &Counts) -> String {
    let late = counted.late.distribution();
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.2} ms"));
    format!(
        "{}\nhanded on late by p50 {}, p95 {}, max {}; {} refused",
        describe(&counted.forward(), &counted.back()),
        ms(late.quantile(0.5)),
        ms(late.quantile(0.95)),
        ms(late.max()),
        counted.refused
    )
}
