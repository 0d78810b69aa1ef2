//! Networks of any number of nodes: links and routers between them, and several flows at once.
//!
//! A [`Plan`] describes all of it: nodes, links and flows, from a scenario file or from code. [`Network`]
//! runs a plan in virtual time, and the lab runs the same plan with real kernels. A scenario of two ends is
//! the plan with one link and one connection ([`Plan::from`]).
//!
//! - [`topology`]: nodes, links, and the ways between nodes.
//! - [`fabric`]: the links in operation, and the forwarding of routers.
//! - `plan` and `file`: what runs, and the scenario file that describes it (`docs/networks.md`).
//! - `agent`: one flow, with both ends: ours ([`Run`](crate::report::Run)), ours over relays
//!   ([`Chain`](crate::chain::Chain)), TCP ([`TcpPair`](crate::tcp::TcpPair)), TCP over buckets
//!   ([`bucket`](crate::tcp::bucket)), or datagrams without any control.
//! - `tunnel`: a connection of ours that carries the packets of TCP and datagrams.
//! - `report`: what came out, over time too.
//!
//! Invariant: a run follows from its plan and seed alone; equal runs have equal fingerprints.

mod agent;
mod bucket;
mod datagrams;
pub mod fabric;
mod file;
mod ours;
mod plan;
mod relayed;
mod report;
mod tcp;
pub mod topology;
mod tunnel;

#[cfg(test)]
mod tests;

use tidewire_codec::SplitMix64;
use tidewire_proto::Time;

use agent::{Addressee, Agent, Cargo, Letter, Sent};
use fabric::{Fabric, Packet};
use tunnel::{Inner, Tunnel};

use crate::duplex::DuplexLink;
use crate::pair::{BEGINNING, End};
use crate::series::Series;

pub use file::{Described, read};
pub use plan::{Batch, Carrier, Content, Control, FlowPlan, Plan, TunnelPlan};
pub use report::{
    Arrival, Buckets, DROPS, FlowReport, LinkReport, LinkSample, Report, TunnelEnd, TunnelReport, jitter, viewing,
};

/// Maximum number of steps at one time. More mean that two ends answer each other without end over links
/// without delay.
const MOST_STEPS: u32 = 100_000;

/// A plan in operation; see the module.
#[derive(Debug)]
pub struct Network {
    plan: Plan,
    fabric: Fabric<Letter>,
    agents: Vec<Box<dyn Agent>>,
    tunnels: Vec<Tunnel>,
    /// The state of each direction of each link, over time.
    series: Vec<[Series<LinkSample>; 2]>,
    now: Time,
    steps: u32,
    fingerprint: u64,
}

