//! `tidewire lab up` and `tidewire lab run` with the scenario of a network: its nodes as namespaces, and its
//! flows in real time.

use std::path::Path;

use serde::Serialize;
use tidewire_lab::distribution::Distribution;
use tidewire_lab::emulator::Emulator;
use tidewire_lab::network::Tunnels;
use tidewire_lab::nodes::Nodes;
use tidewire_sim::network::{self, Described, Plan};

use super::hosts::REPORT_PERIOD;
use crate::exit::{Exit, Failure, OrExit};
use crate::report::Console;
use crate::session::{self, unless_interrupted};

/// The events of the nodes.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// A node of `lab up` is ready.
    Node {
        /// Its name in the scenario.
        name: &'a str,
        /// Its network namespace.
        namespace: &'a str,
        /// An address of it.
        address: String,
    },
}

/// The plan of a scenario file; `None` if it describes two ends. `seed` replaces the file's seed.
pub(super) fn plan_of(scenario: &Path, seed: Option<u64>) -> Result<Option<Plan>, Failure> {
    let Described::Network(plan) = network::read(scenario).or_exit(Exit::Usage)? else { return Ok(None) };
    Ok(Some(match seed {
        Some(seed) => plan.with_seed(seed),
        None => plan,
    }))
}

/// Keeps the nodes until Ctrl-C.
pub(super) async fn up(plan: &Plan, console: &Console) -> Result<(), Failure> {
    let nodes = Nodes::start(&plan.topology).or_exit(Exit::LocalIo)?;
    let links = &plan.topology.links;
    let devices = nodes.devices(links.len()).or_exit(Exit::LocalIo)?;
    let wires = devices.into_iter().zip(links.iter().map(|link| &link.config));
    let emulator = Emulator::start_all(wires, None).or_exit(Exit::LocalIo)?;
    for (number, node) in plan.topology.nodes.iter().enumerate() {
        let (namespace, address) = (nodes.name(number), nodes.address(number).to_string());
        console.say(&format!("{} {address}: ip netns exec {namespace} COMMAND", node.name));
        console.event(&Event::Node { name: &node.name, namespace, address });
    }
    let program = std::env::current_exe().or_exit(Exit::LocalIo)?;
    let tunnels = Tunnels::start(&nodes, plan, &program).or_exit(Exit::LocalIo)?;
    tunnels.describe().for_each(|sentence| console.say(&sentence));
    console.say("Ctrl-C removes them and ends what runs there");
    let ended = unless_interrupted(async {
        let mut ticks = tokio::time::interval(REPORT_PERIOD);
        while emulator.is_running() {
            ticks.tick().await;
        }
        Ok(())
    })
    .await;
    drop(tunnels);
    console.say(&late(&emulator.stop().or_exit(Exit::LocalIo)?.late.distribution()));
    session::quietly(ended)
}

/// Runs the flows of a network.
pub(super) fn run(scenario: &Path, seed: Option<u64>, svg: Option<&Path>, console: &Console) -> Result<(), Failure> {
    let Some(plan) = plan_of(scenario, seed)? else {
        let text = "the flows of two ends run in the simulator only: name a command behind --, or --peer, or a network";
        return Err(Failure::message(Exit::Usage, text));
    };
    let program = std::env::current_exe().or_exit(Exit::LocalIo)?;
    let outcome = tidewire_lab::network::run(&plan, &program).or_exit(Exit::LocalIo)?;
    console.say(&late(&outcome.counts.late.distribution()));
    if outcome.unread > 0 {
        console.say(&format!("the emulator missed {} packets: the figures are void", outcome.unread));
    }
    crate::verb::network::conclude(&outcome.report, console, svg)
}

fn late(late: &Distribution) -> String {
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.2} ms"));
    format!("handed on late by p50 {}, p95 {}, max {}", ms(late.quantile(0.5)), ms(late.quantile(0.95)), ms(late.max()))
}
