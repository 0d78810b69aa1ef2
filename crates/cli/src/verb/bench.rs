//! `tidewire bench -s` and `tidewire bench -c LINK`: measures a path, with the option letters of iperf3.

use std::time::{Duration, Instant};

use serde::Serialize;
use tidewire::{Connection, Endpoint};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::{quietly, unless_interrupted};
use tidewire_command::options::{Coding, Output};
use tidewire_command::report::{self, Console, Summary, rate};
use tidewire_command::stdout;
use tidewire_units::{Rate, parse_duration, parse_size};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bench::require::Requirement;
use crate::bench::{Order, SoFar, client, clock_name, server};
use crate::explain::Explainer;
use crate::link;
use crate::listen::{self, Listen, Naming};
use crate::session::{self, CLOSE_WAIT, CUT_OFF, DONE};
use crate::via::Via;
use crate::watch::WatchArgs;
use crate::way::Way;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// Whether one bound of `--require` holds.
    Requirement {
        /// The bound as typed.
        text: &'a str,
        /// The figure in the unit of the summary. Null if it was not measured.
        measured: Option<f64>,
        /// Whether the bound holds.
        met: bool,
    },
}

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print a link and serve clients until Ctrl-C
    #[arg(short, long, conflicts_with_all = ["client", "require"], required_unless_present = "client")]
    server: bool,
    /// Measure the path to the server whose link `bench -s` printed (tidewire://...), or @FILE with the link.
    /// The default is TIDEWIRE_LINK
    #[arg(short, long, value_name = "LINK", num_args = 0..=1)]
    client: Option<Option<String>>,
    /// Exit after one client, with the exit code of its run
    #[arg(short = '1', long, requires = "server")]
    once: bool,
    #[command(flatten)]
    listen: Listen,
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    via: Via,
    #[command(flatten)]
    load: Offered,
    /// Exit with code 8 unless these bounds hold. Figures: goodput, loss, overhead, and of the delay of
    /// records mean, p50, p95, p99, p999, max [example: goodput>=20mbit,p95<=40ms]
    #[arg(long, value_name = "BOUND,...", value_delimiter = ',')]
    require: Vec<Requirement>,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    coding: Coding,
}

/// The load.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
struct Offered {
    /// Time to send, in seconds if no unit is given
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    time: Duration,
    /// Make records at this rate, over all streams together [example: 12.5mbit]. The default is as fast as
    /// the path allows
    #[arg(short, long, value_name = "RATE")]
    bitrate: Option<Rate>,
    /// Let the server send and the client receive
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Number of parallel streams, 1 to 100
    #[arg(short = 'P', long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=100))]
    parallel: u16,
    /// Length of a record, in bytes if no unit is given [examples: 1200, 16kB]. Each record carries the time
    /// it was made
    #[arg(short, long, value_name = "BYTES", default_value = "1200", value_parser = length)]
    length: u32,
    /// Time between reports, in seconds if no unit is given
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Duration,
}

/// Parses a time with a unit, or in seconds without one, as iperf3 does.
fn duration(text: &str) -> Result<Duration, String> {
    let has_unit = text.contains(|character: char| !character.is_ascii_digit() && character != '.');
    let with_unit = if has_unit || text.is_empty() { text.to_owned() } else { format!("{text}s") };
    parse_duration(&with_unit).map_err(|error| error.to_string())
}

/// Parses a length with a unit, or in bytes without one, as iperf3 does.
fn length(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(bytes) => Ok(bytes),
        Err(_) => {
            let bytes = parse_size(text).map_err(|error| error.to_string())?;
            u32::try_from(bytes).map_err(|_| format!("{text} is too long for a record; write at most 1MiB"))
        }
    }
}

/// Runs the server or the client.
///
/// # Errors
/// [`Exit::Usage`] for a wrong link or load, [`Exit::Unreachable`] if nothing answers, [`Exit::TargetNotMet`]
/// if a bound of `--require` does not hold.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    if args.server { serve(&args, &console).await } else { measure(&args, &console).await }
}

async fn serve(args: &Args, console: &Console) -> Result<(), Failure> {
    let config = args.coding.config(None).or_exit(Exit::Usage)?;
    let (config, _watching) = args.watch.begin("bench", config, console)?;
    let (endpoint, links) = listen::open(args.listen.listen, &args.naming, &config, console).await?;
    listen::announce(&links, |link| format!("waiting; on the other machine: tidewire bench -c '{link}'"), console);
    let (stop, mut serving) = (watch::Sender::new(()), JoinSet::new());
    let accepting = serve_all(&endpoint, args.once, console, (&stop, &mut serving));
    let ended = unless_interrupted(listen::guarding(&endpoint, &args.naming, console, accepting)).await;
    let ended = console.tell(quietly(ended));
    // Each connection writes its summary before it ends, including those that are cut off here.
    drop(stop);
    while serving.join_next().await.is_some() {}
    session::close(&endpoint).await;
    ended
}

