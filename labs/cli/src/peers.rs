//! `tidewire-lab run SCENARIO --peer tidewire,tcp-bbr`: sends the same records over the same link by each
//! peer in turn.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::{Console, Delay, rate};
use tidewire_command::stdout;
use tidewire_figures::Spread;
use tidewire_figures::chart::{Curve, svg};
use tidewire_lab::peer::{Peer, Table};
use tidewire_lab::trial::{Measured, Traffic, Trial};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::scenario::Scenario;
use tidewire_units::parse_duration;

use crate::comparison::{self, Row};

/// Shortest run. In a shorter one, the start dominates the figures.
const SHORTEST: Duration = Duration::from_secs(2);

/// The events of `tidewire-lab run --peer`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    PeerRun {
        name: &'a str,
        /// Seed of the link's random numbers.
        seed: u64,
        /// Records that were made. 0 for a peer that makes its own load.
        made: u64,
        /// Records that arrived.
        delivered: u64,
        /// Goodput once the run had settled.
        goodput_bps: f64,
        /// In-order delay beyond the one-way time.
        delay_ms: Delay,
        /// In-order delay of the records made once the run had settled.
        settled_delay_ms: Delay,
        /// IP bytes sent over bytes delivered.
        sent_per_app: Option<f64>,
        /// IP bytes sent back over bytes delivered.
        back_per_app: Option<f64>,
        /// Fraction of the forward packets that a full queue dropped.
        queue_dropped: f64,
        /// Mean time in the forward queue.
        queueing_ms: f64,
        /// How late the emulator handed packets on, 95th percentile.
        late_p95_ms: f64,
        /// Packets that the emulator did not read in time.
        unread: u64,
        /// Processor time of both programs of the peer together, in seconds, from their start on. Kernel TCP
        /// has no programs.
        processor_s: Option<f64>,
    },
    /// All runs of one peer.
    Peer {
        name: &'a str,
        runs: usize,
        /// Fraction of the records that arrived.
        delivered: Option<Spread>,
        /// Goodput of a run.
        goodput_bps: Option<Spread>,
        /// Mean delay of a run.
        mean_ms: Option<Spread>,
        /// Median delay of a run.
        p50_ms: Option<Spread>,
        /// 95th percentile of the delay of a run.
        p95_ms: Option<Spread>,
        /// 99th percentile of the delay of a run.
        p99_ms: Option<Spread>,
        /// IP bytes sent over bytes delivered.
        sent_per_app: Option<Spread>,
    },
}

/// Arguments of `tidewire-lab run` that measure peers in place of a command.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Peers")]
pub struct Args {
    /// Measure these peers in turn, in place of running a command: tidewire, tcp-cubic, tcp-bbr, tcp-reno,
    /// quinn-bbr, kcptun-fast3, srt-live ... (docs/lab.md)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with_all = ["command", "other", "at"])]
    pub peer: Vec<String>,
    /// File with more peers, in the format of labs/lab/src/peers.toml
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    pub peers: Option<PathBuf>,
    /// Rate of the records: a fraction of the link's rate, a rate, or `full` for as fast as the peer takes
    /// them
    #[arg(long, value_name = "LOAD", default_value = "50%", conflicts_with = "command")]
    load: Traffic,
    /// Time to make records, at least 2s
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration, conflicts_with = "command")]
    time: Duration,
    /// Number of runs of each peer, 1 to 100, with the scenario's seed and the seeds after it
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=100), conflicts_with = "command")]
    seeds: u64,
    /// Draw the distributions of the delay into this SVG file. For a network: windows and queues over time
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    pub svg: Option<PathBuf>,
}