impl Network {
    /// Starts a plan. Nothing has arrived yet.
    ///
    /// # Panics
    /// Panics if the plan has a flow that the simulator lacks (see [`Plan::not_simulated`]).
    pub fn new(plan: &Plan) -> Self {
        let routes = plan.topology.routes();
        let agent =
            |(index, flow)| agent::start(plan, index, flow, plan.topology.round_trip(&routes, flow.from, flow.to));
        // Behind the seeds of the flows.
        let seed = |index: usize| plan.seed.wrapping_add(((plan.flows.len() + index) as u64).wrapping_mul(FOLD));
        let tunnel = |(index, tunnel)| Tunnel::start(tunnel, seed(index));
        let one = || Series::new(plan.sample);
        Self {
            fabric: Fabric::new(&plan.topology),
            agents: plan.flows.iter().enumerate().map(agent).collect(),
            tunnels: plan.tunnels.iter().enumerate().map(tunnel).collect(),
            series: plan.topology.links.iter().map(|_| [one(), one()]).collect(),
            now: BEGINNING,
            steps: 0,
            fingerprint: 0,
            plan: plan.clone(),
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The links, for their counts, or for changes during a run.
    pub fn links_mut(&mut self) -> &mut [DuplexLink<Packet<Letter>>] {
        self.fabric.links_mut()
    }

    /// Runs until the plan's time is over, or until all flows have ended. Returns what came out.
    pub fn run(mut self) -> Report {
        self.until(Time::ZERO + self.plan.limit());
        self.report()
    }

    /// Advances to `until`, or until all flows have ended or nothing is left to happen.
    pub fn until(&mut self, until: Time) {
        // What was sent when the flows were made.
        self.send_all();
        while !self.agents.iter().all(|agent| agent.is_over()) {
            let Some(next) = self.next_moment() else { return };
            if next > until {
                self.now = self.now.max(until);
                return;
            }
            self.steps = if next > self.now { 0 } else { self.steps + 1 };
            assert!(self.steps < MOST_STEPS, "{MOST_STEPS} steps at {:?}: give the links a delay", self.now);
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn next_moment(&self) -> Option<Time> {
        let flows = self.agents.iter().filter_map(|agent| agent.next_moment()).min();
        let tunnels = self.tunnels.iter().filter_map(Tunnel::next_moment);
        let next = self.fabric.poll_timeout().into_iter().chain(flows).chain(tunnels).min()?;
        let sample = self.series.first().map(|[forward, _]| forward.next());
        Some(sample.map_or(next, |sample| sample.min(next)))
    }

    /// Handles everything that happens now.
    fn step(&mut self) {
        let now = self.now;
        while let Some(packet) = self.fabric.poll_arrival(now) {
            let Packet { marked, damage, payload: Letter { to, end, cargo }, .. } = packet;
            match to {
                Addressee::Flow(flow) => self.agents[flow].hand(now, end, cargo, marked, &damage),
                Addressee::Tunnel(tunnel) => self.tunnels[tunnel].hand(now, end, cargo, marked, &damage),
            }
        }
        for agent in &mut self.agents {
            if agent.next_moment().is_some_and(|at| at <= now) {
                agent.run(now);
            }
        }
        self.send_all();
        for (link, [forward, back]) in self.fabric.links_mut().iter_mut().zip(&mut self.series) {
            forward.note(now, || LinkSample::of(now, &mut link.forward));
            back.note(now, || LinkSample::of(now, &mut link.back));
        }
    }

    /// Puts on the links what the flows and tunnels have to send, and hands over what came through tunnels.
    fn send_all(&mut self) {
        let now = self.now;
        for flow in 0..self.agents.len() {
            let plan = &self.plan.flows[flow];
            let ways = [plan.from, plan.to];
            // A tunnel and the flows inside have the same ends, in either order.
            let through = plan.through.map(|tunnel| (tunnel, self.plan.tunnels[tunnel].from == plan.from));
            while let Some(sent) = self.agents[flow].poll_departure() {
                let ways = match sent.cargo {
                    Cargo::Hop { number, .. } => self.plan.flows[flow].hop(number),
                    _ => ways,
                };
                match through {
                    None => self.send(Addressee::Flow(flow), ways, sent),
                    Some((tunnel, is_same)) => {
                        let end = if is_same { sent.from } else { sent.from.other() };
                        self.tunnels[tunnel].push(now, end, Inner::new(flow, sent));
                    }
                }
            }
        }
        for tunnel in 0..self.tunnels.len() {
            let plan = &self.plan.tunnels[tunnel];
            let ways = [plan.from, plan.to];
            if self.tunnels[tunnel].next_moment().is_some_and(|at| at <= now) {
                self.tunnels[tunnel].run(now);
            }
            while let Some(Inner { flow, to, cargo, marked, .. }) = self.tunnels[tunnel].poll_arrival() {
                self.agents[flow].hand(now, to, cargo, marked, &[]);
            }
            while let Some(sent) = self.tunnels[tunnel].poll_departure() {
                self.send(Addressee::Tunnel(tunnel), ways, sent);
            }
        }
    }

    /// Puts a packet on the way between the nodes of the near and the far end.
    fn send(&mut self, to: Addressee, [near, far]: [usize; 2], sent: Sent) {
        let Sent { from, len, supports_marks, cargo } = sent;
        let (at, node) = if from == End::Near { (near, far) } else { (far, near) };
        let number = match to {
            Addressee::Flow(flow) => flow,
            Addressee::Tunnel(tunnel) => self.agents.len() + tunnel,
        };
        let values = [self.now.0, number as u64, from as u64, len as u64, cargo.digest()];
        let fold = |hash: u64, value: u64| (hash.rotate_left(5) ^ value).wrapping_mul(FOLD);
        self.fingerprint = values.into_iter().fold(self.fingerprint, fold);
        let letter = Letter { to, end: from.other(), cargo };
        self.fabric.send(self.now, at, Packet::new(node, len, supports_marks, letter));
    }

    /// What came out so far.
    pub fn report(&mut self) -> Report {
        let now = self.now;
        let node = |node: usize| self.plan.topology.nodes[node].name.clone();
        let describe = |(agent, flow): (&mut Box<dyn Agent>, &FlowPlan)| {
            let outcome = agent.outcome(now);
            FlowReport { name: flow.name.clone(), from: node(flow.from), to: node(flow.to), ..outcome }
        };
        let flows = self.agents.iter_mut().zip(&self.plan.flows).map(describe).collect();
        let between = |(tunnel, plan): (&mut Tunnel, &TunnelPlan)| {
            let (name, from, to) = (plan.name.clone(), node(plan.from), node(plan.to));
            TunnelReport { name, from, to, ..tunnel.report() }
        };
        let tunnels = self.tunnels.iter_mut().zip(&self.plan.tunnels).map(between).collect();
        let joints = self.plan.topology.links.iter().zip(&self.series);
        let links = joints.zip(self.fabric.links_mut()).map(|((joint, [forward, back]), link)| LinkReport {
            name: joint.name.clone(),
            stats: [*link.forward.stats(), *link.back.stats()],
            samples: [forward.samples().to_vec(), back.samples().to_vec()],
        });
        Report {
            links: links.collect(),
            flows,
            tunnels,
            seconds: now.since(Time::ZERO).as_secs_f64(),
            fingerprint: self.fingerprint,
        }
    }
}

/// The odd number next to 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3,
/// section 6.4).
const FOLD: u64 = SplitMix64::STEP;
