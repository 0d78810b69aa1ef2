//! Connects the verbs with the transport: opens and closes connections, and turns statistics into reports.
//! Each verb that uses a connection calls it.

use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::time::Duration;

use tidewire::link::Link;
use tidewire::{CloseCode, Config, ConnectError, Connection, Credentials, Endpoint, PublicKey, Stats};
use tidewire_lab::distribution::{Distribution, milliseconds};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::backend;
use crate::exit::{Exit, Failure, OrExit};
use crate::progress::Sample;
use crate::report::{Console, Delay, Packets, RateControl, Reordering, Rtt, Summary, Symbols};
use crate::via::Through;
use tidewire_transfer::Outcome;

/// Close code of a finished job.
pub const DONE: CloseCode = CloseCode::Done;
/// Close code after Ctrl-C or an error: the first code that the protocol leaves to applications.
pub const CUT_OFF: CloseCode = CloseCode::Application(256);

/// Close code of a connection whose twin, over another address, was established first.
pub const SURPLUS: CloseCode = CloseCode::Application(257);

/// How long to wait for a peer to close, or to hear that this end closes. Chosen: three round trips of the
/// slowest satellite link.
pub const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// Time without an answer after which the user is told what may be wrong. Chosen: longer than nearly every
/// handshake that succeeds (row H1 of `docs/survival.md`), and shorter than most people wait.
const SILENCE_NAMED: Duration = Duration::from_secs(5);

/// The direction of the data, seen from this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This end sends the data.
    Sender,
    /// This end receives the data.
    Receiver,
    /// Both ends send data.
    Both,
}

impl Role {
    fn sends(self) -> bool {
        self != Self::Receiver
    }

    fn receives(self) -> bool {
        self != Self::Sender
    }
}

/// Connects to the other end of a path with relays.
///
/// # Errors
/// [`Exit::Usage`] if choices of `config` have no use over relays, [`Exit::Unreachable`] if the relay or the
/// other end does not answer.
async fn connect_through(
    through: &Through,
    link: &Link,
    credentials: &Credentials,
    config: &Config,
    console: &Console,
) -> Result<(Endpoint, Connection), Failure> {
    backend::warn_of_relays(console);
    let endpoint = through.open(credentials.clone(), config)?;
    let (host, port) = (&through.link().host, through.link().port);
    let patience = config.handshake_timeout().as_secs();
    let connected = naming_silence(endpoint.connect_via(link.peer.key()), || {
        console.warn(&format!(
            "no answer through the relay {host}:{port} yet: the relay, or the other side behind it, cannot be \
             reached; trying for {patience} s"
        ));
    })
    .await;
    connected.map(|connection| (endpoint, connection)).map_err(|error| through.explain(error))
}

/// Connects to the host of `link` with `credentials` (from [`crate::keys::to_open`]), and tries each of its
/// addresses. With `through`, connects through that relay, and the host of `link` has no use.
///
/// # Errors
/// [`Exit::Unreachable`] if the name has no address or nothing answers; [`Exit::Usage`] if choices of
/// `config` have no use over relays.
pub async fn connect(
    link: &Link,
    through: Option<&Through>,
    credentials: &Credentials,
    config: Config,
    console: &Console,
) -> Result<(Endpoint, Connection), Failure> {
    match through {
        Some(through) => connect_through(through, link, credentials, &config, console).await,
        None => connect_in_turn(&addresses(link)?, link, credentials, &config, console).await,
    }
}

/// The addresses of the host of `link`, at least one.
///
/// # Errors
/// [`Exit::Unreachable`] if the name has no address.
pub fn addresses(link: &Link) -> Result<Vec<SocketAddr>, Failure> {
    let no_address = |why: &dyn std::fmt::Display| {
        Failure::message(Exit::Unreachable, format_args!("{why}; check the host in the link"))
    };
    match link.resolve() {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        Ok(_) => Err(no_address(&format_args!("`{}` has no address", link.host))),
        Err(error) => Err(no_address(&format_args!("cannot find an address of `{}`: {error}", link.host))),
    }
}

