//! Live video with a deadline beside SRT, RIST and plain UDP: what is missing at the player, what was sent
//! for it, and how constant the delay is. Each part is one row of the goals, with all carriers.
//!
//! These are parts of `cargo measure lab`. All carriers of a row run at once, each over an emulated link of
//! its own with the same seed; they and the links are processes. Invariant: missing packets are counted by
//! their numbers at the player, whatever a carrier says.

mod carrier;
mod fall;
mod frames;
mod stream;

use crate::context::Context;
use crate::figures::emulator::Emulator;
use carrier::Carrier;
pub use fall::measure as fall;
pub use frames::{frames, keys, long};
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use stream::{DATAGRAM, INTERVAL, Player, Seen, numbered, send};

/// Measures a row. Returns Markdown, and whether the row holds.
type Measured = Result<(String, bool), String>;

/// A row of the goals: the link's loss, the latency beyond its one-way time, and what is asked of us.
struct Row {
    loss: &'static str,
    budget_ms: u64,
    /// Fraction of the packets of the transport stream.
    missing: f64,
    /// Bytes sent per byte of the stream.
    sent: f64,
}

/// The figures of one carrier in one run.
#[derive(Clone, Copy)]
struct Figures {
    missing: f64,
    sent: f64,
    /// Of the delay, in milliseconds.
    p50: f64,
    p99: f64,
    /// From the delay that 1 % do not exceed to that which 99 % do not exceed, in milliseconds.
    jitter: f64,
    /// How late datagrams left the output, if the carrier tells: p50, p99 and the most, in milliseconds.
    output: Option<[f64; 3]>,
}

/// 5 % of independent losses.
pub fn five(_: &Context, binary: &Path, full: bool) -> Measured {
    measure(binary, &Row { loss: "5%", budget_ms: 80, missing: 1e-4, sent: 1.30 }, full)
}

/// 10 % of independent losses.
pub fn ten(_: &Context, binary: &Path, full: bool) -> Measured {
    measure(binary, &Row { loss: "10%", budget_ms: 80, missing: 1e-4, sent: 1.45 }, full)
}

/// 5 % of losses in runs of four.
pub fn runs(_: &Context, binary: &Path, full: bool) -> Measured {
    measure(binary, &Row { loss: "gilbert:5%,4", budget_ms: 80, missing: 1e-4, sent: 1.45 }, full)
}

/// Less latency than half of the round trip.
pub fn short(_: &Context, binary: &Path, full: bool) -> Measured {
    measure(binary, &Row { loss: "5%", budget_ms: 30, missing: 1e-3, sent: 1.50 }, full)
}

/// How constant the delay is, with two carriers at a time only, and which part of it is our output's. The
/// goal: 1 ms.
pub fn delay(_: &Context, binary: &Path, full: bool) -> Measured {
    let row = Row { loss: "5%", budget_ms: 80, missing: 1e-4, sent: 1.30 };
    let mut text = String::from(
        "6 Mbit/s for 30 s over 25 Mbit/s, 60 ms, loss 5%; one way + 80 ms. The last column: how late datagrams left the output of `tidewire live`, by its own report.\n\n\
         | carrier | seed | delay p50, p99 | jitter | at the output p50, p99, most |\n| --- | --- | --- | --- | --- |\n",
    );
    let mut holds = true;
    for seed in 1..=if full { 3 } else { 1 } {
        for carrier in [Carrier::Tidewire(row.budget_ms, &[]), Carrier::Udp] {
            let Figures { p50, p99, jitter, output, .. } = run(binary, &row, carrier, seed, Duration::from_secs(30))?;
            let own = output.map_or_else(String::new, |[p50, p99, most]| format!("{p50:.2}, {p99:.2}, {most:.2} ms"));
            text += &format!("| {} | {seed} | {p50:.1}, {p99:.1} ms | {jitter:.2} ms | {own} |\n", carrier.name());
            holds &= output.is_none() || jitter <= 1.0;
        }
    }
    Ok((text, holds))
}

