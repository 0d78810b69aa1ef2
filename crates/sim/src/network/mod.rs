//! Networks of any number of nodes: links and routers between them, and several flows at once.
//!
//! A [`Plan`] describes all of it: nodes, links and flows, from a scenario file or from code. [`Network`]
//! runs a plan in virtual time, and the lab runs the same plan with real kernels. A scenario of two ends is
//! the plan with one link and one connection ([`Plan::from`]).
//!
//! - [`topology`]: nodes, links, and the ways between nodes.
//! - [`fabric`]: the links in operation, and the forwarding of routers.
//! - `plan` and `file`: what runs, and the scenario file that describes it (`docs/networks.md`).
//! - `agent`: one flow, with both ends: ours ([`Run`](crate::report::Run)), TCP
//!   ([`TcpPair`](crate::tcp::TcpPair)), or datagrams without any control.
//! - `report`: what came out, over time too.
//!
//! Invariant: a run follows from its plan and seed alone; equal runs have equal fingerprints.

mod agent;
mod datagrams;
pub mod fabric;
mod file;
mod ours;
mod plan;
mod report;
mod tcp;
pub mod topology;

#[cfg(test)]
mod tests;

use tidewire_proto::Time;

use agent::{Agent, Letter, Sent};
use fabric::{Fabric, Packet};

use crate::duplex::DuplexLink;
use crate::pair::{BEGINNING, End};
use crate::series::Series;

pub use file::{Described, read};
pub use plan::{Carrier, Content, Control, FlowPlan, Plan, TunnelPlan};
pub use report::{DROPS, FlowReport, LinkReport, LinkSample, Report, TunnelEnd, TunnelReport, jitter, watched};

/// Maximum number of steps at one time. More mean that two ends answer each other without end over links
/// without delay.
const MOST_STEPS: u32 = 100_000;

/// A plan in operation; see the module.
#[derive(Debug)]
pub struct Network {
    plan: Plan,
    fabric: Fabric<Letter>,
    agents: Vec<Box<dyn Agent>>,
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
    /// Panics if the plan has a flow that the simulator lacks (see [`Plan::not_simulated`]), or a tunnel.
    pub fn new(plan: &Plan) -> Self {
        assert!(plan.tunnels.is_empty(), "the simulator has no tunnels");
        let routes = plan.topology.routes();
        let agent =
            |(index, flow)| agent::start(plan, index, flow, plan.topology.round_trip(&routes, flow.from, flow.to));
        let one = || Series::new(plan.sample);
        Self {
            fabric: Fabric::new(&plan.topology),
            agents: plan.flows.iter().enumerate().map(agent).collect(),
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
        let next = self.fabric.poll_timeout().into_iter().chain(flows).min()?;
        let sample = self.series.first().map(|[forward, _]| forward.next());
        Some(sample.map_or(next, |sample| sample.min(next)))
    }

    /// Handles everything that happens now.
    fn step(&mut self) {
        let now = self.now;
        while let Some(packet) = self.fabric.poll_arrival(now) {
            let Packet { marked, damage, payload: Letter { flow, end, cargo }, .. } = packet;
            self.agents[flow].hand(now, end, cargo, marked, &damage);
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

    /// Puts on the links what the flows have to send.
    fn send_all(&mut self) {
        for (flow, (agent, plan)) in self.agents.iter_mut().zip(&self.plan.flows).enumerate() {
            while let Some(Sent { from, len, supports_marks, cargo }) = agent.poll_departure() {
                let (at, to) = if from == End::Near { (plan.from, plan.to) } else { (plan.to, plan.from) };
                let values = [self.now.0, flow as u64, from as u64, len as u64, cargo.digest()];
                self.fingerprint = values
                    .into_iter()
                    .fold(self.fingerprint, |hash, value| (hash.rotate_left(5) ^ value).wrapping_mul(FOLD));
                let letter = Letter { flow, end: from.other(), cargo };
                self.fabric.send(self.now, at, Packet::new(to, len, supports_marks, letter));
            }
        }
    }

    /// What came out so far.
    pub fn report(&mut self) -> Report {
        let now = self.now;
        let describe = |(agent, flow): (&mut Box<dyn Agent>, &FlowPlan)| {
            let node = |node: usize| self.plan.topology.nodes[node].name.clone();
            let outcome = agent.outcome(now);
            FlowReport { name: flow.name.clone(), from: node(flow.from), to: node(flow.to), ..outcome }
        };
        let flows = self.agents.iter_mut().zip(&self.plan.flows).map(describe).collect();
        let joints = self.plan.topology.links.iter().zip(&self.series);
        let links = joints.zip(self.fabric.links_mut()).map(|((joint, [forward, back]), link)| LinkReport {
            name: joint.name.clone(),
            stats: [*link.forward.stats(), *link.back.stats()],
            samples: [forward.samples().to_vec(), back.samples().to_vec()],
        });
        Report {
            links: links.collect(),
            flows,
            tunnels: Vec::new(),
            seconds: now.since(Time::ZERO).as_secs_f64(),
            fingerprint: self.fingerprint,
        }
    }
}

/// The odd number next to 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3,
/// section 6.4).
const FOLD: u64 = 0x9e37_79b9_7f4a_7c15;
