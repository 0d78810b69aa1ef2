//! Connects the verbs with the transport: opens and closes connections.
//! Each verb that uses a connection calls it.

use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use tidewire::link::Link;
use tidewire::{CloseCode, Config, ConnectError, Connection, Credentials, Endpoint, PublicKey, Stats};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::{self, Console, Role, Summary};
use tokio::task::JoinSet;

use crate::backend;
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
    let endpoint = through.open(credentials.clone(), config).await?;
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
        None => connect_in_turn(&addresses(link).await?, link, credentials, &config, console).await,
    }
}

/// The addresses of the host of `link`, at least one.
///
/// # Errors
/// [`Exit::Unreachable`] if the name has no address.
pub async fn addresses(link: &Link) -> Result<Vec<SocketAddr>, Failure> {
    let no_address = |why: &dyn std::fmt::Display| {
        Failure::message(Exit::Unreachable, format_args!("{why}; check the host in the link"))
    };
    match link.resolve().await {
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
