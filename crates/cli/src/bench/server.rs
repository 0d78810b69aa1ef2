//! The server of a bench: it takes an order, makes or takes the records, and reports its figures.

use std::io;
use std::time::Instant;

use tidewire::{Connection, Stream};
use tidewire_command::exit::Failure;
use tidewire_command::report::{self, Role, Summary};
use tokio::io::AsyncReadExt;

use super::client::{arrived, failure, unexpected};
use super::control::{Control, Message};
use super::records::{Taking, make_all};
use super::{Order, SoFar, clock_name, is_our_clock};

/// Runs the order of one connection. Returns the figures that this side knows. `so_far` has those of a run
/// that fails.
///
/// # Errors
/// Fails if the connection is lost, or the client is no bench.
pub async fn serve(connection: &Connection, so_far: &SoFar) -> Result<Summary, Failure> {
    run(connection, so_far).await.map_err(failure)
}

async fn run(connection: &Connection, so_far: &SoFar) -> io::Result<Summary> {
    let mut control = Control::begin(connection.accept().await?).await?;
    control.meet().await?;
    let plan = match control.reader.next().await? {
        Message::Order(plan) => plan,
        other => return Err(unexpected(&other)),
    };
    if let Err(why) = plan.check() {
        control.writer.say(&Message::Refused { why: why.into() }).await?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    so_far.begin(plan.reverse, false);
    control.writer.say(&Message::Ready { clock: clock_name() }).await?;
    let mut streams = Vec::new();
    for _ in 0..plan.parallel {
        let mut stream = connection.accept().await?;
        stream.read_u8().await?;
        streams.push(stream);
    }
    let summary = if plan.reverse {
        send(connection, streams, &plan, &mut control).await?
    } else {
        receive(connection, streams, &plan, &mut control, so_far).await?
    };
    control.writer.say(&Message::Outcome(Box::new(summary.clone()))).await?;
    Ok(summary)
}

async fn send(
    connection: &Connection,
    streams: Vec<Stream>,
    plan: &Order,
    control: &mut Control,
) -> io::Result<Summary> {
    let begun = Instant::now();
    make_all(streams, plan).await?;
    // Before that, not all losses are known.
    match control.reader.next().await? {
        Message::Arrived => {}
        other => return Err(unexpected(&other)),
    }
    let stats = connection.stats();
    Ok(report::summary(&stats, Role::Sender, stats.bytes.app_sent, begun.elapsed()))
}

async fn receive(
    connection: &Connection,
    streams: Vec<Stream>,
    plan: &Order,
    control: &mut Control,
    so_far: &SoFar,
) -> io::Result<Summary> {
    let mut taking = Taking::begin(streams, plan);
    while let Some(interval) = taking.next().await? {
        so_far.add(&interval);
        control.writer.say(&Message::Interval(interval)).await?;
    }
    Ok(arrived(connection, &taking, is_our_clock(&plan.clock)))
}
