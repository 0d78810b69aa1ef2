//! `tidewire receive`: prints a link and keeps the files and folders that are sent to it, until Ctrl-C.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::{CloseReason, Connection, Endpoint};
use tidewire_units::parse_size;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::listen::{self, Listen, Naming};
use crate::progress::Meter;
use crate::session::{self, CLOSE_WAIT, CUT_OFF, DONE, SURPLUS};
use crate::ssh::FarVerb;
use crate::ssh::detach::{Detach, Vigil};
use crate::watch::WatchArgs;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::unless_interrupted;
use tidewire_command::options::{Coding, Output};
use tidewire_command::report::{Console, Event, Role, Summary};
use tidewire_transfer::{self as transfer, Destination, Existing, Limits, Outcome};

use super::send::{cut_off, judge};

/// Arguments of `receive`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder to receive into. If it is missing, it is created with mode 0700; its parent folder must exist
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    listen: Listen,
    #[command(flatten)]
    naming: Naming,
    /// Accept at most this many bytes of files in all, then refuse more [example: 10GB]. The default is no
    /// limit
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_bytes: Option<u64>,
    /// Accept at most this many files and folders in all, then refuse more. The default is no limit
    #[arg(long, value_name = "N")]
    max_files: Option<u64>,
    /// What to do if another file has the name of an arriving one
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    existing: OnExisting,
    /// Make the symbolic links that senders keep (send --links keep), if they lead nowhere outside the folder
    #[arg(long)]
    links: bool,
    /// Exit after one transfer, with the exit code of that transfer
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    detach: Detach,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    coding: Coding,
}

/// The choices of `--existing`.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum OnExisting {
    /// Replace what the same sender delivered here before, and refuse the file otherwise
    #[default]
    Update,
    /// Replace the other file
    Replace,
    /// Refuse the file
    Keep,
    /// Give the arriving file another name, as in `name (2).txt`
    Rename,
}

impl From<OnExisting> for Existing {
    fn from(chosen: OnExisting) -> Self {
        match chosen {
            OnExisting::Update => Self::Update,
            OnExisting::Replace => Self::Replace,
            OnExisting::Keep => Self::Keep,
            OnExisting::Rename => Self::Rename,
        }
    }
}

/// Receives until Ctrl-C, or one transfer with `--once`.
///
/// # Errors
/// [`Exit::LocalIo`] if the folder cannot be created or opened, or the port is in use. With `--once` also the
/// errors of the transfer.
pub async fn run(mut args: Args, console: Console) -> Result<(), Failure> {
    if args.detach.is_wanted() {
        return args.detach.start();
    }
    args.detach.prepare(&mut args.listen, &mut args.naming)?;
    let destination = Destination::open(&args.dir).map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::NotFound => "; create its parent folder first",
            _ => "; name another folder with --dir",
        };
        Failure::message(Exit::LocalIo, format_args!("cannot receive into `{}`: {error}{advice}", args.dir.display()))
    })?;
    let limits = Limits { bytes: args.max_bytes, files: args.max_files };
    let destination = Arc::new(destination.limited(limits).with_existing(args.existing.into()).with_links(args.links));
    let config = args.detach.config(args.coding.config(None).or_exit(Exit::Usage)?)?;
    let (config, _watching) = args.watch.begin("receive", config, &console)?;
    let (endpoint, links) = listen::open(args.listen.listen, &args.naming, &config, &console).await?;
    if args.detach.is_detached() {
        args.detach.hand_over(FarVerb::Receive, links.first())?;
    } else {
        let into = args.dir.display();
        let what =
            |link: &str| format!("receiving into `{into}`; on the other machine: tidewire send PATH... '{link}'");
        listen::announce(&links, what, &console);
    }
    let until = Until { once: args.once, vigil: args.detach.vigil(&config) };
    let (stop, mut transfers) = (watch::Sender::new(()), JoinSet::new());
    let accepting = serve(&endpoint, &destination, until, &console, (&stop, &mut transfers));
    let ended = unless_interrupted(listen::guarding(&endpoint, &args.naming, &console, accepting)).await;
    // Transfers that are cut off here leave a part that a later transfer can resume. They tell nothing more
    // before the error is told, and their summaries come last.
    drop(stop);
    let mut summaries = Vec::new();
    while let Some(cut_off) = transfers.join_next().await {
        summaries.extend(cut_off.ok().and_then(|ended| ended.untold));
    }
    let ended = console.tell(ended);
    summaries.iter().for_each(|summary| console.summary(summary));
    session::close(&endpoint).await;
    ended
}

/// When to stop accepting connections.
struct Until {
    /// After one transfer.
    once: bool,
    vigil: Vigil,
}

/// A connection that is over.
struct Ended {
    transfer: Result<(), Failure>,
    /// The summary of a transfer that was stopped. Others have told theirs.
    untold: Option<Summary>,
    reason: CloseReason,
}

