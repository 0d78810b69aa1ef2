//! Connects the verbs with the transport: opens and closes connections.
//! Each verb that uses a connection calls it.

use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use tidewire::link::Link;
use tidewire::{
    CloseCode, Config, ConnectError, Connection, Credentials, Endpoint, PublicKey, SendFailure, Stats, names,
};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::{self, Console, Role, Summary};

use crate::backend;
#[cfg(target_os = "linux")]
use crate::hearsay;
use crate::link;
use crate::progress::Sample;
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
    let (host, port) = (&through.link().host, through.link().port);
    let patience = config.handshake_timeout().as_secs();
    let attempt = |address| async move {
        let endpoint = through.open(address, credentials.clone(), config)?;
        let connected = endpoint.connect_via(link.peer.key()).await;
        connected.map(|connection| (endpoint, connection)).map_err(|error| through.explain(error))
    };
    let connecting = race(link::addresses(through.link(), "the link of the next hop").await?, names::STAGGER, attempt);
    naming_silence(connecting, || {
        console.warn(&format!(
            "no answer through the relay {host}:{port} yet: the relay, or the other side behind it, cannot be \
             reached; trying for {patience} s"
        ));
    })
    .await
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
        None => {
            let addresses = link::addresses(link, "the link").await?;
            connect_first(&addresses, link.peer.key(), credentials, &config, console).await
        }
    }
}

/// Connects to the first of `addresses` that answers (RFC 8305), each tried from a new local port. The next
/// one is tried beside those that have not answered yet. `peer` is the public key of the listener, if it has
/// one.
///
/// # Errors
/// [`Exit::Unreachable`] if nothing answers.
pub async fn connect_first(
    addresses: &[SocketAddr],
    peer: Option<&PublicKey>,
    credentials: &Credentials,
    config: &Config,
    console: &Console,
) -> Result<(Endpoint, Connection), Failure> {
    let attempt = |address| connect_to(address, peer, credentials, config, console);
    let connecting = race(addresses.iter().copied(), names::STAGGER, attempt);
    // A listener does not answer peers without the secret, so the cause cannot be told from here.
    let secret = if matches!(credentials, Credentials::Key(_)) { "key" } else { "secret" };
    let patience = config.handshake_timeout().as_secs();
    naming_silence(connecting, || {
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        console.warn(&format!(
            "no answer from {} yet: the {secret} or the port is wrong, or UDP is blocked on the path; trying for {patience} s",
            addresses.join(" and ")
        ));
    })
    .await
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
    race(links, Duration::ZERO, |link| connect(link, None, credentials, config.clone(), console)).await
}

/// Attempts connections to one listener, and keeps the first that is established; see [`names::race`].
///
/// # Errors
/// The last failure.
async fn race<C, A: Future<Output = Result<(Endpoint, Connection), Failure>>>(
    candidates: impl IntoIterator<Item = C>,
    stagger: Duration,
    attempt: impl Fn(C) -> A,
) -> Result<(Endpoint, Connection), Failure> {
    let mut established = match names::race(candidates, stagger, attempt).await {
        Ok(established) => established.into_iter(),
        Err(failures) => {
            let none = || Failure::message(Exit::Unreachable, "no address to connect to");
            return Err(failures.into_iter().next_back().unwrap_or_else(none));
        }
    };
    let first = established.next();
    for (endpoint, connection) in established {
        connection.close(SURPLUS, "");
        tokio::spawn(async move { close(&endpoint).await });
    }
    first.ok_or_else(|| Failure::message(Exit::Other, "a connection was lost before it was used"))
}

/// Connects to one address from a new local port.
async fn connect_to(
    address: SocketAddr,
    peer: Option<&PublicKey>,
    credentials: &Credentials,
    config: &Config,
    console: &Console,
) -> Result<(Endpoint, Connection), Failure> {
    let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let endpoint =
        backend::bind(any, credentials.clone(), config.clone(), NonZeroUsize::MIN, console).or_exit(Exit::Other)?;
    let hearsay = Cell::new(None);
    let connected = tokio::select! {
        connected = async {
            match peer {
                Some(peer) => endpoint.connect_to(address, peer).await,
                None => endpoint.connect(address).await,
            }
        } => connected,
        failure = refused(&endpoint, address, config, console) => return Err(failure),
        never = tell_hearsay(address, console, &hearsay) => never,
    };
    let hearsay = hearsay.get().map_or(String::new(), |words| format!("; the network says that {words}"));
    match (connected, credentials) {
        (Ok(connection), _) => Ok((endpoint, connection)),
        (Err(ConnectError::NoAnswer), Credentials::Key(own)) => Err(Failure::message(
            Exit::Unreachable,
            format_args!(
                "no answer: wrong host, port or key, or the other side's --authorized-keys lacks ours, {}{hearsay}",
                own.private.public()
            ),
        )),
        (Err(ConnectError::NoAnswer), _) => {
            Err(Failure::message(Exit::Unreachable, format_args!("no answer: wrong host, port or secret{hearsay}")))
        }
        (Err(error), _) => Err(Failure::new(Exit::Unreachable, error)),
    }
}

/// Waits until this machine has no route to `address`. What it does not permit is told: the table of
/// connections of a firewall may have been full.
async fn refused(endpoint: &Endpoint, address: SocketAddr, config: &Config, console: &Console) -> Failure {
    if endpoint.refused().await == SendFailure::NoRoute {
        return link::no_route(address);
    }
    let patience = config.handshake_timeout().as_secs();
    console.warn(&format!(
        "cannot send to {address}: a firewall of this machine does not permit it; trying for {patience} s"
    ));
    std::future::pending().await
}

/// Tells what the network says about `address`, and keeps it. Nothing ends by that.
async fn tell_hearsay<T>(address: SocketAddr, console: &Console, kept: &Cell<Option<&'static str>>) -> T {
    #[cfg(target_os = "linux")]
    {
        let words = hearsay::about(address).await;
        kept.set(Some(words));
        console.warn(&format!("no answer from {address}: the network says that {words}; still trying"));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (address, console, kept);
    std::future::pending().await
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

/// Returns the figures of a connection that progress shows.
pub fn sample(stats: &Stats, role: Role) -> Sample {
    Sample {
        rtt_ms: report::known(stats.rtt.mean),
        loss: role.sends().then_some(stats.loss.rate),
        repaired: role.receives().then_some(stats.symbols.repaired),
        wire_bytes: report::wire_bytes(stats, role),
    }
}

/// Makes the summary of a transfer. `outcome` is `None` if the transfer was cut off. Rates and overhead refer
/// to the bytes that this connection moved.
pub fn transfer_summary(stats: &Stats, role: Role, outcome: Option<&Outcome>, elapsed: Duration) -> Summary {
    let (moved, resumed) = outcome.map_or((0, 0), |outcome| (outcome.bytes - outcome.resumed, outcome.resumed));
    Summary { resumed_bytes: Some(resumed), ..report::summary(stats, role, moved, elapsed) }
}
