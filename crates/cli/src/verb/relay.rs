//! `tidewire relay --to LINK`: a relay between two ends, or between relays. It recodes, reads nothing, and
//! sends only to the host of LINK and to those that opened a hop, until Ctrl-C.

use std::time::Duration;

use serde::Serialize;
use tidewire::{CloseCode, CloseReason, Config, Credentials, Hop, RateControl, Relay, RelayCounts, Relaying, Report};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::{quietly, unless_interrupted};
use tidewire_command::options::Output;
use tidewire_command::report::Console;
use tidewire_units::Rate;

use crate::backend;
use crate::keys;
use crate::link;
use crate::listen::{self, Links, Listen, Naming};
use crate::session::CLOSE_WAIT;

/// Time between two reports of the state with `--json`; that of `tunnel`.
const INTERVAL: Duration = Duration::from_secs(5);
/// Interval of packets that keep idle hops alive, as for `tunnel` and `forward`.
const KEEP_ALIVE: Duration = tidewire_proto::config::KEEP_ALIVE;

/// Arguments of `relay`. Those of an end that waits behind a relay have no use here.
#[derive(Debug, clap::Args)]
#[command(mut_arg("relayed", |arg| arg.hide(true)))]
#[command(mut_arg("hop_key", |arg| arg.hide(true)))]
#[command(mut_arg("authorized_relays", |arg| arg.hide(true)))]
pub struct Args {
    /// Link of the next hop, or @FILE with it: what a listener with --relayed printed first, or what the next
    /// relay printed. Nothing is forwarded to any other host. A link with a public key needs a private key in
    /// --key
    #[arg(long, value_name = "LINK")]
    to: String,
    #[command(flatten)]
    listen: Listen,
    #[command(flatten)]
    naming: Naming,
    /// Packets sent for each that brought something new, 1 to 2. The default follows the loss p of each hop:
    /// 1/(1-p)
    #[arg(long, value_name = "R", value_parser = parse_ratio)]
    redundancy: Option<f64>,
    /// Generations kept in each direction of a path, 4 to 128
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(4..=128))]
    generations: u64,
    /// Rate control of the hops: share (the default), cubic, newreno or fixed:RATE
    #[arg(long, value_name = "NAME")]
    rate_control: Option<RateControl>,
    /// Never send faster than this rate in bits per second over one hop [example: 20mbit]
    #[arg(long, value_name = "RATE")]
    max_rate: Option<Rate>,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    /// A hop was accepted, and the next hop is being opened.
    PathOpened {
        /// The address that opened the hop.
        from: String,
    },
    /// A path is over, or was refused.
    PathOver {
        /// The address that opened the hop.
        from: String,
        /// The other end of the hop that was over first. Null if the path was refused.
        at: Option<String>,
        reason: String,
        /// Whether a neighbour says that symbols were changed on the way.
        polluted: bool,
    },
    /// The counts, every five seconds and at the end.
    Relay(State),
}

/// The counts of a relay since its start, both directions of all hops together.
#[derive(Debug, Default, Serialize)]
struct State {
    /// Paths that are open.
    paths: usize,
    /// Recoded packets sent.
    sent: u64,
    /// Recoded packets received.
    received: u64,
    /// Of these, those that brought something new.
    innovative: u64,
    /// Those that did not, and datagrams that reached no hop.
    dropped: Dropped,
    /// Paths that a neighbour closed because symbols were changed on the way. This relay is then one of the
    /// suspects.
    suspects: u64,
}

/// What was dropped, by reason.
#[derive(Debug, Default, Serialize)]
struct Dropped {
    /// Combinations of what was there already.
    redundant: u64,
    /// All coefficients are zero.
    zero: u64,
    /// Generations without room, or of another length.
    misplaced: u64,
    /// Vectors or symbols of a wrong length.
    malformed: u64,
    /// They came faster than they were passed on.
    overrun: u64,
    /// Datagrams that are no packets of this protocol.
    foreign: u64,
    /// Packets of connections that are not known, or of peers without the secret or a key.
    unknown: u64,
}

impl From<RelayCounts> for State {
    fn from(counts: RelayCounts) -> Self {
        let RelayCounts { frames, near, far, .. } = counts;
        Self {
            paths: counts.paths,
            sent: frames.sent,
            received: frames.received,
            innovative: frames.innovative,
            dropped: Dropped {
                redundant: frames.redundant,
                zero: frames.zero,
                misplaced: frames.misplaced,
                malformed: frames.malformed,
                overrun: frames.overrun,
                foreign: near.malformed + far.malformed,
                unknown: near.unknown + near.strangers + far.unknown + far.strangers,
            },
            suspects: counts.polluted,
        }
    }
}

