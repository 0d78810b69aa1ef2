//! `demo --senders N`: several connections over one link, a newcomer every few seconds, and what each gets.
//!
//! The bytes are counted where they arrive, drops at the queue of the emulated link. Invariant: a sender
//! always has something to send, so what it gets is what rate control takes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tidewire::{Config, Connection, Endpoint};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::unless_interrupted;
use tidewire_command::report::{Console, RateControl, Summary, rate};
use tidewire_command::stdout;
use tidewire_figures::chart::over_time::{self, Panel, Trace};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::settings::Direction;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Ends, configured};
use crate::session::{self, DONE};

/// The link: one of a home, whose queue holds a round trip.
const LINK: [(Direction, &str, &str); 3] =
    [(Direction::Both, "rate", "25mbit"), (Direction::Both, "rtt", "60ms"), (Direction::Forward, "queue", "60ms")];
const LINK_IN_WORDS: &str = "25 Mbit/s, 60 ms RTT, a queue of 60 ms";
const LINK_BPS: f64 = 25e6;
/// Time from one newcomer to the next, and how long all run together.
const GAP: Duration = Duration::from_secs(4);
const TOGETHER: Duration = Duration::from_secs(8);
/// Time between two samples, which are drawn.
const STEP: Duration = Duration::from_secs(1);
/// Part of the time together that the result counts: the last half, when the last newcomer has its share.
const COUNTED: u32 = 2;
/// Characters for the rate of the link.
const BAR: f64 = 50.0;
/// Bytes per write and read.
const BUFFER: usize = 64 << 10;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// What each sender got since the event before; the last one is of the second half of the time that all
    /// ran together.
    Shares(&'a Shares),
}

/// What each sender got.
#[derive(Clone, Debug, Serialize)]
struct Shares {
    /// Beginning and end, in seconds since the first sender began.
    from_seconds: f64,
    to_seconds: f64,
    /// Bits per second that arrived of each sender that has begun.
    goodput_bps: Vec<f64>,
    sum_bps: f64,
    /// Jain's index: 1 if all have the same, 1/n if one of n has all.
    jain: f64,
    /// Packets that the queue of the link dropped, of how many.
    dropped_packets: u64,
    offered_packets: u64,
}

/// Counts at one moment.
#[derive(Clone, Debug)]
struct Count {
    at: Duration,
    received: Vec<u64>,
    dropped: u64,
    offered: u64,
}

impl Shares {
    fn between(before: &Count, after: &Count) -> Self {
        let seconds = (after.at - before.at).as_secs_f64().max(1e-3);
        // A sender that began in between had nothing before.
        let then = |index: usize| before.received.get(index).copied().unwrap_or(0);
        let goodput = |(index, now): (usize, &u64)| 8.0 * (now - then(index)) as f64 / seconds;
        let goodput_bps: Vec<f64> = after.received.iter().enumerate().map(goodput).collect();
        Self {
            from_seconds: before.at.as_secs_f64(),
            to_seconds: after.at.as_secs_f64(),
            sum_bps: goodput_bps.iter().sum(),
            jain: jain(&goodput_bps),
            goodput_bps,
            dropped_packets: after.dropped - before.dropped,
            offered_packets: after.offered - before.offered,
        }
    }

    /// A bar in which each character is a fiftieth of the link and names the sender that got it.
    fn bar(&self) -> String {
        let mut bar = String::new();
        for (number, goodput) in (1..).zip(&self.goodput_bps) {
            let characters = (goodput / LINK_BPS * BAR).round() as usize;
            bar.push_str(&number.to_string().repeat(characters));
        }
        bar
    }

    fn words(&self) -> String {
        let each: Vec<String> = self.goodput_bps.iter().map(|goodput| format!("{:.1}", goodput / 1e6)).collect();
        format!(
            "{} = {}, Jain {:.2}, dropped {} of {} packets",
            each.join(" + "),
            rate(self.sum_bps),
            self.jain,
            self.dropped_packets,
            self.offered_packets
        )
    }
}

