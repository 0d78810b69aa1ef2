//! `tidewire live IN... LINK` and `tidewire live LINK OUT...`: live video with a deadline.

mod dialer;
mod lines;
mod place;

use std::pin::pin;
use std::time::Duration;

use tidewire::link::Link;
use tidewire::{Config, names};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::{quietly, unless_interrupted};
use tidewire_command::options::{Coding, Output};
use tidewire_command::report::Console;

use tidewire_live::{Counts, Input, Output as Outputs, Place as Local, Receiver, Sender, Side, configure, latency};

use self::dialer::Dialer;
use self::lines::{Line, tell, tell_counts};
use self::place::Place;
use crate::keys;
use crate::link::is_link;
use crate::listen::{self, Naming};
use crate::session;
use crate::watch::WatchArgs;

/// Time between two reports.
const INTERVAL: Duration = Duration::from_secs(5);
/// Most places: as many programs as a number of one byte counts, and the other end.
const MOST_PLACES: usize = 256;

/// Arguments of `live`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the datagrams come from, then where they go: udp://ADDRESS:PORT, rtp://ADDRESS:PORT (also of
    /// multicast groups), file:PATH or `-`. One end of tidewire is among them, first or
    /// last: the link that the other side printed (tidewire://...), @FILE with the link, or
    /// tidewire://ADDRESS:PORT to print a link and wait. Several inputs are several programs, which arrive at
    /// as many outputs
    // A text, because an error about an argument repeats it, and this may hold a secret.
    #[arg(value_name = "PLACE", required = true, num_args = 2..=MOST_PLACES)]
    places: Vec<String>,
    /// End when the first sender has no more
    #[arg(long)]
    once: bool,
    /// Where --max-overhead is too low for --deliver, spend it on key frames of H.264 and H.265 in MPEG-TS,
    /// and on the pictures that follow them soonest, before all others. An option of the sending end
    #[arg(long)]
    protect_key_frames: bool,
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    coding: Coding,
}

impl Args {
    /// The output. Standard output may carry the video.
    pub(super) fn console(&self) -> Console {
        let console = self.output.console();
        let plays = self.places.first().is_some_and(|place| is_link(place));
        if plays && self.places.iter().any(|place| place == "-") { console.beside_data() } else { console }
    }
}

/// Sends or plays out until the inputs end, or until Ctrl-C.
///
/// # Errors
/// [`Exit::Usage`] for wrong places, [`Exit::LocalIo`] if an input or output fails, [`Exit::Unreachable`] if
/// nothing answers at first; [`Exit::Sigint`] after Ctrl-C.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    args.naming.refuse_relayed("live has no --via, so nothing could reach this end behind a relay")?;
    let texts = args.places.clone();
    let parse = move || texts.iter().map(|text| text.parse()).collect::<Result<Vec<Place>, _>>();
    let places = quietly(apart(parse).await)?.or_exit(Exit::Usage)?;
    let ends = places.iter().filter(|place| place.local().is_none()).count();
    let locals: Vec<&Local> = places.iter().filter_map(Place::local).collect();
    let ended = match (&places[..], ends) {
        ([.., far], 1) if far.local().is_none() => send(&args, &locals, far, &console).await,
        ([far, ..], 1) if far.local().is_none() => play(&args, &locals, far, &console).await,
        _ => {
            let wanted = "exactly one place is the other end of tidewire (tidewire://...): the first at the end that \
                          plays out, the last at the end that has the input";
            Err(Failure::message(Exit::Usage, wanted))
        }
    };
    quietly(ended)
}

async fn send(args: &Args, inputs: &[&Local], far: &Place, console: &Console) -> Result<(), Failure> {
    let (config, _watching) = args.watch.begin("live", config(args, far)?, console)?;
    let places: Vec<Local> = inputs.iter().copied().cloned().collect();
    let open = |place: &Local| {
        let failed = |error| Failure::message(Exit::LocalIo, format_args!("cannot read {place}: {error}"));
        Input::open(place).map_err(failed)
    };
    let inputs = apart(move || places.iter().map(open).collect::<Result<Vec<_>, _>>()).await??;
    let way = way(args, far, &config, console, "udp://ADDRESS:PORT").await?;
    let events = console.clone();
    let started = Sender::start(inputs, args.protect_key_frames, move |event| tell(event, &events));
    let sender = started.or_exit(Exit::LocalIo)?;
    let (counts, stop) = (|| Counts::Sent(sender.counts()), || sender.stop());
    match way {
        Way::Dials(dialer) => {
            let session = async |session| sender.run(session).await;
            let told = || tell_counts(counts(), console);
            let sending = dialer.run(Side::Sends, sender.stopping(), told, || left(&sender), session);
            reporting(console, counts, stop, sending).await
        }
        Way::Listens(endpoint) => {
            let serving = async { sender.listen(&endpoint, latency(&config)).await.or_exit(Exit::Other) };
            let serving = listen::guarding(&endpoint, &args.naming, console, serving);
            let ended = reporting(console, counts, stop, serving).await;
            session::close(&endpoint).await;
            ended.and_then(|()| left(&sender))
        }
    }
}