/// Relays until Ctrl-C.
///
/// # Errors
/// [`Exit::Usage`] for a wrong link or key file, [`Exit::LocalIo`] if the port is in use,
/// [`Exit::Unreachable`] if the next host has no address; [`Exit::Sigint`] after Ctrl-C.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    args.naming.refuse_relayed("a relay always waits for hops")?;
    args.naming.refuse_threads("one thread moves the datagrams of a relay")?;
    let next = link::from_argument(&args.to).or_exit(Exit::Usage)?;
    let (credentials, peer) = args.naming.credentials(&console)?;
    let onward = match (next.peer.key(), &credentials) {
        // One key pair serves both sides of a relay.
        (Some(_), Credentials::Key(_)) => credentials.clone(),
        _ => keys::to_open(&next, args.naming.key.as_deref(), &console)?,
    };
    let found = quietly(unless_interrupted(link::addresses(&next, "the link of the next hop")).await)?;
    let address = found.first().copied().ok_or_else(|| Failure::message(Exit::Unreachable, "no next hop"))?;
    let hop = Hop { address, credentials: onward, peer: next.peer.key().copied() };
    let (address, config) = (listen::of_this_machine(args.listen.listen, &console), config(&args)?);
    backend::warn_of_relays(&console);
    let relay = Relay::bind(address, credentials, hop, &config).map_err(|error| {
        Failure::message(Exit::LocalIo, format_args!("cannot listen on {address}: {error}; try another --listen"))
    })?;
    let links = Links::to(args.naming.host.as_deref(), relay.local_addr(), &peer)?;
    let (host, port) = (&next.host, next.port);
    let what =
        |link: &str| format!("relaying to {host}:{port}; add this to the command of the other end: --via '{link}'");
    listen::announce(&links, what, &console);
    let ended = unless_interrupted(listen::guarding(&relay, &args.naming, &console, report(&relay, &console))).await;
    let ended = console.tell(quietly(ended));
    // A neighbour that does not answer must not delay the end.
    let _ = tokio::time::timeout(CLOSE_WAIT, relay.close()).await;
    tell(&relay, &console);
    ended
}

/// The settings of the hops.
fn config(args: &Args) -> Result<Config, Failure> {
    let mut relaying = Relaying::default();
    (relaying.redundancy, relaying.generations) = (args.redundancy, args.generations);
    let mut config = args.naming.limits(&Config::default())?.to_builder().keep_alive(Some(KEEP_ALIVE));
    if let Some(control) = args.rate_control {
        config = config.rate_control(control);
    }
    if let Some(rate) = args.max_rate {
        config = config.max_rate(Some(rate.bits_per_second()));
    }
    config.relaying(Some(relaying)).build().or_exit(Exit::Usage)
}

/// Reports what happens, and the counts from time to time, for ever.
async fn report(relay: &Relay, console: &Console) -> Result<(), Failure> {
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        tokio::select! {
            report = relay.report() => name(&report.or_exit(Exit::Other)?, console),
            _ = ticks.tick() => console.event(&Event::Relay(relay.counts().into())),
        }
    }
}

/// Reports what happened to a path.
fn name(report: &Report, console: &Console) {
    let event = match report {
        Report::Opened { from } => {
            console.say(&format!("{from} opened a hop"));
            Event::PathOpened { from: from.to_string() }
        }
        Report::Over { from, at, reason } => {
            console.say(&format!("the path of {from} is over: its hop to {at}: {reason}"));
            let polluted = matches!(reason, CloseReason::Peer { code: CloseCode::Polluted, .. });
            Event::PathOver { from: from.to_string(), at: Some(at.to_string()), reason: reason.to_string(), polluted }
        }
        Report::NoRoom { from } => {
            let reason = "there is no room for another path".to_owned();
            console.warn(&format!("{from} was refused: {reason}"));
            Event::PathOver { from: from.to_string(), at: None, reason, polluted: false }
        }
        _ => return,
    };
    console.event(&event);
}

/// Reports the counts at the end.
fn tell(relay: &Relay, console: &Console) {
    let state = State::from(relay.counts());
    console.say(&format!(
        "{} recoded packets came, {} of them with something new; {} were sent",
        state.received, state.innovative, state.sent
    ));
    console.event(&Event::Relay(state));
}

/// Parses the packets for each row.
fn parse_ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if (1.0..=2.0).contains(&ratio) => Ok(ratio),
        _ => {
            Err("must be a number from 1 to 2, as 1.25: fewer than one packet for each that came would lose data"
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redundancy_below_one_is_refused_with_the_range() {
        for bad in ["0", "0.99", "2.01", "NaN", "", "1,5"] {
            assert!(parse_ratio(bad).is_err_and(|wrong| wrong.contains("from 1 to 2")), "{bad}");
        }
        assert_eq!(["1", "1.25", "2"].map(parse_ratio), [Ok(1.0), Ok(1.25), Ok(2.0)]);
    }
}
