//! `tidewire probe LINK`: measures the path to a `tidewire bench -s`, predicts the delay of a flow on it, and
//! tells whether Tidewire is of use there.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::options::{Coding, Output};
use tidewire_command::report::{Console, Summary, rate};
use tidewire_command::stdout;
use tidewire_figures::chart::terminal::Style;
use tidewire_units::{Rate, parse_duration};

use crate::keys::Own;
use crate::link;
use crate::probe::advice::{Advice, Subject, advise};
use crate::probe::outlook::{Ground, Outlook, Point, predict};
use crate::probe::phase::{Pressure, Probe, measure};
use crate::probe::police::Policer;
use crate::probe::tradeoff::{svg, terminal};
use crate::probe::{Phase, recognise, words};
use crate::via::Via;
use crate::way::Way;

/// The events of the results of `probe`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// What a phase measured.
    Phase(&'a Phase),
    /// The policer of the path, if one was recognised.
    Policer(&'a Policer),
    /// The delay predicted at one overhead.
    Prediction(&'a Point),
    /// What follows from the measurement.
    Advice(&'a Advice),
}

/// Arguments of `probe`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Link that `tidewire bench -s` printed (tidewire://...), or @FILE with the link. The default is
    /// TIDEWIRE_LINK
    #[arg(value_name = "LINK")]
    link: Option<String>,
    /// Time to measure, from 2s to 1h: three fifths of it with light load, the rest at full rate
    #[arg(short, long, value_name = "TIME", default_value = "20s", value_parser = duration)]
    time: Duration,
    /// Predict the delay of a flow with this rate, headers included [example: 4mbit]. The default is half of
    /// the measured rate
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Draw the prediction into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    own: Own,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    coding: Coding,
}

/// Shortest time: enough for 500 packets at light load, and for a second to find the rate.
const SHORTEST: Duration = Duration::from_secs(2);
/// Longest time. Chosen: a path changes over hours, and one histogram of all of them would describe none of
/// them.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Part of the measured rate that the predicted flow has by default. Chosen: a live stream should leave room
/// for others.
const FLOW_PART: f64 = 0.5;

fn duration(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    if (SHORTEST..=LONGEST).contains(&time) { Ok(time) } else { Err(format!("{text} is not from 2s to 1h")) }
}

/// Measures the path, predicts the delay and prints advice.
///
/// # Errors
/// [`Exit::Usage`] for a wrong link, [`Exit::Unreachable`] if nothing answers, [`Exit::Other`] if the peer is
/// not a `bench -s`, [`Exit::TargetNotMet`] if the path cannot keep `--latency`.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let link = link::given(args.link.as_deref()).or_exit(Exit::Usage)?;
    let config = args.coding.config(Some(&link)).or_exit(Exit::Usage)?;
    let way = Way::to(link, args.own.key.as_deref(), &Via::default(), &console)?;
    let probe = Probe { way: &way, config: &config, time: args.time, began: Instant::now(), console: &console };
    // The light load runs first, because the queues that full load leaves behind would disturb it.
    let (mut light, so_far, few) = measure(Pressure::Light, &probe).await?;
    let (mut full, mut summary, many) = match measure(Pressure::Full, &probe).await {
        // The second connection was never made.
        Err(failure) if failure.error.is_some() => return console.conclude(&so_far, Err(failure)),
        measured => measured?,
    };
    let policer = recognise((&mut light, &few), (&mut full, &many));
    if policer.is_some() {
        (summary.loss, summary.rate_control) = (Some(full.loss), Some(full.rate_control.clone()));
    }
    let flow = args.rate.map_or(FLOW_PART * full.rate_bps, |rate| rate.bits_per_second() as f64);
    let outlook = light.rtt_ms.map(|rtt| {
        predict(
            Ground {
                loss: light.loss,
                burst: light.bursts.mean,
                rtt: Duration::from_secs_f64(rtt.p50 / 1e3),
                packet_bytes: full.packet_bytes,
                rate_bps: flow,
            },
            &config,
        )
    });
    let found = Found { light, full, policer, outlook };
    tell(&found, args.svg.as_deref(), &summary, &console)
}

/// What was found out about the path.
struct Found {
    light: Phase,
    full: Phase,
    policer: Option<Policer>,
    outlook: Option<Outlook>,
}

fn tell(found: &Found, svg: Option<&Path>, summary: &Summary, console: &Console) -> Result<(), Failure> {
    let Found { light, full, policer, outlook } = found;
    let outlook = outlook.as_ref();
    let advice = advise(light, full, policer.as_ref(), outlook);
    for phase in [light, full] {
        console.event(&Event::Phase(phase));
    }
    policer.iter().for_each(|policer| console.event(&Event::Policer(policer)));
    if let Some(outlook) = outlook {
        let points = outlook.code.iter().chain([&outlook.asking, &outlook.chosen]);
        points.for_each(|point| console.event(&Event::Prediction(point)));
    }
    advice.iter().for_each(|advice| console.event(&Event::Advice(advice)));
    if !console.json() {
        let mut text = words::table(light, full);
        if let Some(outlook) = outlook.filter(|outlook| !outlook.code.is_empty()) {
            text.push('\n');
            text.push_str(&format!("predicted for {}\n", title(outlook)));
            text.push_str(&terminal::draw(outlook, Style::from_environment()));
        }
        text.push('\n');
        advice.iter().for_each(|advice| text.push_str(&format!("- {}\n", advice.words)));
        stdout::write(&text);
    }
    let drawn = svg.zip(outlook).map_or(Ok(()), |(path, outlook)| draw(path, outlook));
    let infeasible = advice.iter().find(|advice| advice.subject == Subject::Infeasible);
    let ended = drawn.and(match infeasible {
        Some(advice) => Err(Failure::message(Exit::TargetNotMet, &advice.words)),
        None => Ok(()),
    });
    console.conclude(summary, ended)
}

fn draw(path: &Path, outlook: &Outlook) -> Result<(), Failure> {
    std::fs::write(path, svg::draw(outlook, &title(outlook)))
        .map_err(|error| Failure::message(Exit::LocalIo, format_args!("cannot write `{}`: {error}", path.display())))
}

/// Describes the path and the flow in a few words.
fn title(outlook: &Outlook) -> String {
    let Ground { loss, burst, rtt, rate_bps, .. } = outlook.ground;
    format!(
        "a flow of {}, {:.2} % loss in runs of {burst:.1}, round trip {:.1} ms",
        rate(rate_bps),
        100.0 * loss,
        1e3 * rtt.as_secs_f64()
    )
}
