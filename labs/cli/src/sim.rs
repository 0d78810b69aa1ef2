//! `tidewire-lab sim SCENARIO`: runs the scenario's flows, or one bulk transfer, over its link in virtual
//! time, with the real protocol code, and compares every byte. The same file, options and seed give the same
//! figures on every machine. Records of flows with a rate are measured in the same way as by `bench`. Videos
//! are played to their end. A scenario of a network runs all of its flows at once.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::keylog::KeyLogFile;
use tidewire_command::options::{Coding, Output};
use tidewire_command::records::Records;
use tidewire_command::records::Tally;
use tidewire_command::report::{self, Console, Role, Summary, rate};
use tidewire_command::stdout;
use tidewire_figures::milliseconds;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::stats::Stats;
use tidewire_sim::load::{Flow, Load};
use tidewire_sim::network::{self, Carrier, Described, Network, Plan};
use tidewire_sim::pair::{End, Pair};
use tidewire_sim::pcap::Capture;
use tidewire_sim::scenario::Scenario;
use tidewire_sim::video::Viewing;
use tidewire_units::parse_size;

use crate::link_counts::{Event as LinkEvent, counts as link_counts};

/// Arguments of `sim`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Scenario file to run
    scenario: PathBuf,
    /// Bytes to send as one flow, if the scenario names no flows
    #[arg(long, value_name = "SIZE", default_value = "12MB", value_parser = parse_size)]
    bytes: u64,
    /// Give up after this much virtual time
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = tidewire_units::parse_duration)]
    limit: Duration,
    /// Draw the windows and queues of a network into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    capture: Capturing,
    #[command(flatten)]
    coding: Coding,
    #[command(flatten)]
    pub output: Output,
}

/// What to write of the packets.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Capture")]
struct Capturing {
    /// Write what the near end sends and receives into FILE, for Wireshark (docs/wireshark.md)
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Append the keys of the near end to FILE, so that Wireshark can decrypt --pcap
    #[arg(long, value_name = "FILE", requires = "pcap")]
    keylog: Option<PathBuf>,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// What the viewer of a video saw. Times count from the start of its flow.
    Playback {
        /// The number of the flow in the scenario, from 1.
        flow: usize,
        /// When playback started; null if it did not.
        first_start_seconds: Option<f64>,
        /// Number of times that it stalled.
        stalls: u64,
        /// Time for which it stood still after its start.
        stalled_seconds: f64,
        /// Content that was played.
        played_seconds: f64,
        /// When the last content had been played; null if bytes were missing.
        ended_seconds: Option<f64>,
        /// Pairs of a time and the content in the buffer, in seconds.
        samples: Vec<[f64; 2]>,
    },
}

/// Runs the scenario.
///
/// # Errors
/// [`Exit::Usage`] for a wrong scenario, [`Exit::Unreachable`] if the bytes did not arrive in time,
/// [`Exit::Integrity`] if a wrong byte arrived.
pub fn run(args: &Args, console: &Console) -> Result<(), Failure> {
    match network::read(&args.scenario).or_exit(Exit::Usage)? {
        Described::Ends(scenario) => run_ends(args, &scenario, console),
        Described::Network(plan) => run_network(args, plan, console),
    }
}

/// Runs the flows of a network together.
fn run_network(args: &Args, mut plan: Plan, console: &Console) -> Result<(), Failure> {
    if args.capture.pcap.is_some() {
        let text = "--pcap captures the scenario of two ends only: leave it out, or take a scenario without nodes";
        return Err(Failure::message(Exit::Usage, text));
    }
    if let Some(flow) = plan.not_simulated() {
        let what = if matches!(flow.carrier, Carrier::Peer { .. }) { "peers" } else { "BBR" };
        let text = format!(
            "flow {}: the simulator has no {what}: write newreno or cubic, or use `tidewire-lab run`",
            flow.name
        );
        return Err(Failure::message(Exit::Usage, text));
    }
    for flow in &mut plan.flows {
        if let Carrier::Ours { ends, .. } = &mut flow.carrier {
            let [near, far] = &mut **ends;
            *near = args.coding.over(near, None).or_exit(Exit::Usage)?;
            *near = near.to_builder().asks_peer(false).build().or_exit(Exit::Usage)?;
            *far = args.coding.over(far, None).or_exit(Exit::Usage)?;
        }
    }
    for tunnel in &mut plan.tunnels {
        *tunnel.config = args.coding.over(&tunnel.config, None).or_exit(Exit::Usage)?;
        *tunnel.config = tunnel.config.to_builder().asks_peer(false).build().or_exit(Exit::Usage)?;
    }
    plan.time = plan.time.or(Some(args.limit));
    crate::report::conclude(&Network::new(&plan).run(), console, args.svg.as_deref())
}

