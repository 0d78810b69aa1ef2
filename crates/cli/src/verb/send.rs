//! `tidewire send PATH... LINK`: sends files and folders to the machine that printed the link.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tidewire::link::Link;
use tidewire::{CloseReason, Connection};
use tokio::time::timeout;

use crate::budget::{Budget, LOSSES, Left};
use crate::explain::Explainer;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::unless_interrupted;
use tidewire_command::options::{Coding, Output};
use tidewire_command::report::{Console, Event, Role};

use crate::link::{self, LINK_VARIABLE};
use crate::progress::{Meter, failed};
use crate::reconnect::Attempts;
use crate::session::{self, CUT_OFF, DONE};
use crate::ssh::{self, FarVerb, Host, quote_path};
use crate::watch::WatchArgs;
use crate::way::{Reach, Way};
use tidewire_transfer::{self as transfer, Found, Links, Outcome, Scanning, TransferError, Watch, scan_with};

/// How long to try to connect again after the connection is lost. Chosen: a router or a receiver that
/// restarts is back by then.
const RETRY_TIME: Duration = Duration::from_secs(120);
/// Time between the first two attempts to connect again. Chosen: the first comes at once.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Arguments of `send`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files and folders to send, then the link (tidewire://...), @FILE with the link, or [user@]host:FOLDER,
    /// into which `tidewire receive`, started by ssh, receives them. Without any of them, TIDEWIRE_LINK is
    /// used. A file with a colon in its name needs a slash before it, as in ./a:b
    #[arg(required = true, value_name = "PATH... LINK|[USER@]HOST:FOLDER")]
    arguments: Vec<OsString>,
    /// What to do with symbolic links
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    links: OnLink,
    /// Send of each file what it has now, even if it grows meanwhile, as a log does. The same command
    /// later sends what was added
    #[arg(long)]
    growing: bool,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    coding: Coding,
}

/// The choices of `--links`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum OnLink {
    /// Report them and send the rest
    #[default]
    Skip,
    /// Send them as links, if they are relative and lead nowhere outside the named path. The receiver
    /// needs --links
    Keep,
    /// Send what they lead to, if that lies in a named path
    Follow,
}

impl From<OnLink> for Links {
    fn from(chosen: OnLink) -> Self {
        match chosen {
            OnLink::Skip => Self::Skip,
            OnLink::Keep => Self::Keep,
            OnLink::Follow => Self::Follow,
        }
    }
}

/// Sends the named files and folders.
///
/// # Errors
/// [`Exit::Usage`] for a wrong link, [`Exit::Unreachable`] if nothing answers, [`Exit::LocalIo`] if a file
/// did not arrive, [`Exit::Integrity`] if a file arrived damaged, [`Exit::Interrupted`] if the transfer was
/// cut off.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let (paths, goal) = split(args.arguments)?;
    let config = args.coding.config(goal.link()).or_exit(Exit::Usage)?;
    let scanning = Scanning { links: args.links.into(), growing: args.growing };
    let found = scan_with(&paths, scanning).or_exit(Exit::Usage)?;
    tell_left_out(&found, &console);
    if found.is_empty() {
        found.failures.iter().for_each(|failure| failed(&console, failure));
        return Err(Failure::message(
            Exit::LocalIo,
            "nothing to send: none of the named files and folders can be read",
        ));
    }
    let (config, _watching) = args.watch.begin("send", config, &console)?;
    let way = unless_interrupted(goal.way(&args.reach, &args.coding, args.links, &console)).await?;
    let mut budget = Budget::new();
    let mut attempts = Attempts::new(FIRST_PAUSE, Some(RETRY_TIME));
    let mut begun = Instant::now();
    let mut connected = unless_interrupted(way.connect(&config, &console)).await?;
    loop {
        let (endpoint, connection) = connected;
        console.event(&Event::Connected { peer: connection.remote().to_string() });
        let _explained = Explainer::begin(connection.clone(), console.clone());
        let watch = |event: transfer::Event<'_>| budget.take(&event);
        let mut sent = unless_interrupted(send_over(&connection, &found, &watch, &console, "sending")).await;
        let elapsed = begun.elapsed();
        let lost = if sent.is_err() { lost(&connection).await } else { None };
        connection.close(if sent.is_ok() { DONE } else { CUT_OFF }, "");
        let stats = connection.stats();
        session::close(&endpoint).await;
        if let Some(reason) = lost {
            let again = async {
                go_on(&mut budget, &mut attempts, &reason, &console).await?;
                attempts.until_connected(&console, || way.connect(&config, &console)).await.map_err(resumable)
            };
            match unless_interrupted(again).await {
                Ok(again) => {
                    // The summary covers one connection: its bytes, its packets and its time.
                    (connected, begun) = (again, Instant::now());
                    continue;
                }
                Err(failure) => sent = Err(failure),
            }
        }
        let summary = session::transfer_summary(&stats, Role::Sender, sent.as_ref().ok(), elapsed);
        return console.conclude(&summary, sent.and_then(|outcome| judge(&outcome)));
    }
}

/// Says once what of the files is not sent.
fn tell_left_out(found: &Found, console: &Console) {
    if found.skipped_links > 0 {
        let links = match found.skipped_links {
            1 => "1 symbolic link is".to_owned(),
            count => format!("{count} symbolic links are"),
        };
        console.say(&format!("{links} not sent; --links keep or --links follow sends what can be sent of them"));
    }
    if found.hard_links > 0 {
        let files = match found.hard_links {
            1 => "1 file has".to_owned(),
            count => format!("{count} files have"),
        };
        console.say(&format!("{files} further names (hard links); each name that is sent becomes a file of its own"));
    }
}