/// Accepts clients while it is polled. Those that are accepted are served until `stop` is dropped.
async fn serve_all(
    endpoint: &Endpoint,
    once: bool,
    console: &Console,
    (stop, serving): (&watch::Sender<()>, &mut JoinSet<Result<(), Failure>>),
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            accepted = endpoint.accept() => {
                let connection = accepted.or_exit(Exit::Other)?;
                serving.spawn(serve_one(connection, console.clone(), stop.subscribe()));
            }
            Some(ended) = serving.join_next() => {
                let ended = ended.or_exit(Exit::Other)?;
                if once {
                    return ended;
                }
            }
        }
    }
}

async fn serve_one(connection: Connection, console: Console, mut stopped: watch::Receiver<()>) -> Result<(), Failure> {
    console.event(&report::Event::Connected { peer: connection.remote().to_string() });
    let (begun, so_far) = (Instant::now(), SoFar::default());
    let served = tokio::select! {
        served = server::serve(&connection, &so_far) => {
            // The client closes after it has received the result. Closing first could cut the result off.
            let _ = tokio::time::timeout(CLOSE_WAIT, connection.closed()).await;
            served
        }
        // Nothing is ever sent here: `changed` returns when the sender is dropped.
        _ = stopped.changed() => Err(Failure::reported(Exit::Sigint)),
    };
    connection.close(if served.is_ok() { DONE } else { CUT_OFF }, "");
    let (summary, served) = match served {
        Ok(summary) => (summary, Ok(())),
        Err(failure) => (so_far.summary(&connection, begun.elapsed()), Err(failure)),
    };
    console.conclude(&summary, served)
}

async fn measure(args: &Args, console: &Console) -> Result<(), Failure> {
    let link = link::given(args.client.as_ref().and_then(|link| link.as_deref())).or_exit(Exit::Usage)?;
    let config = args.coding.config(Some(&link)).or_exit(Exit::Usage)?;
    let way = Way::to(link, args.naming.key.as_deref(), &args.via, console)?;
    let Offered { time, bitrate, reverse, parallel, length, interval } = args.load;
    let plan = Order {
        reverse,
        seconds: time.as_secs_f64(),
        rate_bps: bitrate.map(Rate::bits_per_second),
        parallel,
        record_bytes: length,
        interval_seconds: interval.as_secs_f64(),
        clock: clock_name(),
    };
    plan.check().map_err(|wrong| Failure::message(Exit::Usage, wrong))?;
    let (config, _watching) = args.watch.begin("bench", config, console)?;
    let (endpoint, connection) = unless_interrupted(way.connect(&config, console)).await?;
    console.event(&report::Event::Connected { peer: connection.remote().to_string() });
    let _explained = Explainer::begin(connection.clone(), console.clone());
    let (begun, so_far) = (Instant::now(), SoFar::default());
    let measured = unless_interrupted(client::run(&connection, &plan, &so_far, console)).await;
    let elapsed = begun.elapsed();
    connection.close(if measured.is_ok() { DONE } else { CUT_OFF }, "");
    let early = so_far.summary(&connection, elapsed);
    session::close(&endpoint).await;
    let summary = match measured {
        Ok(summary) => summary,
        Err(failure) => return console.conclude(&early, Err(failure)),
    };
    if !console.json() {
        stdout::write(&table(&summary));
    }
    let ended = judge(&args.require, &summary, console);
    console.conclude(&summary, ended)
}

fn judge(requirements: &[Requirement], summary: &Summary, console: &Console) -> Result<(), Failure> {
    let mut missed = Vec::new();
    for requirement in requirements {
        let (measured, met) = (requirement.measured(summary), requirement.is_met(summary));
        console.event(&Event::Requirement { text: &requirement.to_string(), measured, met });
        if !met {
            missed.push(format!("{requirement} (measured: {})", requirement.describe(measured)));
        }
    }
    if missed.is_empty() {
        Ok(())
    } else {
        Err(Failure::message(Exit::TargetNotMet, format_args!("not met: {}", missed.join(", "))))
    }
}

/// Makes a table of one figure a line, with the names of the JSON summary.
fn table(summary: &Summary) -> String {
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1} ms"));
    let percent = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{:.2} %", 100.0 * value));
    let mut out = String::new();
    let mut row = |name: &str, value: String| out.push_str(&format!("{name:<16} {value}\n"));
    row("goodput", rate(summary.goodput_bps));
    row("overhead", percent(summary.overhead));
    row("loss", percent(summary.loss));
    if let Some(control) = &summary.rate_control {
        row("rate control", control.words());
    }
    row("RTT", format!("min {}, mean {}", ms(summary.rtt_ms.min), ms(summary.rtt_ms.mean)));
    if let Some(records) = summary.records {
        for (name, delay) in [("record delay", records.delay_ms), ("after 3 s", records.steady_delay_ms)] {
            let figures =
                [("mean", delay.mean), ("p50", delay.p50), ("p95", delay.p95), ("p99", delay.p99), ("max", delay.max)];
            if delay.mean.is_some() {
                row(name, figures.map(|(name, value)| format!("{name} {}", ms(value))).join(", "));
            }
        }
        if records.one_way_ms.is_some() {
            row("one way", format!("{} at least", ms(records.one_way_ms)));
        }
    }
    let symbols = summary.symbols;
    row("symbols", format!("{} direct, {} repaired, {} resent", symbols.direct, symbols.repaired, symbols.resent));
    out
}
