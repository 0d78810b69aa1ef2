//! One phase of a probe: a bench over its own connection, which is observed while it runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;
use tidewire::{Config, Connection, Redundancy};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::unless_interrupted;
use tidewire_command::report::{Console, Summary, rate};
use tidewire_figures::milliseconds;
use tokio::time::{MissedTickBehavior, interval};

use super::follow::{Followed, Following};
use super::{Phase, Spread, latest_rtt};
use crate::bench::{Order, SoFar, client, clock_name};
use crate::session::{self, CUT_OFF, DONE};
use crate::way::Way;

/// Rate of the records of the light phase, in bits per second. Chosen: little on any path where coding is
/// useful, and too little to fill a queue.
pub const LIGHT_RATE: u64 = 1_000_000;
/// Bytes of a record of the light phase. Each record is a packet of its own: 417 a second, so twelve seconds
/// show 500 losses of a path that loses 10 %. The packets are as far apart as full packets at 5 Mbit/s,
/// because bursts of losses also have a length in time.
const LIGHT_RECORD: u32 = 300;
/// Record of the full phase: one packet, as for `bench`.
const FULL_RECORD: u32 = 1_200;
/// Fraction of the total time for the light phase. Its measurements need many packets, and it sends few.
const LIGHT_PART: f64 = 0.6;
/// Fraction of the full phase in which the rate is still being found and nothing is counted: 2.7 s of 8.
const FINDING: f64 = 1.0 / 3.0;
/// Interval of polling the connection: shorter than that of FEEDBACK on most paths, and hardly any work.
const LOOK: Duration = Duration::from_millis(10);
/// Interval of reports to a program, and to people without a terminal.
const EVENT_PERIOD: Duration = Duration::from_secs(1);
const LINE_PERIOD: Duration = Duration::from_secs(5);

/// The load of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// [`LIGHT_RATE`] and no proactive repair: what the path does to a few packets.
    Light,
    /// As much as rate control allows.
    Full,
}

/// What both phases of a probe share.
pub struct Probe<'a> {
    /// The way to the far end.
    pub way: &'a Way,
    /// Configuration of the full phase.
    pub config: &'a Config,
    /// Duration of both phases together.
    pub time: Duration,
    /// When the probe began.
    pub began: Instant,
    /// Where output goes.
    pub console: &'a Console,
}

/// Observations of a running connection.
#[derive(Default)]
struct Seen {
    rtts: Vec<f64>,
    samples: u32,
    /// The first and the last observation that count: when, and the IP bytes sent by then.
    first: Option<(Instant, u64)>,
    last: Option<(Instant, u64)>,
}

/// Runs one phase. Also returns the summary of its bench, and its packets.
///
/// # Errors
/// [`Exit::Unreachable`] if nothing answers or the connection is lost. If it was made, the failure was
/// reported, and the summary after it.
pub async fn measure(load: Pressure, probe: &Probe<'_>) -> Result<(Phase, Summary, Vec<Followed>), Failure> {
    let part = if load == Pressure::Light { LIGHT_PART } else { 1.0 - LIGHT_PART };
    let length = probe.time.mul_f64(part);
    let mut config = probe.config.to_builder().latency(None);
    if load == Pressure::Light {
        config = config.redundancy(Redundancy::ARQ);
    }
    let following = Arc::new(Following::new(probe.began));
    let config = config.build().or_exit(Exit::Usage)?.with_trace(following.clone());
    let (endpoint, connection) = unless_interrupted(probe.way.connect(&config, probe.console)).await?;
    let mut seen = Seen::default();
    let plan = load.plan(length);
    // `observe` reports in place of the bench.
    let quiet = Console::new(false, true);
    let (begun, so_far) = (Instant::now(), SoFar::default());
    let measured = unless_interrupted(async {
        tokio::select! {
            summary = client::run(&connection, &plan, &so_far, &quiet) => summary,
            never = observe(&connection, load, length, probe.console, &mut seen) => match never {},
        }
    })
    .await;
    let stats = connection.stats();
    connection.close(if measured.is_ok() { DONE } else { CUT_OFF }, "");
    let early = so_far.summary(&connection, begun.elapsed());
    session::close(&endpoint).await;
    let summary = match measured {
        Ok(summary) => summary,
        Err(failure) => return probe.console.conclude(&early, Err(failure)).and(Err(Failure::reported(Exit::Other))),
    };
    let phase = Phase {
        seconds: summary.seconds,
        rtt_ms: Spread::of(&seen.rtts),
        rate_bps: seen.rate_bps(),
        goodput_bps: summary.goodput_bps,
        reordering: summary.reordering,
        ..Phase::of(load.name(), &stats)
    };
    Ok((phase, summary, following.packets()))
}