/// Jain's index of fairness.
fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares > 0.0 { sum * sum / (values.len() as f64 * squares) } else { 1.0 }
}

/// Runs `senders` connections, shows what each gets and draws it into `svg`.
///
/// # Errors
/// [`Exit::LocalIo`] if the picture cannot be written, [`Exit::Unreachable`] if a connection is lost.
pub(super) async fn run(senders: u8, config: Config, svg: &Path, console: &Console) -> Result<(), Failure> {
    let control = config.rate_control();
    console.say(&format!("{LINK_IN_WORDS}; {senders} senders with rate control {control}, a newcomer every {GAP:.0?}"));
    let ends = Ends::over(&link(), config.clone()).await?;
    let (begun, mut running) = (Instant::now(), Running::default());
    let measured = unless_interrupted(measure(senders, config, svg, console, &ends, (begun, &mut running))).await;
    let summary = running.end(begun.elapsed()).await;
    let stopped = ends.stop().await;
    console.conclude(&summary, measured.and(stopped))
}

/// Lets the senders begin one after the other, and shows what each gets.
async fn measure(
    senders: u8,
    config: Config,
    svg: &Path,
    console: &Console,
    ends: &Ends,
    (begun, running): (Instant, &mut Running),
) -> Result<(), Failure> {
    let mut counts = vec![running.count(begun, ends)];
    let mut shown = Vec::new();
    let end = GAP * u32::from(senders - 1) + TOGETHER;
    while begun.elapsed() < end {
        if running.senders.len() < usize::from(senders) && begun.elapsed() >= GAP * running.senders.len() as u32 {
            running.add(ends, config.clone(), console).await?;
            let number = running.senders.len();
            console.say(&format!("{:3.0} s  sender {number} begins", begun.elapsed().as_secs_f64()));
        }
        let due = counts.last().map_or(Duration::ZERO, |last| last.at) + STEP;
        sleep(due.saturating_sub(begun.elapsed())).await;
        if let Some(ended) = running.tasks.try_join_next() {
            // A sender ends only with its connection.
            ended.or_exit(Exit::Other)?.or_exit(Exit::Unreachable)?;
        }
        let now = running.count(begun, ends);
        if let Some(before) = counts.last() {
            let shares = Shares::between(before, &now);
            show(&shares, console);
            shown.push(shares);
        }
        counts.push(now);
    }
    let settled = counts.iter().position(|count| count.at + TOGETHER / COUNTED >= end).unwrap_or(0);
    let total = Shares::between(&counts[settled], &counts[counts.len() - 1]);
    console.event(&Event::Shares(&total));
    console.say(&format!("all together, the last {:.0?}: {}", TOGETHER / COUNTED, total.words()));
    draw(&shown, svg, console)
}

fn link() -> DuplexConfig {
    configured(&LINK)
}

/// Shows a step as it happens.
fn show(shares: &Shares, console: &Console) {
    console.event(&Event::Shares(shares));
    if !console.json() {
        let line = format!("{:3.0} s  {:<50}  {}", shares.to_seconds, shares.bar(), shares.words());
        stdout::write_line(&line);
    }
}

/// Draws the rates and the drops over time.
fn draw(shown: &[Shares], svg: &Path, console: &Console) -> Result<(), Failure> {
    let senders = shown.iter().map(|shares| shares.goodput_bps.len()).max().unwrap_or(0);
    let of = |sender: usize| Trace {
        label: format!("sender {}", sender + 1),
        points: shown
            .iter()
            .filter_map(|shares| Some((shares.to_seconds, shares.goodput_bps.get(sender)? / 1e6)))
            .collect(),
    };
    let dropped = shown.iter().map(|shares| (shares.to_seconds, shares.dropped_packets as f64)).collect();
    let panels = [
        Panel { title: "Mbit/s that arrive", traces: (0..senders).map(of).collect() },
        Panel {
            title: "packets dropped in a second",
            traces: vec![Trace { label: "by the queue".into(), points: dropped }],
        },
    ];
    let title = format!("Senders that share one link: {LINK_IN_WORDS}");
    std::fs::write(svg, over_time::draw(&title, &panels)).map_err(|error| {
        Failure::message(Exit::LocalIo, format_args!("cannot write `{}`: {error}; try --svg FILE", svg.display()))
    })?;
    console.say(&format!("picture: {}", svg.display()));
    Ok(())
}