fn run_ends(args: &Args, scenario: &Scenario, console: &Console) -> Result<(), Failure> {
    // The command line overrides the scenario at both ends, so the near end need not ask the far end for a
    // policy.
    let over = |config: &Config| args.coding.over(config, None).or_exit(Exit::Usage);
    let (near, far) = (over(&scenario.near)?, over(&scenario.far)?);
    let mut near = near.to_builder().asks_peer(false);
    if let Some(path) = &args.capture.keylog {
        // These keys protect nothing.
        near = near.key_log(Some(Arc::new(KeyLogFile::open(path, console).or_exit(Exit::Usage)?)));
    }
    let near = near.build().or_exit(Exit::Usage)?;
    let mut pair = Pair::new(near, far, &scenario.link, scenario.seed);
    let captured = args.capture.pcap.as_deref().map(|path| capture(&mut pair, path)).transpose()?;
    let bulk = [Flow::bulk(End::Near, args.bytes)];
    let flows = if scenario.flows.is_empty() { &bulk[..] } else { &scenario.flows };
    let mut load = Load::new(flows, scenario.seed);
    pair.connect(&mut load);
    let done = pair.run(&mut load, Time::ZERO + args.limit, Load::is_done);
    if let Some(captured) = captured {
        captured.lock().unwrap_or_else(PoisonError::into_inner).finish().or_exit(Exit::LocalIo)?;
    }
    let elapsed = pair.now().since(Time::ZERO);
    let (near, far) = (stats(&mut pair, &load, End::Near), stats(&mut pair, &load, End::Far));
    let mut summary = report::summary(&near, Role::Sender, load.read(), elapsed);
    // Only the receiving end knows the delays and how symbols were delivered.
    let received = report::summary(&far, Role::Receiver, load.read(), elapsed);
    (summary.symbols, summary.delay_ms) = (received.symbols, received.delay_ms);
    summary.records = records(&load, flows);
    let link = pair.link_mut();
    let (forward, back) = (link_counts(link.forward.stats()), link_counts(link.back.stats()));
    console.event(&LinkEvent::LinkStats { forward, back, clients: 1 });
    let videos = videos(&load, pair.now());
    videos.iter().for_each(|(flow, viewing)| console.event(&playback(*flow, viewing)));
    if !console.json() {
        let queueing = milliseconds(pair.link_mut().forward.stats().mean_queueing());
        stdout::write(&format!("{}{}", table(&summary, queueing), video_rows(&videos)));
    }
    console.conclude(&summary, judge(done, &load))
}

/// A capture until it fails.
struct Captured {
    capture: Capture<BufWriter<File>>,
    failed: io::Result<()>,
}

impl Captured {
    /// Flushes the file, and returns the first error.
    fn finish(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.failed, Ok(())).and_then(|()| self.capture.flush())
    }
}

/// Begins a capture at the near end.
fn capture(pair: &mut Pair, path: &Path) -> Result<Arc<Mutex<Captured>>, Failure> {
    let begin = || Capture::new(BufWriter::new(File::create(path)?));
    let capture = begin().with_context(|| format!("cannot write the capture `{}`", path.display()));
    let captured = Arc::new(Mutex::new(Captured { capture: capture.or_exit(Exit::LocalIo)?, failed: Ok(()) }));
    let shared = Arc::clone(&captured);
    let tap = move |at, datagram: &tidewire_sim::pcap::Captured<'_>| {
        let Captured { capture, failed } = &mut *shared.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_ok() {
            *failed = capture.write(at, datagram);
        }
    };
    pair.tap(End::Near, Box::new(tap));
    Ok(captured)
}

/// Measures the records of all flows with a rate, if there are any. Their length is taken from the first such
/// flow.
fn records(load: &Load, flows: &[Flow]) -> Option<Records> {
    let paced = flows.iter().find(|flow| flow.rate.is_some())?;
    let mut tally = Tally::default();
    for arrival in load.arrivals().iter().filter(|arrival| flows[arrival.flow].rate.is_some()) {
        tally.record(arrival.made.as_nanos() as u64, arrival.read.as_nanos() as u64);
    }
    Some(tally.records(u32::try_from(paced.record).unwrap_or(u32::MAX), true))
}