/// Measures all carriers on a row. The full run takes three seeds of a minute, the usual one a short seed.
fn measure(binary: &Path, row: &Row, full: bool) -> Measured {
    let (seeds, length) = if full { (3, FULL) } else { (1, USUAL) };
    let carriers = Carrier::all(row.budget_ms);
    let mut runs: Vec<Vec<Figures>> = vec![Vec::new(); carriers.len()];
    for seed in 1..=seeds {
        let figures: Vec<Result<Figures, String>> = thread::scope(|scope| {
            let threads: Vec<_> =
                carriers.iter().map(|carrier| scope.spawn(move || run(binary, row, *carrier, seed, length))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a run panicked".into()))).collect()
        });
        for ((carrier, figures), runs) in carriers.iter().zip(figures).zip(&mut runs) {
            runs.push(figures.map_err(|problem| format!("{}: {problem}", carrier.name()))?);
        }
    }
    let goal = |figures: &Figures| figures.missing <= row.missing && figures.sent <= row.sent;
    let holds = runs.first().is_some_and(|ours| goal(&median(ours)));
    Ok((table(row, &carriers, &runs, seeds, length), holds))
}

fn table(row: &Row, carriers: &[Carrier], runs: &[Vec<Figures>], seeds: u32, length: Duration) -> String {
    let Row { loss, budget_ms, missing, sent } = row;
    let of = if seeds == 1 { "One seed".into() } else { format!("Medians of {seeds} seeds") };
    let mut text = format!(
        "25 Mbit/s, 60 ms, loss {loss}; one way + {budget_ms} ms. Asked: at most {:.0} in 10,000 missing at {sent:.2}. {of} of {} s.\n\n\
         | carrier | latency | missing in 10,000 | sent/app | delay p50, p99 | jitter |\n| --- | --- | --- | --- | --- | --- |\n",
        missing * 1e4,
        length.as_secs(),
    );
    for (carrier, runs) in carriers.iter().zip(runs) {
        let Figures { missing, sent, p50, p99, jitter, .. } = median(runs);
        let latency = carrier.latency_ms().map_or_else(|| "none".into(), |latency| format!("{latency} ms"));
        text += &format!(
            "| {} | {latency} | {:.2} | {sent:.3} | {p50:.1}, {p99:.1} ms | {jitter:.2} ms |\n",
            carrier.name(),
            missing * 1e4,
        );
    }
    text
}

/// The median of each figure alone.
fn median(runs: &[Figures]) -> Figures {
    let of = |figure: fn(&Figures) -> f64| tidewire_figures::median(runs.iter().map(figure));
    Figures {
        missing: of(|figures| figures.missing),
        sent: of(|figures| figures.sent),
        p50: of(|figures| figures.p50),
        p99: of(|figures| figures.p99),
        jitter: of(|figures| figures.jitter),
        output: None,
    }
}

/// Carries the numbered stream once.
fn run(binary: &Path, row: &Row, carrier: Carrier, seed: u32, length: Duration) -> Result<Figures, String> {
    let player = Player::of_numbers()?;
    let carried =
        carry(binary, row.loss, carrier, seed, player.address(), |entry| send(entry, numbered(length), INTERVAL))?;
    let seen = Seen::new(&carried.sent, &player.finish(), STEADY_FROM);
    let quantile = |q: f64| seen.delay(q).map_or(f64::NAN, |delay| delay.as_secs_f64() * 1e3);
    Ok(Figures {
        missing: seen.missing(),
        sent: carried.payload / (carried.sent.len() * DATAGRAM) as f64,
        p50: quantile(0.5),
        p99: quantile(0.99),
        jitter: quantile(0.99) - quantile(0.01),
        output: carried.output,
    })
}

/// What was sent by the source, and by the carrier.
struct Carried {
    sent: Vec<Instant>,
    /// Bytes of UDP payload.
    payload: f64,
    output: Option<[f64; 3]>,
}

/// Starts a carrier over a link of its own, and what `send` sends through it.
fn carry(
    binary: &Path,
    loss: &str,
    carrier: Carrier,
    seed: u32,
    player: SocketAddr,
    send: impl FnOnce(SocketAddr) -> Result<Vec<Instant>, String>,
) -> Result<Carried, String> {
    let ready = Instant::now() + PATIENCE;
    let mut far = carrier.start_far(binary, player, ready)?;
    let seed = seed.to_string();
    let link = ["--rate", "25mbit", "--rtt", "60ms", "--loss", loss, "--seed", &seed];
    let (link, entry) = Emulator::before(binary, &link, &far.target, ready)?;
    let near = carrier.start_near(binary, &far, &entry, ready)?;
    let sent = send(near.entry)?;
    thread::sleep(DRAIN);
    let lines = link.end(Instant::now() + PATIENCE)?;
    let counts = lines.iter().rev().find(|line| line.is("link_stats")).ok_or("the link reported no counts")?;
    let payload = counts.number("/forward/offered_bytes")? - HEADERS * counts.number("/forward/offered")?;
    Ok(Carried { sent, payload, output: far.output() })
}

/// Lengths of a run. Chosen: a minute is 240,000 packets of the stream.
const FULL: Duration = Duration::from_secs(60);
const USUAL: Duration = Duration::from_secs(15);
/// Start-up of the carriers, which is not counted as missing (`docs/live.md`).
const STEADY_FROM: Duration = Duration::from_secs(3);
/// Time for what is on the way at the end. Chosen: twice the longest latency.
const DRAIN: Duration = Duration::from_secs(1);
/// Longest time for processes to start and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the IPv4 and UDP headers, which `tidewire-lab link` counts too.
const HEADERS: f64 = 28.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_a_median_of_its_own() {
        let figures = |missing, sent| Figures { missing, sent, p50: 110.0, p99: 111.0, jitter: 1.0, output: None };
        let median = median(&[figures(3.0, 1.1), figures(1.0, 1.3), figures(2.0, 1.2)]);
        assert_eq!((median.missing, median.sent, median.p50), (2.0, 1.2, 110.0));
    }
}