/// A sender, and the bytes that arrived from it.
struct Sender {
    endpoint: Endpoint,
    connection: Connection,
    received: Arc<AtomicU64>,
}

/// The senders that have begun.
#[derive(Default)]
struct Running {
    senders: Vec<Sender>,
    tasks: JoinSet<std::io::Result<()>>,
}

impl Running {
    /// One more sender begins.
    async fn add(&mut self, ends: &Ends, config: Config, console: &Console) -> Result<(), Failure> {
        let (accepted, connected) = tokio::join!(ends.accept(), ends.connect(config, console));
        let ((endpoint, connection), far) = (connected?, accepted?);
        let received = Arc::new(AtomicU64::new(0));
        let (counter, sending) = (received.clone(), connection.clone());
        self.tasks.spawn(async move {
            let mut stream = sending.open().await?;
            let block = vec![0x5a; BUFFER];
            loop {
                stream.write_all(&block).await?;
            }
        });
        self.tasks.spawn(async move {
            let mut stream = far.accept().await?;
            let mut buffer = vec![0; BUFFER];
            loop {
                match stream.read(&mut buffer).await? {
                    0 => return Ok(()),
                    length => counter.fetch_add(length as u64, Ordering::Relaxed),
                };
            }
        });
        self.senders.push(Sender { endpoint, connection, received });
        Ok(())
    }

    fn count(&self, begun: Instant, ends: &Ends) -> Count {
        let link = ends.proxy.stats().forward;
        Count {
            at: begun.elapsed(),
            received: self.senders.iter().map(|sender| sender.received.load(Ordering::Relaxed)).collect(),
            dropped: link.queue_dropped,
            offered: link.offered,
        }
    }

    /// Ends all senders. Returns the sums of all.
    async fn end(mut self, lasted: Duration) -> Summary {
        let (mut bytes, mut wire, mut control) = (0, 0, RateControl::default());
        for Sender { connection, received, .. } in &self.senders {
            let stats = connection.stats();
            let of = RateControl::of(&stats);
            bytes += received.load(Ordering::Relaxed);
            wire += stats.bytes.wire_sent;
            control.dropped_packets += of.dropped_packets;
            control.dropped_bytes += of.dropped_bytes;
        }
        self.tasks.abort_all();
        for Sender { connection, endpoint, .. } in self.senders {
            connection.close(DONE, "");
            session::close(&endpoint).await;
        }
        Summary { rate_control: Some(control), ..Summary::new(bytes, lasted.as_secs_f64(), wire) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(seconds: u64, received: &[u64], dropped: u64) -> Count {
        let at = Duration::from_secs(seconds);
        Count { at, received: received.to_vec(), dropped, offered: 100 * seconds }
    }

    #[test]
    fn shares_count_from_one_sample_to_the_next() {
        let shares = Shares::between(&count(4, &[1_000_000], 2), &count(6, &[2_250_000, 1_250_000], 7));
        assert_eq!((shares.goodput_bps.clone(), shares.sum_bps, shares.jain), (vec![5e6, 5e6], 1e7, 1.0));
        assert_eq!((shares.bar(), shares.dropped_packets), ("11111111112222222222".to_owned(), 5));
        assert_eq!(shares.words(), "5.0 + 5.0 = 10.0 Mbit/s, Jain 1.00, dropped 5 of 200 packets");
        assert!((jain(&[3.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(jain(&[]), 1.0);
        assert_eq!(link().rtt(), Duration::from_millis(60));
    }
}