/// What was seen of each video by the end of its playback, with the number of its flow from 1. A video with
/// missing bytes is played until `now`.
fn videos(load: &Load, now: Time) -> Vec<(usize, Viewing)> {
    let seen = load.progress().enumerate().filter_map(|(flow, progress)| {
        let left = load.viewing(flow, now)?.buffered();
        let is_whole = progress.read == progress.flow.bytes;
        Some((flow + 1, load.viewing(flow, if is_whole { now + left } else { now })?))
    });
    seen.collect()
}

pub fn playback(flow: usize, viewing: &Viewing) -> Event {
    let seconds = |time: Duration| time.as_secs_f64();
    Event::Playback {
        flow,
        first_start_seconds: viewing.first_start.map(seconds),
        stalls: viewing.stalls,
        stalled_seconds: seconds(viewing.stalled),
        played_seconds: seconds(viewing.played),
        ended_seconds: viewing.ended.map(seconds),
        samples: viewing.samples.iter().map(|sample| [seconds(sample.at), seconds(sample.buffered)]).collect(),
    }
}

/// Makes a line for each video.
pub fn video_rows(videos: &[(usize, Viewing)]) -> String {
    let row = |(flow, viewing): &(usize, Viewing)| {
        let start = viewing.first_start.map_or_else(|| "-".into(), |at| format!("{:.2} s", at.as_secs_f64()));
        let most = viewing.samples.iter().map(|sample| sample.buffered).max().unwrap_or_default();
        let [played, stalled, most] = [viewing.played, viewing.stalled, most].map(|time| time.as_secs_f64());
        let name = format!("video, flow {flow}");
        let stalls = viewing.stalls;
        format!(
            "{name:<16} starts at {start}, plays {played:.2} s, {stalls} stalls of {stalled:.2} s, buffer at most {most:.2} s\n"
        )
    };
    videos.iter().map(row).collect()
}

fn judge(done: bool, load: &Load) -> Result<(), Failure> {
    match load.errors.first() {
        Some(error) => Err(Failure::message(Exit::Integrity, error)),
        None if done => Ok(()),
        None => Err(Failure::message(
            Exit::Unreachable,
            "not all bytes arrived within --limit; raise it, or use a link that loses less",
        )),
    }
}

fn stats(pair: &mut Pair, load: &Load, end: End) -> Stats {
    let handle = load.handle(end);
    let connection = handle.and_then(|handle| pair.endpoint(end).connection(handle));
    connection.map(tidewire_proto::connection::Connection::stats).unwrap_or_default()
}

/// Makes a table of one figure a line, with the names of the JSON summary.
fn table(summary: &Summary, queueing_ms: f64) -> String {
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1} ms"));
    let percent = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{:.2} %", 100.0 * value));
    let (packets, symbols, delay) = (summary.packets, summary.symbols, summary.delay_ms);
    let mut out = String::new();
    let mut row = |name: &str, value: String| out.push_str(&format!("{name:<16} {value}\n"));
    row("virtual time", format!("{:.2} s", summary.seconds));
    row("goodput", rate(summary.goodput_bps));
    row("overhead", percent(summary.overhead));
    row("loss", percent(summary.loss));
    if let Some(control) = &summary.rate_control {
        row("rate control", control.words());
    }
    row("RTT", format!("min {}, mean {}", ms(summary.rtt_ms.min), ms(summary.rtt_ms.mean)));
    row("queueing", ms(Some(queueing_ms)));
    row("in-order delay", format!("mean {}, p50 {}, p99 {}", ms(delay.mean), ms(delay.p50), ms(delay.p99)));
    if let Some(records) = summary.records {
        for (name, delay) in [("of records", records.delay_ms), ("after 3 s", records.steady_delay_ms)] {
            row(
                name,
                format!("mean {}, p50 {}, p95 {}, p99 {}", ms(delay.mean), ms(delay.p50), ms(delay.p95), ms(delay.p99)),
            );
        }
    }
    row(
        "packets",
        format!("{} source, {} repair, {} feedback repair", packets.source, packets.repair, packets.feedback_repair),
    );
    row("symbols", format!("{} direct, {} repaired, {} resent", symbols.direct, symbols.repaired, symbols.resent));
    out
}