/// Connects to the first of `addresses` that answers. The listener is the one of `link`.
///
/// # Errors
/// [`Exit::Unreachable`] if nothing answers.
pub async fn connect_in_turn(
    addresses: &[SocketAddr],
    link: &Link,
    credentials: &Credentials,
    config: &Config,
    console: &Console,
) -> Result<(Endpoint, Connection), Failure> {
    let mut last = Failure::message(Exit::Unreachable, format_args!("`{}` has no address", link.host));
    for &address in addresses {
        match connect_to(address, credentials.clone(), link.peer.key(), config.clone(), console).await {
            Ok(connected) => return Ok(connected),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

/// Connects over each of `links` at once, which lead to one listener by different addresses, and keeps the
/// connection that is established first.
///
/// # Errors
/// [`Exit::Unreachable`] if nothing answers at any of them.
pub async fn connect_any(
    links: &[Link],
    credentials: &Credentials,
    config: &Config,
    console: &Console,
) -> Result<(Endpoint, Connection), Failure> {
    if let [link] = links {
        return connect(link, None, credentials, config.clone(), console).await;
    }
    let mut attempts = JoinSet::new();
    for link in links {
        let (link, credentials) = (link.clone(), credentials.clone());
        let (config, console) = (config.clone(), console.clone());
        attempts.spawn(async move { connect(&link, None, &credentials, config, &console).await });
    }
    let mut last = Failure::message(Exit::Unreachable, "no address to connect to");
    while let Some(ended) = attempts.join_next().await {
        match ended.or_exit(Exit::Other)? {
            Ok(connected) => {
                attempts.abort_all();
                while let Some(ended) = attempts.join_next().await {
                    if let Ok(Ok((endpoint, connection))) = ended {
                        connection.close(SURPLUS, "");
                        tokio::spawn(async move { close(&endpoint).await });
                    }
                }
                return Ok(connected);
            }
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

/// Connects to one address from a new local port. `peer` is the public key of the listener, if it has one.
///
/// # Errors
/// [`Exit::Unreachable`] if nothing answers.
pub async fn connect_to(
    address: SocketAddr,
    credentials: Credentials,
    peer: Option<&PublicKey>,
    config: Config,
    console: &Console,
) -> Result<(Endpoint, Connection), Failure> {
    let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let own = match &credentials {
        Credentials::Key(own) => Some(own.private.public()),
        _ => None,
    };
    let patience = config.handshake_timeout().as_secs();
    let endpoint = backend::bind(any, credentials, config, NonZeroUsize::MIN, console).or_exit(Exit::Other)?;
    let connecting = async {
        match peer {
            Some(peer) => endpoint.connect_to(address, peer).await,
            None => endpoint.connect(address).await,
        }
    };
    // A listener does not answer peers without the secret, so the cause cannot be told from here.
    let secret = if own.is_some() { "key" } else { "secret" };
    let connected = naming_silence(connecting, || {
        console.warn(&format!(
            "no answer from {address} yet: the {secret} or the port is wrong, or UDP is blocked on the path; trying for {patience} s"
        ));
    })
    .await;
    match connected {
        Ok(connection) => Ok((endpoint, connection)),
        Err(ConnectError::NoAnswer) => Err(match own {
            Some(own) => Failure::message(
                Exit::Unreachable,
                format_args!(
                    "no answer: wrong host, port or key, or the other side's --authorized-keys lacks ours, {own}"
                ),
            ),
            None => Failure::message(Exit::Unreachable, "no answer: wrong host, port or secret"),
        }),
        Err(error) => Err(Failure::new(Exit::Unreachable, error)),
    }
}

/// Waits for `connecting`, and calls `name` once if it takes longer than [`SILENCE_NAMED`].
async fn naming_silence<T>(connecting: impl Future<Output = T>, name: impl FnOnce()) -> T {
    let mut connecting = std::pin::pin!(connecting);
    if let Ok(connected) = tokio::time::timeout(SILENCE_NAMED, &mut connecting).await {
        return connected;
    }
    name();
    connecting.await
}

/// Closes an endpoint and all its connections, and tells the peers. A peer that does not answer delays this
/// by at most [`CLOSE_WAIT`].
pub async fn close(endpoint: &Endpoint) {
    let _ = tokio::time::timeout(CLOSE_WAIT, endpoint.close()).await;
}

/// Runs `job` until it ends, or until Ctrl-C or a request to terminate, which drops it. A request that came
/// after the first call of this function counts for all later ones, so none is lost between two jobs.
///
/// # Errors
/// The failure of the job, or [`Exit::Sigint`].
pub async fn unless_interrupted<T>(job: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut interrupted = INTERRUPTED.get_or_init(heed_interrupts).clone();
    let interrupted = async move {
        if interrupted.wait_for(|interrupted| *interrupted).await.is_err() {
            // Without handlers, the signals end the process anyway.
            std::future::pending().await
        }
    };
    tokio::select! {
        ended = job => ended,
        () = interrupted => Err(Failure::message(Exit::Sigint, "interrupted")),
    }
}

/// Whether this process was asked to end.
static INTERRUPTED: OnceLock<watch::Receiver<bool>> = OnceLock::new();

/// Begins to listen to Ctrl-C and to requests to terminate.
fn heed_interrupts() -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    let requested = requested_to_end();
    tokio::spawn(async move {
        if requested.await.is_some() {
            tell.send_replace(true);
        }
    });
    told
}

/// The same for a job that a hang-up ends too. The system's own reaction to it would leave the peer without
/// a CLOSE.
///
/// # Errors
/// The failure of the job, or [`Exit::Sigint`].
pub async fn unless_hung_up<T>(job: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        ended = unless_interrupted(job) => ended,
        () = hung_up() => Err(Failure::message(Exit::Sigint, "interrupted by a hang-up")),
    }
}

/// For a job that only Ctrl-C ends: Ctrl-C then needs no message, since the exit code tells it.
///
/// # Errors
/// The failure of `ended`; [`Exit::Sigint`] without a message.
pub fn quietly(ended: Result<(), Failure>) -> Result<(), Failure> {
    ended.map_err(|failure| if failure.exit == Exit::Sigint { Failure::reported(Exit::Sigint) } else { failure })
}

/// Registers for Ctrl-C and requests to terminate, and waits for one. `None` if the system refuses.
#[cfg(unix)]
fn requested_to_end() -> impl Future<Output = Option<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return None };
        tokio::select! {
            received = interrupt.recv() => received,
            received = terminate.recv() => received,
        }
    }
}

#[cfg(not(unix))]
async fn requested_to_end() -> Option<()> {
    tokio::signal::ctrl_c().await.ok()
}

/// Waits for a hang-up of the terminal, or of the program that reads this one.
async fn hung_up() {
    #[cfg(unix)]
    if !ignores_hang_ups()
        && let Ok(mut hang_up) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())
    {
        hang_up.recv().await;
        return;
    }
    std::future::pending().await
}