impl Pressure {
    fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Full => "full",
        }
    }

    fn plan(self, length: Duration) -> Order {
        let (rate_bps, record_bytes) = match self {
            Self::Light => (Some(LIGHT_RATE), LIGHT_RECORD),
            Self::Full => (None, FULL_RECORD),
        };
        Order {
            reverse: false,
            seconds: length.as_secs_f64(),
            rate_bps,
            parallel: 1,
            record_bytes,
            interval_seconds: 1.0,
            clock: clock_name(),
        }
    }
}

impl Seen {
    fn rate_bps(&self) -> f64 {
        let Some(((begun, before), (ended, after))) = self.first.zip(self.last) else { return 0.0 };
        8.0 * (after - before) as f64 / ended.duration_since(begun).as_secs_f64().max(1e-3)
    }
}

/// Polls a connection as long as it is polled itself, and reports what it sees.
async fn observe(
    connection: &Connection,
    load: Pressure,
    length: Duration,
    console: &Console,
    seen: &mut Seen,
) -> Infallible {
    let begun = Instant::now();
    let skipped = if load == Pressure::Full { length.mul_f64(FINDING) } else { Duration::ZERO };
    let bar = console.bars().map(|bars| ClearOnDrop(bars.add(ProgressBar::new_spinner())));
    let period = if bar.is_some() || console.json() { EVENT_PERIOD } else { LINE_PERIOD };
    let mut said = begun;
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        looks.tick().await;
        let elapsed = begun.elapsed();
        let stats = connection.stats();
        if elapsed >= skipped && elapsed <= length {
            if let Some((number, rtt)) = latest_rtt(&stats).filter(|(number, _)| *number != seen.samples) {
                seen.samples = number;
                seen.rtts.push(rtt);
            }
            let sent = (Instant::now(), stats.bytes.wire_sent);
            seen.first.get_or_insert(sent);
            seen.last = Some(sent);
        }
        if said.elapsed() < period || elapsed > length {
            continue;
        }
        said = Instant::now();
        let progress = Probing {
            phase: load.name(),
            seconds: elapsed.as_secs_f64(),
            of_seconds: length.as_secs_f64(),
            rtt_ms: milliseconds(stats.rtt.latest),
            loss: stats.loss.rate,
            rate_bps: 8.0 * stats.bytes.wire_sent as f64 / elapsed.as_secs_f64(),
        };
        match &bar {
            Some(ClearOnDrop(bar)) => bar.set_message(progress.words()),
            None => console.say(&progress.words()),
        }
        console.event(&Event::Probing(&progress));
    }
}

/// The event of a running phase.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// How far a phase is.
    Probing(&'a Probing),
}

/// How far a phase is.
#[derive(Clone, Copy, Debug, Serialize)]
struct Probing {
    /// `light` or `full`.
    phase: &'static str,
    /// Seconds since the phase began.
    seconds: f64,
    /// Seconds that the phase takes in all.
    of_seconds: f64,
    /// Latest round-trip time.
    rtt_ms: f64,
    /// Fraction of the packets sent by this end that the medium lost.
    loss: f64,
    /// IP bits per second sent so far.
    rate_bps: f64,
}

impl Probing {
    fn words(&self) -> String {
        let Self { phase, seconds, of_seconds, rtt_ms, loss, rate_bps } = self;
        let (loss, rate) = (100.0 * loss, rate(*rate_bps));
        format!("{phase} load, {seconds:.0} of {of_seconds:.0} s: {rate}, loss {loss:.1} %, RTT {rtt_ms:.1} ms")
    }
}

/// Clears the progress line when it is dropped.
struct ClearOnDrop(ProgressBar);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