impl Until {
    /// Whether this was the last connection. `others` says whether another one is open.
    fn is_last(&mut self, ended: &Ended, others: bool) -> bool {
        if is_surplus(&ended.reason) {
            return false;
        }
        let cut_off =
            ended.transfer.as_ref().is_err_and(|failure| matches!(failure.exit, Exit::Interrupted | Exit::Unreachable));
        if self.vigil.is_kept() {
            return self.vigil.ended(&ended.reason) || !cut_off;
        }
        // A killed sender may have connected again before its first connection timed out. That timeout must
        // not end `--once` while the second connection is served.
        let superseded = ended.transfer.as_ref().is_err_and(|failure| failure.exit == Exit::Interrupted) && others;
        self.once && !superseded
    }
}

/// Whether the sender reached this end by another address too, and goes on over that connection.
fn is_surplus(reason: &CloseReason) -> bool {
    matches!(reason, CloseReason::Peer { code: SURPLUS, .. })
}

/// Accepts connections while it is polled, or until the last one is over. Their transfers run until `stop` is
/// dropped.
async fn serve(
    endpoint: &Endpoint,
    destination: &Arc<Destination>,
    mut until: Until,
    console: &Console,
    (stop, transfers): (&watch::Sender<()>, &mut JoinSet<Ended>),
) -> Result<(), Failure> {
    loop {
        let serving = !transfers.is_empty();
        tokio::select! {
            accepted = endpoint.accept() => {
                let connection = accepted.or_exit(Exit::Other)?;
                transfers.spawn(receive(connection, destination.clone(), console.clone(), stop.subscribe()));
            }
            Some(ended) = transfers.join_next() => {
                let ended = ended.or_exit(Exit::Other)?;
                if until.is_last(&ended, !transfers.is_empty()) {
                    return ended.transfer;
                }
            }
            () = until.vigil.expired(serving) => return Err(Failure::reported(Exit::Unreachable)),
        }
    }
}

/// Serves one connection, from its first stream to its close.
async fn receive(
    connection: Connection,
    destination: Arc<Destination>,
    console: Console,
    mut stopped: watch::Receiver<()>,
) -> Ended {
    let (transfer, untold) = transfer(&connection, &destination, &console, &mut stopped).await;
    Ended { transfer, untold, reason: connection.closed().await }
}

async fn transfer(
    connection: &Connection,
    destination: &Destination,
    console: &Console,
    stopped: &mut watch::Receiver<()>,
) -> (Result<(), Failure>, Option<Summary>) {
    let begun = Instant::now();
    console.event(&Event::Connected { peer: connection.remote().to_string() });
    let received = tokio::select! {
        received = take(connection, destination, console) => Some(received),
        // Nothing is ever sent here: `changed` returns when the sender is dropped.
        _ = stopped.changed() => None,
    };
    let elapsed = begun.elapsed();
    let closed = tokio::time::timeout(Duration::ZERO, connection.closed()).await;
    if closed.is_ok_and(|reason| is_surplus(&reason)) {
        // Nothing was sent over it, and nothing is to be told.
        return (Err(Failure::reported(Exit::Unreachable)), None);
    }
    let Some(received) = received else {
        connection.close(CUT_OFF, "");
        let summary = session::transfer_summary(&connection.stats(), Role::Receiver, None, elapsed);
        return (Err(Failure::reported(Exit::Sigint)), Some(summary));
    };
    if received.is_ok() {
        // The sender closes after it has received the last answer. Closing first could cut that answer off.
        let _ = tokio::time::timeout(CLOSE_WAIT, connection.closed()).await;
    }
    connection.close(if received.is_ok() { DONE } else { CUT_OFF }, "");
    let summary = session::transfer_summary(&connection.stats(), Role::Receiver, received.as_ref().ok(), elapsed);
    (console.conclude(&summary, received.and_then(|outcome| judge(&outcome))), None)
}

/// Takes what the first stream brings, and shows progress.
async fn take(connection: &Connection, destination: &Destination, console: &Console) -> Result<Outcome, Failure> {
    let stream = connection
        .accept()
        .await
        .map_err(|_| Failure::message(Exit::Unreachable, "the sender closed the connection before it sent anything"))?;
    let peer = connection.peer_key();
    let meter = Meter::new(console, "receiving");
    let watch = |event: transfer::Event<'_>| meter.take(&event);
    let received = tokio::select! {
        outcome = transfer::receive(stream, destination, peer.as_ref(), &watch) => outcome,
        never = meter.show(|| session::sample(&connection.stats(), Role::Receiver)) => match never {},
    };
    let outcome = received.map_err(cut_off)?;
    meter.tally(&outcome);
    Ok(outcome)
}
