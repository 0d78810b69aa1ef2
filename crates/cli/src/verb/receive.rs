//! `tidewire receive`: prints a link and keeps what is sent to it, until Ctrl-C.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tidewire::{Connection, Endpoint, Secret};
use tokio::task::JoinSet;

use crate::exit::{Exit, Failure, OrExit};
use crate::link::{Link, fresh_secret, secret_from_file};
use crate::options::{Coding, Output};
use crate::progress::Meter;
use crate::report::{Console, Event};
use crate::session::{self, CLOSE_WAIT, CUT_OFF, DONE, Role, unless_interrupted};
use crate::transfer::{self, Destination};

use super::send::judge;

/// Arguments of `receive`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder to receive into
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// Address and UDP port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7700")]
    listen: SocketAddr,
    /// Host (or HOST:PORT) to print in the link, when senders reach this machine by another name
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// File with the secret (see keygen); without it each start makes a fresh one
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// End after one transfer, with its exit code
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    coding: Coding,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Receives until Ctrl-C, or once.
///
/// # Errors
/// [`Exit::LocalIo`] when the folder cannot be opened or the port not be listened on; with `--once` also those of the transfer.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let destination = Destination::open(&args.dir).map_err(|error| {
        Failure::message(Exit::LocalIo, format_args!("cannot receive into `{}`: {error}", args.dir.display()))
    })?;
    let destination = Arc::new(destination);
    let secret = match &args.key {
        Some(path) => secret_from_file(path).or_exit(Exit::Usage)?,
        None => fresh_secret().or_exit(Exit::Other)?,
    };
    let config = args.coding.config(None).or_exit(Exit::Usage)?;
    let endpoint = Endpoint::bind(args.listen, secret.clone(), config).await.map_err(|error| {
        Failure::message(Exit::LocalIo, format_args!("cannot listen on {}: {error}; try another --listen", args.listen))
    })?;
    announce(&link(&args, endpoint.local_addr(), secret)?, &args, &console);
    let ended = unless_interrupted(serve(&endpoint, &destination, args.once, &console)).await;
    session::close(&endpoint).await;
    ended
}

/// Takes connections for as long as it is polled, or one. Dropped, it drops their transfers, and these their part files.
async fn serve(
    endpoint: &Endpoint,
    destination: &Arc<Destination>,
    once: bool,
    console: &Console,
) -> Result<(), Failure> {
    let mut transfers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = endpoint.accept() => {
                let Some(connection) = accepted else { return Err(Failure::message(Exit::Other, "the socket failed")) };
                transfers.spawn(receive(connection, destination.clone(), console.clone()));
            }
            Some(ended) = transfers.join_next() => {
                let ended = ended.or_exit(Exit::Other)?;
                if once {
                    return ended;
                }
            }
        }
    }
}

/// One connection, from its first stream to its close.
async fn receive(connection: Connection, destination: Arc<Destination>, console: Console) -> Result<(), Failure> {
    let begun = Instant::now();
    console.event(&Event::Connected { peer: connection.remote().to_string() });
    let Some(stream) = connection.accept().await else {
        let failure = Failure::message(Exit::Unreachable, "the sender closed before it sent anything");
        console.error(&failure);
        return Err(Failure::reported(failure.exit));
    };
    let meter = Meter::new(&console, "receiving");
    let watch = |event: transfer::Event<'_>| meter.take(&event);
    let received = tokio::select! {
        outcome = transfer::receive(stream, &destination, &watch) => outcome,
        never = meter.show(|| session::sample(&connection.stats(), Role::Receiver)) => match never {},
    };
    let elapsed = begun.elapsed();
    if received.is_ok() {
        // The sender closes once it has the last answer; closing first could cut that off.
        let _ = tokio::time::timeout(CLOSE_WAIT, connection.closed()).await;
    }
    connection.close(if received.is_ok() { DONE } else { CUT_OFF }, "");
    let delivered = received.as_ref().map_or(0, |outcome| outcome.bytes);
    if let Ok(outcome) = &received {
        console.event(&Event::Tally { kept: outcome.kept, failed: outcome.failed });
    }
    let summary = session::summary(&connection.stats(), Role::Receiver, delivered, elapsed);
    console.conclude(&summary, received.or_exit(Exit::Unreachable).and_then(|outcome| judge(&outcome)))
}

/// Prints the link alone on stdout, so that it can be piped, and what to do with it on stderr.
fn announce(link: &Link, args: &Args, console: &Console) {
    let text = link.reveal();
    if console.json() {
        return console.event(&Event::Link { link: &text });
    }
    console
        .say(&format!("receiving into `{}`; on the other machine: tidewire send PATH... '{text}'", args.dir.display()));
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

fn link(args: &Args, listening: SocketAddr, secret: Secret) -> Result<Link, Failure> {
    if let Some(host) = &args.host {
        // The link's own grammar reads HOST and HOST:PORT, and refuses what could not be read back.
        let port =
            if host.ends_with(']') || !host.contains(':') { format!(":{}", listening.port()) } else { String::new() };
        let text = format!("tidewire://{host}{port}/#{}", *secret.reveal());
        return text.parse().or_exit(Exit::Usage);
    }
    let host = match listening.ip() {
        ip if !ip.is_unspecified() => ip,
        ip => default_route_address(ip).ok_or_else(|| {
            let wanted = "this machine has no default route: give the address that senders reach it by with --host";
            Failure::message(Exit::Usage, wanted)
        })?,
    };
    Ok(Link { host: host.to_string(), port: listening.port(), query: Vec::new(), secret })
}

/// The address that this machine sends from toward the Internet. Connecting a UDP socket asks the routing table and sends
/// nothing; the targets are documentation addresses (RFC 5737, RFC 3849).
fn default_route_address(wildcard: IpAddr) -> Option<IpAddr> {
    let target: SocketAddr = match wildcard {
        IpAddr::V4(_) => ([192, 0, 2, 1], 9).into(),
        IpAddr::V6(_) => ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9).into(),
    };
    let socket = UdpSocket::bind((wildcard, 0)).ok()?;
    socket.connect(target).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}