/// Why the connection was lost; `None` if one of the two programs closed it.
async fn lost(connection: &Connection) -> Option<CloseReason> {
    use CloseReason::{Forgotten, Hop, Idle, KeyExhausted};
    let ended = timeout(Duration::ZERO, connection.closed()).await;
    ended.ok().filter(|reason| matches!(reason, Idle | Forgotten | KeyExhausted | Hop(_)))
}

/// Waits before the next attempt to connect, unless the receiver has kept more since the last one.
///
/// # Errors
/// [`Exit::Interrupted`] if connections are lost and the receiver keeps nothing more.
async fn go_on(
    budget: &mut Budget,
    attempts: &mut Attempts,
    reason: &CloseReason,
    console: &Console,
) -> Result<(), Failure> {
    let left = budget.on_lost();
    match left {
        Left::Nothing => {
            let error = format_args!(
                "{LOSSES} connections were lost and the receiver kept nothing more ({reason}): look at its output and \
                 limits, it may be ended by what it writes"
            );
            return Err(resumable(Failure::message(Exit::Interrupted, error)));
        }
        Left::Refilled => *attempts = Attempts::new(FIRST_PAUSE, Some(RETRY_TIME)),
        Left::Some => {}
    }
    console.warn("tidewire: the connection is lost; trying to connect again");
    if left == Left::Some {
        attempts.pause().await;
    }
    Ok(())
}

fn resumable(failure: Failure) -> Failure {
    let error = format_args!("{failure}; run the same command again to resume the transfer");
    Failure::message(Exit::Interrupted, error)
}

/// Sends `found` over a new stream and shows progress. `watch` also gets each event.
pub(super) async fn send_over(
    connection: &Connection,
    found: &Found,
    watch: Watch<'_>,
    console: &Console,
    title: &str,
) -> Result<Outcome, Failure> {
    let stream = connection.open().await.or_exit(Exit::Unreachable)?;
    let meter = Meter::new(console, title);
    let shown = |event: transfer::Event<'_>| {
        meter.take(&event);
        watch(event);
    };
    tokio::select! {
        outcome = transfer::send(stream, found, &shown) => {
            let outcome = outcome.map_err(cut_off)?;
            meter.tally(&outcome);
            Ok(outcome)
        }
        never = meter.show(|| session::sample(&connection.stats(), Role::Sender)) => match never {},
    }
}

/// Describes a transfer that ended early.
pub(super) fn cut_off(error: TransferError) -> Failure {
    if error.is_cut_off() {
        let message = format_args!("{error}; run the same `send` command again to resume the transfer");
        return Failure::message(Exit::Interrupted, message);
    }
    Failure::new(Exit::Other, error)
}

/// Turns failed or damaged files into the exit code.
pub(super) fn judge(outcome: &Outcome) -> Result<(), Failure> {
    match outcome {
        Outcome { mismatch: true, .. } => Err(Failure::reported(Exit::Integrity)),
        Outcome { failed: 1.., .. } => Err(Failure::reported(Exit::LocalIo)),
        _ => Ok(()),
    }
}

/// Where the files go.
enum Goal {
    Link(Box<Link>),
    Host(Host, String),
}

impl Goal {
    /// The link, if the user gave one.
    fn link(&self) -> Option<&Link> {
        match self {
            Self::Link(link) => Some(link),
            Self::Host(..) => None,
        }
    }

    /// The way there. It starts the far end of a host, which makes the links that are kept.
    async fn way(self, reach: &Reach, coding: &Coding, links: OnLink, console: &Console) -> Result<Way, Failure> {
        match self {
            Self::Link(link) => reach.link(*link, console),
            Self::Host(host, folder) => {
                let folder = quote_path(&folder).or_exit(Exit::Usage)?;
                let links = if links == OnLink::Keep { "--links " } else { "" };
                let words = format!("{}--once {links}--dir {folder}", coding.far_words());
                reach.host(&host, FarVerb::Receive, ssh::SEND_SILENCE, &words, console).await
            }
        }
    }
}

/// Splits the arguments into the paths and the goal after them.
fn split(mut arguments: Vec<OsString>) -> Result<(Vec<PathBuf>, Goal), Failure> {
    let last = arguments.pop().unwrap_or_default();
    let text = last.to_str().unwrap_or_default();
    let goal = if link::is_link(text) {
        Goal::Link(Box::new(link::from_argument(text).or_exit(Exit::Usage)?))
    } else if let Some((host, folder)) = Host::with_path(text).or_exit(Exit::Usage)? {
        Goal::Host(host, folder)
    } else if std::env::var_os(LINK_VARIABLE).is_none() {
        let wanted = "the last argument is neither a link nor a host: give the link that `tidewire receive` printed \
             (tidewire://192.0.2.7:7700/#tws1...), @FILE, or user@host.example:FOLDER for ssh, or set TIDEWIRE_LINK";
        return Err(Failure::message(Exit::Usage, wanted));
    } else {
        arguments.push(last);
        Goal::Link(Box::new(link::given(None).or_exit(Exit::Usage)?))
    };
    if arguments.is_empty() {
        return Err(Failure::message(
            Exit::Usage,
            "no file or folder is named: write it before the link, as in `tidewire send FILE LINK`",
        ));
    }
    Ok((arguments.into_iter().map(PathBuf::from).collect(), goal))
}
