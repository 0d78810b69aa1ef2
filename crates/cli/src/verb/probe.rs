//! `tidewire probe LINK`: what the path to a `tidewire bench -s` is like, what that means for a flow, and whether to use Tidewire there at all.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tidewire_sim::units::{Rate, parse_duration};

use crate::chart::terminal::Style;
use crate::chart::tradeoff::{svg, terminal};
use crate::exit::{Exit, Failure, OrExit};
use crate::keys::{self, Own};
use crate::link;
use crate::options::{Coding, Output};
use crate::probe::advice::{Advice, Subject, advise};
use crate::probe::outlook::{Ground, Outlook, Point, predict};
use crate::probe::phase::{Load, Probe, measure};
use crate::probe::{Phase, words};
use crate::report::{Console, Summary, rate};

/// The events of the results of `probe`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// What a phase measured.
    Phase(&'a Phase),
    /// The delay predicted at one overhead.
    Prediction(&'a Point),
    /// What follows from the measurement.
    Advice(&'a Advice),
}

/// Arguments of `probe`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What `tidewire bench -s` printed: tidewire://..., or @FILE that holds it; without it, TIDEWIRE_LINK is used
    #[arg(value_name = "LINK")]
    link: Option<String>,
    /// How long to measure: three fifths of it with little load, the rest at full rate
    #[arg(short, long, value_name = "TIME", default_value = "20s", value_parser = duration)]
    time: Duration,
    /// Predict for a flow of this rate, headers included; without it, half of the rate found [example: 4mbit]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Also draw the prediction into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    own: Own,
    #[command(flatten)]
    coding: Coding,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Shortest time: 500 packets at light load, and a second to find the rate in.
const SHORTEST: Duration = Duration::from_secs(2);
/// Longest: a path is not the same for longer, and a histogram of an hour shows none of its hours.
const LONGEST: Duration = Duration::from_secs(3_600);
/// The flow that is predicted for has this part of the rate, if none is named: one that leaves room, as live streams should.
const FLOW_PART: f64 = 0.5;

fn duration(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    if (SHORTEST..=LONGEST).contains(&time) { Ok(time) } else { Err("must be from 2s to 1h".into()) }
}

/// Measures, predicts, advises.
///
/// # Errors
/// [`Exit::Usage`] for a wrong link, [`Exit::Unreachable`] when nothing answers, [`Exit::Other`] when what answers is no `bench -s`,
/// [`Exit::TargetNotMet`] when the path cannot keep `--latency`.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let link = link::given(args.link.as_deref()).or_exit(Exit::Usage)?;
    let config = args.coding.config(Some(&link)).or_exit(Exit::Usage)?;
    let credentials = keys::to_open(&link, args.own.key.as_deref(), &console)?;
    let probe = Probe { link: &link, credentials: &credentials, config: &config, time: args.time, console: &console };
    // Light load first: what full load leaves behind would be measured with it.
    let (light, _) = measure(Load::Light, &probe).await?;
    let (full, summary) = measure(Load::Full, &probe).await?;
    let flow = args.rate.map_or(FLOW_PART * full.rate_bps, |rate| rate.bits_per_second() as f64);
    let outlook = light.rtt_ms.map(|rtt| {
        predict(
            Ground {
                loss: light.medium_loss,
                burst: light.bursts.mean,
                rtt: Duration::from_secs_f64(rtt.p50 / 1e3),
                packet_bytes: full.packet_bytes,
                rate_bps: flow,
            },
            &config,
        )
    });
    tell(&light, &full, outlook.as_ref(), args.svg.as_deref(), &summary, &console)
}

fn tell(
    light: &Phase,
    full: &Phase,
    outlook: Option<&Outlook>,
    svg: Option<&Path>,
    summary: &Summary,
    console: &Console,
) -> Result<(), Failure> {
    let advice = advise(light, full, outlook);
    for phase in [light, full] {
        console.event(&Event::Phase(phase));
    }
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
        // A closed pipe is the reader's business.
        let _ = write!(std::io::stdout().lock(), "{text}");
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

/// The path and the flow in a few words.
fn title(outlook: &Outlook) -> String {
    let Ground { loss, burst, rtt, rate_bps, .. } = outlook.ground;
    format!(
        "a flow of {}, {:.2} % loss in runs of {burst:.1}, round trip {:.1} ms",
        rate(rate_bps),
        100.0 * loss,
        1e3 * rtt.as_secs_f64()
    )
}