/// A sender of which every input has failed has not done its job.
fn left(sender: &Sender) -> Result<(), Failure> {
    sender.failure().map_or(Ok(()), |failure| Err(Failure::message(Exit::LocalIo, failure)))
}

async fn play(args: &Args, outputs: &[&Local], far: &Place, console: &Console) -> Result<(), Failure> {
    let (config, _watching) = args.watch.begin("live", config(args, far)?, console)?;
    let places: Vec<Local> = outputs.iter().copied().cloned().collect();
    let output = apart(move || Outputs::open(&places)).await?.or_exit(Exit::LocalIo)?;
    let way = way(args, far, &config, console, "udp://:PORT").await?;
    let events = console.clone();
    let receiver = Receiver::new(output, move |event| tell(event, &events));
    let (counts, stop) = (|| Counts::Received(receiver.counts()), || receiver.stop());
    let failing = async { Err(Failure::new(Exit::LocalIo, receiver.failed().await)) };
    match way {
        Way::Dials(dialer) => {
            let session = async |session| receiver.run(session).await;
            let told = || tell_counts(counts(), console);
            let playing = dialer.run(Side::Receives, receiver.stopping(), told, || Ok(()), session);
            reporting(console, counts, stop, either(playing, failing)).await
        }
        Way::Listens(endpoint) => {
            let playing = async { receiver.listen(&endpoint, latency(&config), args.once).await.or_exit(Exit::Other) };
            let playing = listen::guarding(&endpoint, &args.naming, console, either(playing, failing));
            let ended = reporting(console, counts, stop, playing).await;
            session::close(&endpoint).await;
            ended
        }
    }
}

/// Runs a call that may block for long, so that Ctrl-C ends the wait for it: to resolve a name, or to open a
/// named pipe that nobody has at its other end.
async fn apart<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    unless_interrupted(async { names::apart(call).await.or_exit(Exit::Other) }).await
}

/// How this end meets the other.
enum Way {
    Dials(Box<Dialer>),
    Listens(tidewire::Endpoint),
}

/// Opens the way to the other end. A listener prints its link, and what to do with it.
async fn way(args: &Args, far: &Place, config: &Config, console: &Console, place: &str) -> Result<Way, Failure> {
    match far {
        Place::Link(link) => {
            let credentials = keys::to_open(link, args.naming.key.as_deref(), console)?;
            let (link, config, console) = (Link::clone(link), config.clone(), console.clone());
            Ok(Way::Dials(Box::new(Dialer { link, credentials, config, console })))
        }
        Place::Listen(address) => {
            let (endpoint, links) = listen::open(*address, &args.naming, config, console).await?;
            // The other end does what this one does not.
            let what = |link: &str| {
                let is_input = place.contains("//:");
                let line = if is_input { format!("{place} '{link}'") } else { format!("'{link}' {place}") };
                format!("waiting; on the other machine: tidewire live {line}")
            };
            listen::announce(&links, what, console);
            Ok(Way::Listens(endpoint))
        }
        Place::Local(place) => Err(Failure::message(Exit::Usage, format_args!("{place} is not the other end"))),
    }
}

fn config(args: &Args, far: &Place) -> Result<Config, Failure> {
    let link = if let Place::Link(link) = far { Some(&**link) } else { None };
    let config = args.coding.config(link).or_exit(Exit::Usage)?;
    configure(&config, args.coding.deliver.is_some()).or_exit(Exit::Usage)
}

async fn either(
    job: impl Future<Output = Result<(), Failure>>,
    other: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    tokio::select! {
        ended = job => ended,
        ended = other => ended,
    }
}

/// Runs `job` and reports meanwhile. Ctrl-C calls `stop`, after which the job ends by itself.
async fn reporting(
    console: &Console,
    counts: impl Fn() -> Counts,
    stop: impl Fn(),
    job: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let mut job = pin!(job);
    let ended = unless_interrupted(async {
        tokio::select! {
            ended = &mut job => Ok(ended),
            never = report(console, counts) => never,
        }
    })
    .await;
    match ended {
        Ok(ended) => ended,
        Err(interrupted) => {
            stop();
            job.await?;
            Err(interrupted)
        }
    }
}

/// Reports from time to time, for ever.
async fn report<T>(console: &Console, counts: impl Fn() -> Counts) -> T {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        console.event(&Line::from(counts()));
    }
}
