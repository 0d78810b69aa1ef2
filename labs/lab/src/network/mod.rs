//! A network's plan in real time: its nodes are namespaces, its links emulated, and its flows run at once
//! over real sockets.
//!
//! `tidewire-lab run` calls [`run`] with a scenario of a network, and gets the same report as from the
//! simulator. All tunnels and flows connect first, one after the other; then the time of the plan begins. A
//! flow of TCP is the kernel's (`kernel`), a connection of ours is of the library (`ours`, with the relays of
//! `relay`), UDP is a socket (`datagrams`). All ends of flows are in this process, so latencies are of one
//! clock. A tunnel is two processes (`tunnel`). Invariant: every byte that arrives is compared with the one
//! that was sent.

mod content;
mod datagrams;
mod kernel;
mod ours;
mod peer;
mod relay;
mod tunnel;
mod window;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tidewire_proto::Time;
use tidewire_sim::network::{Carrier, FlowPlan, FlowReport, LinkReport, Plan, Report};

use self::content::Run;
use self::datagrams::Datagrams;
use self::kernel::Kernel;
use self::ours::Ours;
use self::peer::{PeerFlow, Programs};
pub use self::tunnel::Tunnels;
use self::window::Windows;
use crate::emulator::{Counts, Emulator};
use crate::nodes::Nodes;
use crate::peer::Table;

/// How often it looks whether all flows have ended.
const LOOK: Duration = Duration::from_millis(20);

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What the flows and the links had.
    pub report: Report,
    /// Counts of the emulator.
    pub counts: Counts,
    /// Packets that the emulator did not read in time. If there are any, the figures are void.
    pub unread: u64,
}

/// An end of a flow.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The node.
    node: usize,
    /// Its address for this flow: of a link, or of a tunnel.
    address: Ipv4Addr,
}

/// A flow with its two ends.
trait Flow {
    /// Whether all its bytes arrived.
    fn is_over(&self) -> bool;
    /// Ends it. The owner adds names and windows.
    fn end(self: Box<Self>) -> anyhow::Result<FlowReport>;
    /// The node and the port of its socket, if the kernel has a congestion window for it.
    fn socket(&self) -> Option<(usize, u16)> {
        None
    }
}

/// Checks that flows can use the peers that they name.
///
/// # Errors
/// A peer is unknown, carries no flow, or its program is missing.
pub fn check_peers(plan: &Plan, table: &Table) -> anyhow::Result<()> {
    for flow in &plan.flows {
        if let Carrier::Peer { peer, .. } = &flow.carrier {
            peer::usable(table, peer).with_context(|| format!("flow {}", flow.name))?;
        }
    }
    Ok(())
}

/// Runs a plan in real time. `program` is the command `tidewire`, which runs the ends of tunnels, and `table`
/// has the peers that flows name.
///
/// # Errors
/// Fails if the nodes cannot be made, or a tunnel or a flow cannot connect, or an end of a tunnel fails.
pub fn run(plan: &Plan, program: &Path, table: &Table) -> anyhow::Result<Outcome> {
    let nodes = Nodes::start(&plan.topology)?;
    let links = &plan.topology.links;
    let devices = nodes.devices(links.len())?;
    let emulator =
        Emulator::start_all(devices.into_iter().zip(links.iter().map(|link| &link.config)), Some(plan.sample))?;
    let tunnels = Tunnels::start(&nodes, plan, program)?;
    let shared = Arc::new(Run::default());
    let place = |flow: &FlowPlan, node: usize| {
        let address = flow.through.map_or_else(|| nodes.address(node), |tunnel| tunnels.address(tunnel, node));
        Place { node, address }
    };
    let programs = Programs { table, program };
    let start = |(n, flow): (usize, &FlowPlan)| {
        let ends = [place(flow, flow.from), place(flow, flow.to)];
        start(plan, n, ends, &nodes, programs, &shared).with_context(|| format!("flow {}", flow.name))
    };
    let flows: anyhow::Result<Vec<_>> = plan.flows.iter().enumerate().map(start).collect();
    let flows = flows?;
    let zero = shared.begin();
    let began = zero.saturating_duration_since(emulator.start_time());
    let sockets = flows.iter().map(|flow| flow.socket()).collect();
    let windows = Windows::sample(&nodes, sockets, zero);
    while zero.elapsed() < plan.limit() && !flows.iter().all(|flow| flow.is_over()) {
        std::thread::sleep(LOOK);
    }
    let seconds = zero.elapsed().as_secs_f64();
    let windows = windows.stop();
    shared.end();
    let mut reports = Vec::new();
    for ((flow, plan_of), seen) in flows.into_iter().zip(&plan.flows).zip(windows) {
        let mut report = flow.end()?;
        let node = |node: usize| plan.topology.nodes[node].name.clone();
        (report.name, report.from, report.to) = (plan_of.name.clone(), node(plan_of.from), node(plan_of.to));
        if let Some(seen) = seen {
            (report.window, report.packets, report.repeated) = (seen.window, seen.packets, seen.repeated);
        }
        reports.push(report);
    }
    let tunnels = tunnels.end()?;
    let unread = nodes.all_unread()?;
    let counts = emulator.stop()?;
    let links = reports_of_links(plan, &counts, began);
    let report = Report { flows: reports, tunnels, links, seconds, fingerprint: 0 };
    Ok(Outcome { report, counts, unread })
}

fn start(
    plan: &Plan,
    n: usize,
    ends: [Place; 2],
    nodes: &Nodes,
    programs: Programs<'_>,
    run: &Arc<Run>,
) -> anyhow::Result<Box<dyn Flow>> {
    let flow = &plan.flows[n];
    let seed = plan.seed.wrapping_add(n as u64);
    Ok(match &flow.carrier {
        Carrier::Ours { ends: configs, streams, via } => {
            let relays: Vec<_> = via.iter().map(|&node| Place { node, address: nodes.address(node) }).collect();
            Box::new(Ours::start(nodes, (ends, &relays), configs, streams, plan.limit(), seed, run)?)
        }
        Carrier::Tcp { control, marks, content } => {
            Box::new(Kernel::start(nodes, ends, (*control, *marks), content, flow.start, seed, run)?)
        }
        Carrier::Peer { peer, content } => {
            Box::new(PeerFlow::start(nodes, ends, (plan, n), (peer, content), programs, seed, run)?)
        }
        Carrier::Bucket { .. } => {
            anyhow::bail!("flow {} is coded below TCP, which only the simulator can do", flow.name)
        }
        Carrier::Datagrams { content } => Box::new(Datagrams::start(nodes, ends, content, flow.start, seed, run)?),
    })
}

/// The links' counts and queues. Samples count from the beginning of the flows.
fn reports_of_links(plan: &Plan, counts: &Counts, began: Duration) -> Vec<LinkReport> {
    let report = |(n, joint): (usize, &tidewire_sim::network::topology::Joint)| {
        let mut samples = counts.samples.get(n).cloned().unwrap_or_default();
        for samples in &mut samples {
            samples.retain(|sample| sample.at >= Time::ZERO + began);
            samples.iter_mut().for_each(|sample| sample.at = Time::ZERO + sample.at.since(Time::ZERO + began));
        }
        let stats = counts.links.get(n).copied().unwrap_or_default();
        LinkReport { name: joint.name.clone(), stats, samples }
    };
    plan.topology.links.iter().enumerate().map(report).collect()
}

/// A moment that all flows share, in the units of the report.
fn since(zero: Instant) -> Time {
    Time::ZERO + zero.elapsed()
}
