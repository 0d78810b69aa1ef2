//! `tidewire replay FILE`: runs a recorded flow again, in virtual time, over its recorded path and with other
//! choices, and shows delay against overhead with the recorded run beside it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tidewire::{Config, Redundancy};
use tidewire_lab::distribution::{Distribution, milliseconds};
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::profile::{Named, Profile};
use tidewire_proto::stats::DelayHistogram;
use tidewire_sim::replay::{Gather, Recorded, Replayed};

use crate::chart::runs;
use crate::exit::{Exit, Failure, OrExit};
use crate::options::{Coding, Output};
use crate::recording::{Item, ReadError, Reader};
use crate::report::{Console, Delay};

/// Redundancies that are tried if the user names no choice: from none to a third, and the default.
const TRIED: [&str; 6] = ["none", "every:20", "every:10", "every:5", "every:4", "adaptive"];
/// Most connections of a recording that are looked at. Chosen: memory for the packets of each.
const MOST_CONNECTIONS: usize = 1_000;

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Recording of the end that sent (see --record)
    file: PathBuf,
    /// Recording of the end that received. It has the exact delays, which the sending end only estimates
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
    /// Draw delay against overhead into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    coding: Coding,
    #[command(flatten)]
    pub(super) output: Output,
}

/// The events of `replay`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// The recorded flow, or one of its replays.
    Replay {
        /// `recorded`, `same choices`, or what was chosen.
        name: &'a str,
        /// In-order delay of the source symbols, beyond the least one-way time.
        delay_ms: Delay,
        /// Bytes on the wire beyond those of the application, as a share of these.
        overhead: f64,
        /// Share of the packets that were lost.
        loss: f64,
        /// Bytes of the application that arrived.
        bytes: u64,
        /// Whether all of them arrived; null for the recorded flow.
        done: Option<bool>,
    },
}

/// One line of the result.
struct Row {
    name: String,
    delay: Distribution,
    overhead: f64,
    loss: f64,
    bytes: u64,
    done: Option<bool>,
}

/// Replays the flow.
///
/// # Errors
/// [`Exit::Usage`] for a file that is no recording, is damaged or has no flow, or choices that exclude each
/// other; [`Exit::LocalIo`] if a file cannot be read or written.
pub fn run(args: &Args, console: &Console) -> Result<(), Failure> {
    refuse_rate(&args.coding)?;
    let mut recorded = gather(&args.file, console)?.finish().map_err(|error| named(&args.file, &error))?;
    if let Some(path) = &args.peer {
        let delays = received(path, console)?;
        if delays.count() == 0 {
            return Err(named(path, &"this end received nothing: give the recording of the end that received"));
        }
        recorded.delays_of(delays);
    }
    note(&recorded, console);
    let mut rows = vec![row_of(&recorded)];
    for (name, config) in choices(&recorded, &args.coding)? {
        let row = replayed(name, &recorded.replay(&config).or_exit(Exit::Usage)?);
        rows.push(row);
    }
    for row in &rows {
        console.event(&Event::Replay {
            name: &row.name,
            delay_ms: Delay::from(&row.delay),
            overhead: row.overhead,
            loss: row.loss,
            bytes: row.bytes,
            done: row.done,
        });
    }
    if !console.json() {
        // A reader that closed the pipe is not a failure.
        let _ = write!(std::io::stdout().lock(), "{}", table(&rows));
    }
    args.svg.as_deref().map_or(Ok(()), |path| draw(path, rows))
}

/// The rate of a replay is the recorded one.
fn refuse_rate(coding: &Coding) -> Result<(), Failure> {
    if coding.rate_control.is_some() || coding.max_rate.is_some() || coding.workers > 0 {
        let text = "a replay keeps the recorded rate: leave out --rate-control, --max-rate and --workers";
        return Err(Failure::message(Exit::Usage, text));
    }
    Ok(())
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::message(Exit::Usage, format_args!("`{}`: {error}", path.display()))
}

/// Passes all items of a recording to `take`. A recording that was cut off, because its job was killed, is
/// used as far as it goes. A damaged one is refused.
fn read(path: &Path, console: &Console, mut take: impl FnMut(Item)) -> Result<(), Failure> {
    let file = File::open(path)
        .map_err(|error| Failure::message(Exit::LocalIo, format_args!("cannot read `{}`: {error}", path.display())))?;
    let mut reader = Reader::open(BufReader::new(file)).map_err(|error| named(path, &error))?;
    let mut items = Vec::new();
    loop {
        let next = reader.next_items(&mut items);
        items.drain(..).for_each(&mut take);
        match next {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error @ ReadError::Truncated { .. }) => {
                console.warn(&format!("tidewire: `{}`: {error}; what precedes it is used", path.display()));
                return Ok(());
            }
            Err(error) => return Err(named(path, &error)),
        }
    }
}

/// The connection of a recording that wrote most.
fn gather(path: &Path, console: &Console) -> Result<Gather, Failure> {
    let (connections, missed) = gather_all(path, console)?;
    if missed > 0 {
        console.warn(&format!("tidewire: {missed} events were not recorded, so the replay differs from the run"));
    }
    let count = connections.len();
    if count > 1 {
        console.say(&format!("{count} connections; the one that wrote most is replayed"));
    }
    Ok(connections.into_values().max_by_key(Gather::written).unwrap_or_default())
}