/// Whether this process was started to ignore hang-ups, as nohup(1) does. Only Linux tells.
#[cfg(unix)]
fn ignores_hang_ups() -> bool {
    // A mask in hexadecimal digits, with signal 1, SIGHUP, as its lowest bit (proc_pid_status(5)).
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Returns the in-order delays of the symbols delivered at this end.
pub fn delays(stats: &Stats) -> Distribution {
    Distribution::new(stats.delay.buckets(), stats.delay.mean(), stats.delay.max())
}

/// Returns the figures of a connection that progress shows.
pub fn sample(stats: &Stats, role: Role) -> Sample {
    Sample {
        rtt_ms: known(stats.rtt.mean),
        loss: role.sends().then_some(stats.loss.rate),
        repaired: role.receives().then_some(stats.symbols.repaired),
        wire_bytes: wire_bytes(stats, role),
    }
}

/// Makes the summary of a job that delivered `bytes` in `elapsed`.
pub fn summary(stats: &Stats, role: Role, bytes: u64, elapsed: Duration) -> Summary {
    let Stats { packets, symbols, .. } = stats;
    Summary {
        rtt_ms: Rtt { min: known(stats.rtt.least), mean: known(stats.rtt.mean) },
        loss: role.sends().then_some(stats.loss.rate),
        rate_control: role.sends().then(|| RateControl::of(stats)),
        packets: Packets {
            sent: packets.sent,
            source: packets.source,
            repair: packets.repair,
            feedback_repair: packets.feedback_repair,
            received: packets.received,
            redundant: packets.redundant,
        },
        symbols: Symbols {
            delivered: symbols.delivered,
            direct: symbols.direct,
            repaired: symbols.repaired,
            resent: symbols.resent,
            expired: symbols.expired,
        },
        // A sender receives only answers, and their delay and order say nothing about the job.
        reordering: role.receives().then_some(Reordering {
            packets: packets.reordered,
            of: packets.received,
            depth: packets.reordering_depth,
        }),
        moves: (stats.moves > 0).then_some(stats.moves),
        delay_ms: if role.receives() { Delay::from(&delays(stats)) } else { Delay::default() },
        ..Summary::new(bytes, elapsed.as_secs_f64(), wire_bytes(stats, role))
    }
}

/// Makes the summary of a transfer. `outcome` is `None` if the transfer was cut off. Rates and overhead refer
/// to the bytes that this connection moved.
pub fn transfer_summary(stats: &Stats, role: Role, outcome: Option<&Outcome>, elapsed: Duration) -> Summary {
    let (moved, resumed) = outcome.map_or((0, 0), |outcome| (outcome.bytes - outcome.resumed, outcome.resumed));
    Summary { resumed_bytes: Some(resumed), ..summary(stats, role, moved, elapsed) }
}

fn wire_bytes(stats: &Stats, role: Role) -> u64 {
    match role {
        Role::Sender => stats.bytes.wire_sent,
        Role::Receiver => stats.bytes.wire_received,
        Role::Both => stats.bytes.wire_sent + stats.bytes.wire_received,
    }
}

/// Returns a round-trip time in milliseconds, if one was measured.
fn known(rtt: Duration) -> Option<f64> {
    (!rtt.is_zero()).then(|| milliseconds(rtt))
}