/// Runs each peer with each seed. A run that fails is reported and does not stop the others.
///
/// # Errors
/// [`Exit::Usage`] for a wrong scenario or peer, [`Exit::LocalIo`] if the picture cannot be written,
/// [`Exit::Other`] if a run failed.
pub fn run(args: &Args, scenario: &Path, seed: Option<u64>, console: &Console) -> Result<(), Failure> {
    let scenario = Scenario::read(scenario).or_exit(Exit::Usage)?;
    let (link, seed) = (scenario.link, seed.unwrap_or(scenario.seed));
    if args.time < SHORTEST {
        return Err(Failure::message(
            Exit::Usage,
            "--time is too short; write at least 2s, because the start dominates a shorter run",
        ));
    }
    let table = Table::read(args.peers.as_deref()).or_exit(Exit::Usage)?;
    let peers: Result<Vec<&Peer>, _> = args.peer.iter().map(|name| table.named(name)).collect();
    let peers = peers.or_exit(Exit::Usage)?;
    // A missing program must be an error now, not after minutes of measurements.
    peers.iter().try_for_each(|peer| peer.check()).or_exit(Exit::Usage)?;
    let row =
        |peer: &&Peer| Row { name: peer.name.clone(), may_lose: comparison::may_lose(&peer.kind), runs: Vec::new() };
    let mut rows: Vec<Row> = peers.iter().map(row).collect();
    let mut failed = Vec::new();
    for seed in (0..args.seeds).map(|n| seed.wrapping_add(n)) {
        // The peers take turns, so that other load of the machine disturbs all of them alike.
        for (peer, row) in peers.iter().zip(&mut rows) {
            match measure(args, peer, &link, seed, console) {
                Ok(measured) => row.runs.push(measured),
                Err(problem) => {
                    console.warn(&format!("{} with seed {seed}: {problem:#}", peer.name));
                    failed.push(peer.name.as_str());
                }
            }
        }
    }
    rows.retain(|row| !row.runs.is_empty());
    tell(args, &rows, &link, console)?;
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::message(Exit::Other, format_args!("runs failed: {}", failed.join(", "))))
}

fn measure(args: &Args, peer: &Peer, link: &DuplexConfig, seed: u64, console: &Console) -> anyhow::Result<Measured> {
    let (mut link, program) = (link.clone(), crate::product::file()?);
    link.set_seed(seed);
    let measured = Trial { link, program: &program, peer, load: args.load, record: None, time: args.time }.run()?;
    let late = measured.late.quantile(0.95).unwrap_or(0.0);
    let delay = Delay::from(&measured.delay);
    let processor = measured.usage.map(|ends| ends.iter().map(|end| end.processor.as_secs_f64()).sum::<f64>());
    console.event(&Event::PeerRun {
        name: &peer.name,
        seed,
        made: measured.made,
        delivered: measured.delivered,
        goodput_bps: measured.goodput_bps,
        delay_ms: delay,
        settled_delay_ms: Delay::from(&measured.settled),
        sent_per_app: measured.sent_per_app,
        back_per_app: measured.back_per_app,
        queue_dropped: measured.queue_dropped,
        queueing_ms: measured.queueing_ms,
        late_p95_ms: late,
        unread: measured.unread,
        processor_s: processor,
    });
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1}"));
    let figures = [delay.p50, delay.p95, delay.p99].map(ms).join("/");
    let processor = processor.map_or_else(String::new, |seconds| format!(", {seconds:.2} s of CPU time at both ends"));
    let goodput = rate(measured.goodput_bps);
    console.say(&format!("{} (seed {seed}): {goodput}, p50/p95/p99 {figures} ms{processor}", peer.name));
    if measured.unread > 0 {
        console.warn(&format!(
            "the lab did not read {} packets in time: the machine is too busy, so run it alone",
            measured.unread
        ));
    }
    Ok(measured)
}

/// Prints the table of medians, and draws the picture.
fn tell(args: &Args, rows: &[Row], link: &DuplexConfig, console: &Console) -> Result<(), Failure> {
    for row in rows {
        let delay = |q| row.spread(|run| run.delay.quantile(q));
        console.event(&Event::Peer {
            name: &row.name,
            runs: row.runs.len(),
            delivered: row.delivered(),
            goodput_bps: row.spread(|run| Some(run.goodput_bps)),
            mean_ms: row.spread(|run| run.delay.mean()),
            p50_ms: delay(0.5),
            p95_ms: delay(0.95),
            p99_ms: delay(0.99),
            sent_per_app: row.spread(|run| run.sent_per_app),
        });
    }
    if !console.json() {
        stdout::write(&comparison::table(rows, args.load, link));
    }
    let Some(path) = &args.svg else { return Ok(()) };
    let curves: Vec<Curve> = rows.iter().map(Row::curve).filter(|curve| curve.delay.max().is_some()).collect();
    let title = format!("{} s, seeds: {}", args.time.as_secs_f64(), args.seeds);
    let caption = svg::Caption {
        title: "Records over the lab's link",
        conditions: &title,
        what: "records",
        see: "Left is earlier; a curve that ends below 100 % lost records.",
    };
    std::fs::write(path, svg::draw(&curves, &caption))
        .map_err(|error| Failure::message(Exit::LocalIo, format_args!("cannot write `{}`: {error}", path.display())))
}
