//! `tidewire-lab up` and `tidewire-lab run` with the scenario of a network: its nodes as namespaces, and its
//! flows in real time, or commands on its nodes.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::{self, quietly, unless_interrupted};
use tidewire_command::report::Console;
use tidewire_figures::Distribution;
use tidewire_lab::emulator::Emulator;
use tidewire_lab::network::Tunnels;
use tidewire_lab::nodes::Nodes;
use tidewire_lab::peer::Table;
use tidewire_sim::network::topology::Node;
use tidewire_sim::network::{self, Described, Plan};

use crate::hosts::{REPORT_PERIOD, to_its_end};
use crate::{product, report};

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// A node of `tidewire-lab up` is ready.
    Node {
        /// Its name in the scenario.
        name: &'a str,
        namespace: &'a str,
        address: String,
    },
}

/// The plan of a scenario file; `None` if it describes two ends. `seed` replaces the file's seed.
pub fn plan_of(scenario: &Path, seed: Option<u64>) -> Result<Option<Plan>, Failure> {
    let Described::Network(plan) = network::read(scenario).or_exit(Exit::Usage)? else { return Ok(None) };
    Ok(Some(match seed {
        Some(seed) => plan.with_seed(seed),
        None => plan,
    }))
}

/// Commands on nodes.
pub struct Commands<'a> {
    /// The node of the command; the first without one.
    pub at: Option<&'a str>,
    /// Shell commands of other nodes, each as `NODE=COMMAND`.
    pub others: &'a [String],
    pub command: &'a [OsString],
}

/// Nodes with their links and tunnels, without flows. The tunnels end before their nodes.
struct Running {
    tunnels: Tunnels,
    emulator: Emulator,
    nodes: Nodes,
}

impl Running {
    fn start(plan: &Plan) -> Result<Self, Failure> {
        let nodes = Nodes::start(&plan.topology).or_exit(Exit::LocalIo)?;
        let links = &plan.topology.links;
        let devices = nodes.devices(links.len()).or_exit(Exit::LocalIo)?;
        let wires = devices.into_iter().zip(links.iter().map(|link| &link.config));
        let emulator = Emulator::start_all(wires, None).or_exit(Exit::LocalIo)?;
        let program = product::file().or_exit(Exit::Other)?;
        let tunnels = Tunnels::start(&nodes, plan, &program).or_exit(Exit::LocalIo)?;
        Ok(Self { tunnels, emulator, nodes })
    }

    /// Removes all, and says how punctual the links were.
    fn end(self, console: &Console) -> Result<(), Failure> {
        drop(self.tunnels);
        console.say(&late(&self.emulator.stop().or_exit(Exit::LocalIo)?.late.distribution()));
        Ok(())
    }
}

/// Keeps the nodes until Ctrl-C.
pub async fn up(plan: &Plan, console: &Console) -> Result<(), Failure> {
    interrupt::heed();
    let running = Running::start(plan)?;
    for (number, node) in plan.topology.nodes.iter().enumerate() {
        let (namespace, address) = (running.nodes.name(number), running.nodes.address(number).to_string());
        console.say(&format!("{} {address}: ip netns exec {namespace} COMMAND", node.name));
        console.event(&Event::Node { name: &node.name, namespace, address });
    }
    running.tunnels.describe().for_each(|sentence| console.say(&sentence));
    console.say("Ctrl-C removes them and ends what runs there");
    let ended = unless_interrupted(async {
        let mut ticks = tokio::time::interval(REPORT_PERIOD);
        while running.emulator.is_running() {
            ticks.tick().await;
        }
        Ok(())
    })
    .await;
    running.end(console)?;
    quietly(ended)
}

/// Runs a command on a node, beside those of other nodes. The tunnels are up, and no flow of the plan runs.
///
/// # Errors
/// [`Exit::Usage`] for an unknown node, [`Exit::Other`] if the command fails.
pub async fn run_command(plan: &Plan, commands: &Commands<'_>, console: &Console) -> Result<(), Failure> {
    let at = commands.at.map_or(Ok(0), |name| node_named(plan, name))?;
    let others: Vec<_> = commands.others.iter().map(|other| split(plan, other)).collect::<Result<_, _>>()?;
    let running = Running::start(plan)?;
    let addresses = || {
        let address =
            |(number, node): (usize, &Node)| (variable(&node.name), running.nodes.address(number).to_string());
        plan.topology.nodes.iter().enumerate().map(address)
    };
    for (node, other) in others {
        let mut shell: Command = running.nodes.command(node, "sh");
        // The process that guards the nodes stops this command when they are removed.
        shell.arg("-c").arg(other).envs(addresses()).stdin(Stdio::null()).spawn().or_exit(Exit::LocalIo)?;
    }
    let mut command = running.nodes.command(at, &commands.command[0]);
    command.args(&commands.command[1..]).envs(addresses());
    let ended = unless_interrupted(to_its_end(command)).await;
    running.end(console)?;
    ended
}

/// The variable with the address of a node.
fn variable(node: &str) -> String {
    format!("ADDRESS_{}", node.to_uppercase().replace('-', "_"))
}

/// The node and the command of `NODE=COMMAND`.
fn split<'a>(plan: &Plan, other: &'a str) -> Result<(usize, &'a str), Failure> {
    let (node, command) = other.split_once('=').ok_or_else(|| {
        Failure::message(Exit::Usage, format_args!("--other {other}: write NODE=COMMAND, as \"server=iperf3 -s\""))
    })?;
    Ok((node_named(plan, node)?, command))
}

fn node_named(plan: &Plan, name: &str) -> Result<usize, Failure> {
    let nodes = &plan.topology.nodes;
    nodes.iter().position(|node| node.name == name).ok_or_else(|| {
        let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
        Failure::message(Exit::Usage, format_args!("no node `{name}`; there are: {}", names.join(", ")))
    })
}

/// Runs the flows of a network. `peers` is a file with more peers.
pub fn run(plan: &Plan, peers: Option<&Path>, svg: Option<&Path>, console: &Console) -> Result<(), Failure> {
    let program = product::file().or_exit(Exit::Other)?;
    let table = Table::read(peers).or_exit(Exit::Usage)?;
    tidewire_lab::network::check_peers(plan, &table).or_exit(Exit::Usage)?;
    let outcome = tidewire_lab::network::run(plan, &program, &table).or_exit(Exit::LocalIo)?;
    console.say(&late(&outcome.counts.late.distribution()));
    if outcome.unread > 0 {
        console.say(&format!("the emulator missed {} packets: the figures are void", outcome.unread));
    }
    report::conclude(&outcome.report, console, svg)
}

fn late(late: &Distribution) -> String {
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.2} ms"));
    format!("handed on late by p50 {}, p95 {}, max {}", ms(late.quantile(0.5)), ms(late.quantile(0.95)), ms(late.max()))
}
