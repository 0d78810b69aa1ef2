//! One run of one peer over one link: records enter at the near host and leave at the far one, and the link
//! is measured.
//!
//! The verb `tidewire-lab run --peer` makes a [`Trial`] for each peer and seed, and the experiments of
//! `tidewire-papers` for kernel TCP. Hosts, link and processes are new in each. Invariant: a delay is arrival
//! in order minus creation minus the link's one-way time, all by one clock. Bytes are counted at the link
//! with IP headers, from the first record on; connecting does not count.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::{Capacity, LinkStats};
use tidewire_sim::pair::End;
use tidewire_units::{Probability, Rate};

use crate::emulator::{Counts, Emulator};
use crate::hosts::Hosts;
use crate::opening::Sink;
use crate::peer::{KernelTcp, Kind, Peer, Surroundings};
use crate::processes::Processes;
pub use crate::processes::Usage;
use crate::records::{Arrival, Emission, Outcome, Way};
use crate::tcp::{begin_with_reno, set_control};
use tidewire_figures::{Distribution, milliseconds};

/// Length of a record on a stream: one packet without headers. Chosen.
const STREAM_RECORD: usize = 1_200;
/// Length of a record sent as a datagram: seven packets of an MPEG transport stream, SRT's usual payload.
const DATAGRAM_RECORD: usize = 1_316;
/// Time at the beginning that goodput and settled delays leave out, for slow start. In a run shorter than
/// four times this, it is a quarter of the run.
const START: Duration = Duration::from_secs(3);
/// How long to wait for records beyond four round trips, by which time any repair has arrived.
const GRACE: Duration = Duration::from_secs(1);
/// The kernel's limit of unsent bytes in a TCP socket.
const NOTSENT: &str = "ipv4/tcp_notsent_lowat";
/// Whether the kernel's TCP offers SACK. Both ends have to.
const SACK: &str = "ipv4/tcp_sack";
/// The nodes of the hosts.
const ENDS: [usize; 2] = [End::Near as usize, End::Far as usize];
/// Ports. The hosts are new, so these are free.
const ENTRY: u16 = 4_000;
const SINK: u16 = 4_001;
const WIRE: u16 = 4_200;

/// The offered traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Traffic {
    /// Records at this fraction of the link's rate.
    Share(f64),
    /// At this rate, in bits per second.
    Rate(u64),
    /// As fast as records are accepted.
    Full,
}

/// A run to be made.
#[derive(Clone, Debug)]
pub struct Trial<'a> {
    /// The link, with its seed.
    pub link: DuplexConfig,
    /// The file of the `tidewire` command, for peers that run it.
    pub program: &'a Path,
    /// The peer that carries the records.
    pub peer: &'a Peer,
    /// The offered traffic.
    pub load: Traffic,
    /// Length of a record on a stream in bytes; `None` for one packet. Datagrams have a length of their own.
    pub record: Option<usize>,
    /// Duration.
    pub time: Duration,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Records that were due.
    pub made: u64,
    /// Records that arrived.
    pub delivered: u64,
    /// Bits per second of records that arrived after the run had settled.
    pub goodput_bps: f64,
    /// In-order delay beyond the one-way time.
    pub delay: Distribution,
    /// The same for records made after the run had settled.
    pub settled: Distribution,
    /// IP bytes sent per byte delivered to the application.
    pub sent_per_app: Option<f64>,
    /// IP bytes sent in the other direction per byte delivered.
    pub back_per_app: Option<f64>,
    /// Fraction of the packets to the far host that a full queue dropped.
    pub queue_dropped: f64,
    /// Mean wait in that queue, in milliseconds.
    pub queueing_ms: f64,
    /// Packets that the emulator did not read in time. If there are any, the figures are void.
    pub unread: u64,
    /// Lateness of the packets that the emulator handed on.
    pub late: Distribution,
    /// What the programs at the near and the far host used. Kernel TCP has none.
    pub usage: Option<[Usage; 2]>,
}

impl FromStr for Traffic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "full" {
            return Ok(Self::Full);
        }
        let share = text.parse::<Probability>().map(|share| Self::Share(share.value()));
        let rate = text.parse::<Rate>().map(|rate| Self::Rate(rate.bits_per_second()));
        match share.or(rate) {
            Ok(Self::Share(0.0) | Self::Rate(0)) | Err(_) => {
                Err(format!("`{text}` is no load: write a share of the link's rate as 50%, a rate as 1mbit, or full"))
            }
            Ok(load) => Ok(load),
        }
    }
}

impl Traffic {
    /// Bits per second over a link; `None` if as fast as possible.
    fn rate(self, link: &DuplexConfig) -> anyhow::Result<Option<f64>> {
        match (self, &link.forward.capacity) {
            (Self::Full, _) => Ok(None),
            (Self::Rate(rate), _) => Ok(Some(rate as f64)),
            (Self::Share(share), Capacity::Fixed(rate)) => Ok(Some(share * rate.bits_per_second() as f64)),
            (Self::Share(_), _) => bail!("a share of the rate is for a link of one rate: give the load as a rate"),
        }
    }
}

