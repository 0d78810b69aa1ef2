//! Flows of kernel TCP and of ours on one queue: who gets how much of it.
//!
//! The verb `lab contest` runs one of them; `cargo xtask lab` the table of `docs/lab.md`. All flows go from
//! the near host to the far one, start one after the other and then compete to the end. What is counted is
//! what applications received after everyone has settled. Invariant: shares are of the link's rate, headers
//! and repairs included in the rate and not in the share.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::Capacity;

use crate::emulator::{Counts, Emulator};
use crate::hosts::Hosts;
use crate::ours::OurFlow;
use crate::tcp::TcpFlow;
use tidewire_sim::pair::End;

/// The name of a flow of ours; any other is the kernel's name of a TCP congestion control.
pub const OURS: &str = "tidewire";
/// Most flows at once; chosen: beyond, the machine and not the link would be shared.
pub const MOST_FLOWS: usize = 16;
/// Time between the starts of two flows; chosen: some round trips, so that start-ups do not coincide.
const STAGGER: Duration = Duration::from_millis(500);
/// How long a flow of ours would go on after the end: it is ended, it does not end.
const BEYOND: Duration = Duration::from_secs(60);

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Contest {
    /// The link; its forward rate is fixed.
    pub link: DuplexConfig,
    /// The file of the `tidewire` command, for flows of ours.
    pub program: PathBuf,
    /// Names of the flows in the order of their start.
    pub flows: Vec<String>,
    /// From the start of the last flow until counting begins.
    pub settle: Duration,
    /// How long is counted.
    pub time: Duration,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Bits per second that each flow delivered.
    pub goodput_bps: Vec<f64>,
    /// Bits per second of the link.
    pub rate_bps: f64,
    /// What the link counted, from the first packet on.
    pub counts: Counts,
    /// Packets that the emulator did not read in time, from either host: figures with any are void.
    pub unread: u64,
}

impl Outcome {
    /// The share of the link's rate that each flow had.
    pub fn shares(&self) -> impl Iterator<Item = f64> + '_ {
        self.goodput_bps.iter().map(|goodput| goodput / self.rate_bps)
    }
}

impl Contest {
    /// Runs it, in real time.
    ///
    /// # Errors
    /// When the hosts cannot be made, a flow not be started, or one of them got nothing across.
    pub fn run(&self) -> anyhow::Result<Outcome> {
        let Capacity::Fixed(rate) = &self.link.forward.capacity else {
            bail!("a contest is for a link of one rate: set rate = \"25mbit\" or so");
        };
        let hosts = Hosts::start()?;
        let emulator = Emulator::start(hosts.device(End::Near)?, hosts.device(End::Far)?, &self.link)?;
        let lasts = STAGGER * MOST_FLOWS as u32 + self.settle + self.time + BEYOND;
        let mut flows = Vec::new();
        for (n, name) in self.flows.iter().enumerate() {
            if n > 0 {
                std::thread::sleep(STAGGER);
            }
            flows.push(Flow::start(&hosts, name, &self.program, lasts).with_context(|| format!("the flow {name}"))?);
        }
        let received = || flows.iter().map(Flow::received).collect::<Vec<_>>();
        std::thread::sleep(self.settle);
        let (begun, before) = (Instant::now(), received());
        std::thread::sleep(self.time);
        let (took, after) = (begun.elapsed().as_secs_f64(), received());
        let counts = emulator.counts();
        if let Some(silent) = after.iter().position(|&bytes| bytes == 0) {
            bail!("nothing of the flow {} arrived", self.flows[silent]);
        }
        drop(flows);
        let unread = hosts.unread(End::Near)? + hosts.unread(End::Far)?;
        emulator.stop()?;
        let goodput_bps = after.iter().zip(before).map(|(after, before)| 8.0 * (after - before) as f64 / took);
        Ok(Outcome { goodput_bps: goodput_bps.collect(), rate_bps: rate.bits_per_second() as f64, counts, unread })
    }
}

enum Flow {
    Tcp(TcpFlow),
    Ours(OurFlow),
}

impl Flow {
    fn start(hosts: &Hosts, name: &str, program: &Path, lasts: Duration) -> anyhow::Result<Self> {
        match name {
            OURS => OurFlow::start(hosts, program, lasts).map(Self::Ours),
            control => TcpFlow::start(hosts, control).map(Self::Tcp),
        }
    }

    fn received(&self) -> u64 {
        match self {
            Self::Tcp(flow) => flow.received(),
            Self::Ours(flow) => flow.received(),
        }
    }
}