type Connections = BTreeMap<(u32, ConnectionHandle), Gather>;

fn gather_all(path: &Path, console: &Console) -> Result<(Connections, u64), Failure> {
    let (mut connections, mut missed) = (Connections::new(), 0);
    read(path, console, |item| match item {
        Item::Event(entry) => {
            let key = (entry.endpoint, entry.connection);
            if connections.len() < MOST_CONNECTIONS || connections.contains_key(&key) {
                connections.entry(key).or_default().take(entry.at, &entry.event);
            }
        }
        Item::Missed { events, .. } => missed += events,
    })?;
    Ok((connections, missed))
}

/// The delays of the connection of a recording that received most.
fn received(path: &Path, console: &Console) -> Result<DelayHistogram, Failure> {
    let (connections, _) = gather_all(path, console)?;
    let most = connections.values().map(Gather::received).max_by_key(|delays| delays.count());
    Ok(most.cloned().unwrap_or_default())
}

/// Says what a replay leaves out.
fn note(recorded: &Recorded, console: &Console) {
    if recorded.message_bytes > 0 {
        console.warn("tidewire: the recorded messages are replayed as bytes of a stream, without their lifetimes");
    }
}

/// The configurations to try: the recorded choices, and the user's or a few.
fn choices(recorded: &Recorded, coding: &Coding) -> Result<Vec<(String, Config)>, Failure> {
    let same = Recorded::config(&recorded.choices).or_exit(Exit::Usage)?;
    let chosen = coding.over(&same, None).or_exit(Exit::Usage)?;
    let mut all = vec![("same choices".to_owned(), same.clone())];
    let asked = asked(coding);
    if asked.is_empty() {
        for name in TRIED {
            let redundancy: Redundancy = name.parse().or_exit(Exit::Other)?;
            // A profile in generations takes no spans of a sliding window.
            if redundancy != recorded.choices.profile.redundancy
                && let Ok(config) = same.to_builder().redundancy(redundancy).build()
            {
                all.push((format!("--redundancy {name}"), config));
            }
        }
    } else {
        all.push((asked, chosen));
    }
    Ok(all)
}

/// The choices of the command line, in its words.
fn asked(coding: &Coding) -> String {
    let mut words = Vec::new();
    if let Some(profile) = coding.profile {
        let is_it = |named: &&Named| named.example.parse::<Profile>().is_ok_and(|other| other == profile);
        let name = Profile::NAMED.iter().find(is_it).map(|named| named.example);
        words.push(name.map_or(format!("a profile with {}", profile.redundancy), |name| format!("--profile {name}")));
    }
    if let Some(code) = coding.code {
        words.push(format!("--code {}", tidewire_proto::wire::CodeName(code)));
    }
    if let Some(redundancy) = coding.redundancy {
        words.push(format!("--redundancy {redundancy}"));
    }
    if let Some(latency) = coding.latency {
        words.push(format!("--latency {}ms", milliseconds(latency)));
    }
    if let Some(deliver) = coding.deliver {
        words.push(format!("--deliver {}%", 100.0 * deliver.value()));
    }
    if let Some(cap) = coding.max_overhead {
        words.push(format!("--max-overhead {}%", 100.0 * cap.value()));
    }
    words.join(" ")
}

fn distribution(delay: &DelayHistogram) -> Distribution {
    Distribution::new(delay.buckets(), delay.mean(), delay.max())
}

fn row_of(recorded: &Recorded) -> Row {
    Row {
        name: "recorded".into(),
        delay: distribution(&recorded.delay),
        overhead: recorded.overhead(),
        loss: recorded.lost.0 as f64 / recorded.lost.1.max(1) as f64,
        bytes: recorded.app_bytes,
        done: None,
    }
}

fn replayed(name: String, replayed: &Replayed) -> Row {
    Row {
        name,
        delay: distribution(&replayed.delay),
        overhead: replayed.overhead(),
        loss: replayed.loss,
        bytes: replayed.app_bytes,
        done: Some(replayed.done),
    }
}

/// Makes a table with a line for each run.
fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let mut out = format!("{:<width$}  overhead   loss  in-order delay beyond the one-way time\n", "");
    for row in rows {
        let ms = |q| row.delay.quantile(q).map_or_else(|| "-".into(), |value| format!("{value:.1}"));
        let incomplete = if row.done == Some(false) { "  (not all bytes arrived)" } else { "" };
        out.push_str(&format!(
            "{:<width$}  {:>6.1} %  {:>4.1} %  p50 {}, p95 {}, p99 {}, p99.9 {} ms{incomplete}\n",
            row.name,
            100.0 * row.overhead,
            100.0 * row.loss,
            ms(0.5),
            ms(0.95),
            ms(0.99),
            ms(0.999),
        ));
    }
    out
}

fn draw(path: &Path, rows: Vec<Row>) -> Result<(), Failure> {
    let run = |row: Row| runs::Run { label: row.name, overhead: row.overhead, delay: row.delay };
    let runs: Vec<_> = rows.into_iter().map(run).collect();
    let picture = runs::draw(&runs, "In-order delay against overhead: recorded, and replayed");
    std::fs::write(path, picture)
        .map_err(|error| Failure::message(Exit::LocalIo, format_args!("cannot write `{}`: {error}", path.display())))
}
