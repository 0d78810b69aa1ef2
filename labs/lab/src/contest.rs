//! Flows of kernel TCP and of ours on one queue: the share that each gets.
//!
//! The verb `tidewire-lab contest` runs one contest; `cargo measure lab` makes the table of `docs/lab.md`.
//! All flows go from the near host to the far one, start one after the other and then compete until the end.
//! What counts is what the applications received after all flows have settled. Invariant: shares are relative
//! to the link's rate, which includes headers and repairs; the shares do not.

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

/// Name of a flow of ours with default options. With a profile the name is `tidewire=PROFILE`. Any other name
/// is the kernel's name of a TCP congestion control.
pub const OURS: &str = "tidewire";
/// Maximum number of flows. Chosen: with more, the flows would share the machine and not the link.
pub const MOST_FLOWS: usize = 16;
/// Time between the starts of two flows. Chosen: some round trips, so that start-ups do not coincide.
const STAGGER: Duration = Duration::from_millis(500);
/// How long a flow of ours would continue after the end. It is ended from outside.
const BEYOND: Duration = Duration::from_secs(60);

/// A contest to be run.
#[derive(Clone, Debug)]
pub struct Contest {
    /// The link. Its forward rate is fixed.
    pub link: DuplexConfig,
    /// The file of the `tidewire` command, for our flows.
    pub program: PathBuf,
    /// Names of the flows in the order of their start.
    pub flows: Vec<String>,
    /// Time from the start of the last flow until counting begins.
    pub settle: Duration,
    /// Duration of the counting.
    pub time: Duration,
}

/// The result of a contest.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Bits per second that each flow delivered.
    pub goodput_bps: Vec<f64>,
    /// Rate of the link in bits per second.
    pub rate_bps: f64,
    /// Counts of the link, from the first packet on.
    pub counts: Counts,
    /// Packets of either host that the emulator did not read in time. If there are any, the figures are void.
    pub unread: u64,
}

impl Outcome {
    /// The share of the link's rate of each flow.
    pub fn shares(&self) -> impl Iterator<Item = f64> + '_ {
        self.goodput_bps.iter().map(|goodput| goodput / self.rate_bps)
    }
}

impl Contest {
    /// Runs the contest in real time.
    ///
    /// # Errors
    /// Fails if the hosts cannot be made, a flow cannot be started, or a flow delivered nothing.
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

/// The profile of a flow of ours; `None` for kernel TCP.
pub fn profile(name: &str) -> Option<&str> {
    match name.strip_prefix(OURS)? {
        "" => Some("stream"),
        rest => rest.strip_prefix('='),
    }
}

enum Flow {
    Tcp(TcpFlow),
    Ours(OurFlow),
}

impl Flow {
    fn start(hosts: &Hosts, name: &str, program: &Path, lasts: Duration) -> anyhow::Result<Self> {
        match profile(name) {
            Some(profile) => OurFlow::start(hosts, program, profile, lasts).map(Self::Ours),
            None => TcpFlow::start(hosts, name).map(Self::Tcp),
        }
    }

    fn received(&self) -> u64 {
        match self {
            Self::Tcp(flow) => flow.received(),
            Self::Ours(flow) => flow.received(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_kernel_tcp_or_ours_with_a_profile() {
        let names = ["tidewire", "tidewire=sphinx:printed", "cubic", "tidewires"];
        assert_eq!(names.map(profile), [Some("stream"), Some("sphinx:printed"), None, None]);
    }
}