impl Trial<'_> {
    /// Runs the trial in real time.
    ///
    /// # Errors
    /// Fails if the hosts cannot be made, a program is missing or fails, or nothing arrives.
    pub fn run(&self) -> anyhow::Result<Measured> {
        self.peer.check()?;
        let folder = tempfile::tempdir()?;
        let hosts = Hosts::start()?;
        if let Kind::Kernel(tcp) = &self.peer.kind {
            prepare(&hosts, tcp)?;
        }
        let emulator = Emulator::start(hosts.device(End::Near)?, hosts.device(End::Far)?, &self.link)?;
        let setting = self.setting(&hosts);
        let processes = |programs| Processes::start(hosts.nodes(), ENDS, programs, &setting, folder.path());
        let (is_stream, processes) = match &self.peer.kind {
            Kind::Kernel(_) => (true, None),
            Kind::Stream(programs) => (true, Some(processes(programs)?)),
            Kind::Datagrams(programs) => (false, Some(processes(programs)?)),
            Kind::Itself(programs, pointer) => {
                let goodput_bps = self.own_result(processes(programs)?, pointer)?;
                let measured = Measured { goodput_bps, ..Measured::default() };
                return measured.with_link(&Counts::default(), emulator, &hosts, 0);
            }
        };
        let bytes = if is_stream { self.record.unwrap_or(STREAM_RECORD) } else { DATAGRAM_RECORD };
        let plan = self.plan(bytes)?;
        let entry = processes.as_ref().map_or(SocketAddrV4::new(setting.far, SINK), |_| setting.entry);
        let said = || processes.as_ref().map_or("no answer".into(), Processes::last_words);
        let sink = Sink::open(hosts.nodes(), ENDS[1], SINK, is_stream)?;
        let (near, far) = sink.meet(hosts.nodes(), ENDS[0], entry).with_context(said)?;
        if let (Kind::Kernel(KernelTcp { control, .. }), Way::Stream(near)) = (&self.peer.kind, &near) {
            set_control(near, control)?;
        }
        let before = emulator.counts();
        let outcome = plan.run(near, far).with_context(said)?;
        if outcome.arrivals.is_empty() {
            bail!("no record arrived: {}", said());
        }
        let delivered = (outcome.arrivals.len() * bytes) as u64;
        let usage = processes.as_ref().and_then(Processes::usage);
        Measured { usage, ..self.measured(&plan, &outcome) }.with_link(&before, emulator, &hosts, delivered)
    }

    /// The goodput that a peer with its own load reports.
    fn own_result(&self, mut processes: Processes, pointer: &str) -> anyhow::Result<f64> {
        if self.load != Traffic::Full {
            bail!("{} makes its own load, as much as it can: --load full", self.peer.name);
        }
        let result: serde_json::Value = serde_json::from_str(&processes.result()?).context("no JSON")?;
        result.pointer(pointer).and_then(serde_json::Value::as_f64).with_context(|| format!("no number at {pointer}"))
    }

    fn setting(&self, hosts: &Hosts) -> Surroundings<'_> {
        Surroundings {
            program: self.program,
            far: hosts.address(End::Far),
            near: hosts.address(End::Near),
            entry: SocketAddrV4::new(Ipv4Addr::LOCALHOST, ENTRY),
            sink: SocketAddrV4::new(Ipv4Addr::LOCALHOST, SINK),
            wire: WIRE,
            rtt: self.link.rtt(),
            time: self.time,
        }
    }

    fn plan(&self, bytes: usize) -> anyhow::Result<Emission> {
        let rate = self.load.rate(&self.link)?;
        if rate.is_none() && bytes == DATAGRAM_RECORD {
            bail!("{} carries datagrams, and nothing holds those back: give a rate with --load", self.peer.name);
        }
        let every = rate.map(|rate| Duration::from_secs_f64(8.0 * bytes as f64 / rate));
        // Without a rate, the last records are not special.
        let grace = if rate.is_some() { GRACE + 4 * self.link.rtt() } else { Duration::ZERO };
        Ok(Emission { bytes, every, time: self.time, grace })
    }

    /// The figures that the records give.
    fn measured(&self, plan: &Emission, outcome: &Outcome) -> Measured {
        let start = START.min(self.time / 4);
        let one_way = self.link.forward.delay;
        let within = |arrival: &&Arrival| (start..self.time).contains(&arrival.arrived);
        let settled = outcome.arrivals.iter().filter(within).count();
        let delays = |from: Duration| {
            let records = outcome.arrivals.iter().filter(|record| record.made >= from);
            distribution(records.map(|record| (record.arrived - record.made).saturating_sub(one_way)))
        };
        Measured {
            made: outcome.made,
            delivered: outcome.arrivals.len() as u64,
            goodput_bps: 8.0 * (settled * plan.bytes) as f64 / (self.time - start).as_secs_f64(),
            delay: delays(Duration::ZERO),
            settled: delays(start),
            ..Measured::default()
        }
    }
}

