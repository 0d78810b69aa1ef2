//! The client of a bench: it sends the order, makes or takes the records, and joins the results of both
//! sides.

use std::io;

use serde::Serialize;
use tidewire::{Connection, Stream};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::{self, Console, RateControl, Role, Summary, rate};
use tokio::io::AsyncWriteExt;

use super::control::{Control, Message};
use super::records::{Taking, make_all};
use super::{Interval, LEAST_INTERVAL, Order, SoFar, is_our_clock};

/// Runs the order. Symbols, delay and records of the summary come from the side where records arrive, and
/// packets, losses and wire bytes from the other. `so_far` has the figures of a run that fails.
///
/// # Errors
/// [`Exit::Usage`] if the server refuses the order, [`Exit::Unreachable`] if the connection is lost,
/// [`Exit::Other`] if the peer is no bench.
pub async fn run(connection: &Connection, plan: &Order, so_far: &SoFar, console: &Console) -> Result<Summary, Failure> {
    so_far.begin(!plan.reverse, true);
    let (mut control, same_clock) = agree(connection, plan).await?;
    let streams = open(connection, plan).await.or_exit(Exit::Unreachable)?;
    let shown = |interval: &Interval| {
        so_far.add(interval);
        show(interval, console);
    };
    if plan.reverse {
        download(connection, streams, plan, &mut control, same_clock, shown).await.map_err(failure)
    } else {
        upload(connection, streams, plan, &mut control, shown).await.map_err(failure)
    }
}

/// Sends the order. Returns whether the server's clock is ours.
async fn agree(connection: &Connection, plan: &Order) -> Result<(Control, bool), Failure> {
    let meet = async {
        let mut control = Control::begin(connection.open().await?).await?;
        // A peer that is no bench may have stopped reading. Its first line tells that.
        let told = control.writer.say(&Message::Order(plan.clone())).await;
        control.meet().await?;
        told?;
        let answer = control.reader.next().await?;
        Ok((control, answer))
    };
    match meet.await.map_err(failure)? {
        (control, Message::Ready { clock }) => Ok((control, is_our_clock(&clock))),
        (_, Message::Refused { why }) => Err(Failure::message(Exit::Usage, format_args!("the server refuses: {why}"))),
        (_, other) => Err(failure(unexpected(&other))),
    }
}

/// Opens the streams for the records. The peer learns of each by its first byte.
async fn open(connection: &Connection, plan: &Order) -> io::Result<Vec<Stream>> {
    let mut streams = Vec::new();
    for _ in 0..plan.parallel {
        let mut stream = connection.open().await?;
        stream.write_u8(0).await?;
        streams.push(stream);
    }
    Ok(streams)
}

async fn upload(
    connection: &Connection,
    streams: Vec<Stream>,
    plan: &Order,
    control: &mut Control,
    shown: impl Fn(&Interval),
) -> io::Result<Summary> {
    let outcome = async {
        loop {
            match control.reader.next().await? {
                Message::Interval(interval) => {
                    let rate_control = Some(RateControl::of(&connection.stats()));
                    shown(&Interval { rate_control, ..interval });
                }
                Message::Outcome(arrived) => return Ok(*arrived),
                other => return Err(unexpected(&other)),
            }
        }
    };
    let ((), arrived) = tokio::try_join!(make_all(streams, plan), outcome)?;
    let sent = report::summary(&connection.stats(), Role::Sender, arrived.bytes, std::time::Duration::ZERO);
    Ok(join(sent, arrived))
}

async fn download(
    connection: &Connection,
    streams: Vec<Stream>,
    plan: &Order,
    control: &mut Control,
    same_clock: bool,
    shown: impl Fn(&Interval),
) -> io::Result<Summary> {
    let mut taking = Taking::begin(streams, plan);
    while let Some(interval) = taking.next().await? {
        shown(&interval);
    }
    control.writer.say(&Message::Arrived).await?;
    let sent = match control.reader.next().await? {
        Message::Outcome(sent) => *sent,
        other => return Err(unexpected(&other)),
    };
    Ok(join(sent, arrived(connection, &taking, same_clock)))
}

/// The figures that the side where the records arrived knows.
pub(super) fn arrived(connection: &Connection, taking: &Taking, same_clock: bool) -> Summary {
    let (elapsed, records) = taking.end(same_clock);
    let bytes = records.delivered * u64::from(records.bytes_each);
    let summary = report::summary(&connection.stats(), Role::Receiver, bytes, elapsed);
    Summary { records: Some(records), ..summary }
}

/// Takes each figure from the side that knows it.
fn join(sent: Summary, arrived: Summary) -> Summary {
    let Summary { symbols, delay_ms, reordering, records, .. } = arrived;
    let Summary { rtt_ms, loss, rate_control, packets, .. } = sent;
    // Only the listening end counts moves, in whichever direction the data went.
    let moves = sent.moves.or(arrived.moves);
    Summary {
        rtt_ms,
        loss,
        rate_control,
        packets,
        symbols,
        delay_ms,
        reordering,
        moves,
        records,
        ..Summary::new(arrived.bytes, arrived.seconds, sent.wire_bytes)
    }
}

/// The event of a running bench.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// Data that arrived in an interval.
    Interval(&'a Interval),
}

fn show(interval: &Interval, console: &Console) {
    console.event(&Event::Interval(interval));
    let Interval { from_seconds, to_seconds, goodput_bps, record_delay_ms: delay, .. } = interval;
    if to_seconds - from_seconds < LEAST_INTERVAL.as_secs_f64() {
        // Data of the last round trip alone gives no rate.
        return;
    }
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1}"));
    let state = interval.rate_control.as_ref().map_or("", |control| &control.state);
    let line = format!(
        "{from_seconds:6.2}-{to_seconds:<6.2} s {:>12}   delay p50 {}, p95 {}, p99 {} ms   {state}",
        rate(*goodput_bps),
        ms(delay.p50),
        ms(delay.p95),
        ms(delay.p99)
    );
    console.say(line.trim_end());
}

pub(super) fn unexpected(message: &Message) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the other side said {message:?} out of turn"))
}

/// A wrong message is the fault of the peer, everything else that of the path.
pub(super) fn failure(error: io::Error) -> Failure {
    let exit = if error.kind() == io::ErrorKind::InvalidData { Exit::Other } else { Exit::Unreachable };
    Failure::new(exit, error)
}