impl Measured {
    /// Adds what the link counted since `before`, for `bytes` delivered. Ends the link.
    fn with_link(self, before: &Counts, emulator: Emulator, hosts: &Hosts, delivered: u64) -> anyhow::Result<Self> {
        let counts = emulator.stop()?;
        let offered = |after: &LinkStats, before: &LinkStats| after.offered_bytes - before.offered_bytes;
        let per_app = |bytes: u64| (delivered > 0).then(|| bytes as f64 / delivered as f64);
        let forward = &counts.forward();
        Ok(Self {
            sent_per_app: per_app(offered(forward, &before.forward())),
            back_per_app: per_app(offered(&counts.back(), &before.back())),
            queue_dropped: forward.queue_dropped as f64 / forward.offered.max(1) as f64,
            queueing_ms: milliseconds(forward.mean_queueing()),
            unread: hosts.unread(End::Near)? + hosts.unread(End::Far)?,
            late: counts.late.distribution(),
            ..self
        })
    }
}

/// Makes the near host's connections those of `tcp`, as far as a host decides.
fn prepare(hosts: &Hosts, tcp: &KernelTcp) -> anyhow::Result<()> {
    begin_with_reno(hosts)?;
    if let Some(bytes) = tcp.notsent {
        hosts.set(End::Near, NOTSENT, &bytes.to_string())?;
    }
    if !tcp.sack {
        hosts.set(End::Near, SACK, "0")?;
    }
    Ok(())
}

fn distribution(delays: impl Iterator<Item = Duration> + Clone) -> Distribution {
    let (count, sum) = delays.clone().fold((0, Duration::ZERO), |(count, sum), delay| (count + 1, sum + delay));
    let mean = sum.checked_div(count).unwrap_or_default();
    let max = delays.clone().max().unwrap_or_default();
    Distribution::new(delays.map(|delay| (delay, 1)), mean, max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_sim::scenario::Scenario;

    fn link() -> DuplexConfig {
        Scenario::parse("[link]\nrate = \"25mbit\"\nrtt = \"60ms\"\n", Path::new("link.toml")).unwrap().link
    }

    #[test]
    fn loads_are_shares_rates_or_all() {
        let rate = |text: &str| text.parse::<Traffic>().map(|load| load.rate(&link()).unwrap());
        assert_eq!(rate("50%"), Ok(Some(12.5e6)));
        assert_eq!(rate("1mbit"), Ok(Some(1e6)));
        assert_eq!(rate("full"), Ok(None));
        assert!(["0%", "0mbit", "half", "50", "120%"].iter().all(|wrong| rate(wrong).is_err()));
        assert!(Traffic::Share(0.5).rate(&DuplexConfig::default()).is_err());
    }

    #[test]
    fn delays_are_beyond_the_one_way_time_and_goodput_is_of_the_settled_part() {
        let table = crate::peer::Table::read(None).unwrap();
        let time = Duration::from_secs(8);
        let program = Path::new("tidewire");
        let (peer, load) = (table.named("tcp-bbr").unwrap(), Traffic::Share(0.5));
        let trial = Trial { link: link(), program, peer, load, record: None, time };
        let plan = trial.plan(STREAM_RECORD).unwrap();
        assert_eq!(plan.every, Some(Duration::from_micros(768)));
        // A record each second, in flight for 31 ms, the first for 130 ms.
        let arrival = |n: u64| {
            let (made, took) = (Duration::from_secs(n), Duration::from_millis(if n == 0 { 130 } else { 31 }));
            Arrival { made, arrived: made + took }
        };
        let measured = trial.measured(&plan, &Outcome { made: 9, arrivals: (0..8).map(arrival).collect() });
        assert_eq!((measured.made, measured.delivered), (9, 8));
        assert_eq!((measured.delay.quantile(0.5), measured.delay.max()), (Some(1.0), Some(100.0)));
        assert_eq!(measured.settled.max(), Some(1.0));
        // Six of them in the last six seconds.
        assert_eq!(measured.goodput_bps, 8.0 * 1_200.0);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let table = crate::peer::Table::read(None).unwrap();
        let program = Path::new("tidewire");
        let trial = |name: &str, load| Trial {
            link: link(),
            program,
            peer: table.named(name).unwrap(),
            load,
            record: None,
            time: START,
        };
        assert!(trial("srt-live", Traffic::Full).plan(DATAGRAM_RECORD).is_err());
        assert!(trial("srt-live", Traffic::Rate(1_000_000)).plan(DATAGRAM_RECORD).is_ok());
        assert!(trial("tcp-bbr", Traffic::Full).plan(STREAM_RECORD).unwrap().every.is_none());
    }
}
