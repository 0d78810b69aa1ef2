//! How a verb listens: the socket, the secret or key, and the link that it prints for the other side.
//!
//! Called once by each verb that waits for connections, before it takes the first. Invariant: what is printed
//! leads back to the socket that was opened, or the verb ends before it prints anything.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tidewire::{Config, Credentials, Endpoint, KeyCredentials, new_secret};
use tidewire_sim::units::parse_size;

use crate::exit::{Exit, Failure, OrExit};
use crate::keys::{self, KeyFile};
use crate::link::{Link, Peer};
use crate::report::Console;

/// The events of a listener.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// The listener waits.
    Link {
        /// The whole link with its secret.
        link: &'a str,
    },
    /// A peer got no answer because its key is not authorized.
    Refused {
        /// The source address of its HELLO.
        peer: String,
        /// Its public key.
        key: String,
    },
}

/// Where to listen.
#[derive(Args, Clone, Copy, Debug)]
pub struct Listen {
    /// Address and UDP port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7700")]
    pub listen: SocketAddr,
}

/// What the printed link says.
#[derive(Args, Clone, Debug)]
pub struct Naming {
    /// Host, or HOST:PORT, to print in the link, if others reach this machine by another name
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// File with the secret or private key (see `keygen`). Without it, each start makes a new secret
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// File with the public keys that may connect, one a line. It is required with a private key
    #[arg(long, value_name = "FILE")]
    authorized_keys: Option<PathBuf>,
    /// Limit of connections. At the limit, new clients get no answer until a connection ends
    #[arg(long, value_name = "COUNT", default_value = "10000", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Limit of memory for the buffers of all connections [example: 256MiB]. Above half of it, new clients
    /// get no answer, and connections that hold more than an equal share get no more
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    max_memory: u64,
}

impl Naming {
    /// What we prove ourselves by and whom we let in, and what the link says of it.
    fn credentials(&self, console: &Console) -> Result<(Credentials, Peer), Failure> {
        let file = self.key.as_deref().map(|path| keys::read(path, console)).transpose().or_exit(Exit::Usage)?;
        let secret = match (file, &self.authorized_keys) {
            (Some(KeyFile::Private(private)), Some(path)) => {
                let authorized = Arc::new(keys::read_authorized(path).or_exit(Exit::Usage)?);
                let peer = Peer::Key(private.public());
                return Ok((Credentials::Key(KeyCredentials { authorized, ..KeyCredentials::new(private) }), peer));
            }
            (Some(KeyFile::Private(_)), None) => {
                let wanted = "--key holds a private key: name those who may connect with --authorized-keys FILE";
                return Err(Failure::message(Exit::Usage, wanted));
            }
            (_, Some(_)) => {
                let wanted =
                    "--authorized-keys needs a private key: give one with --key (tidewire keygen --pair -o FILE)";
                return Err(Failure::message(Exit::Usage, wanted));
            }
            (Some(KeyFile::Secret(secret)), None) => secret,
            (None, None) => new_secret().or_exit(Exit::Other)?,
        };
        Ok((Credentials::Psk(secret.clone()), Peer::Secret(secret)))
    }
}

/// Opens the socket; the link leads to it.
///
/// # Errors
/// [`Exit::Usage`] for a wrong key file or host, [`Exit::LocalIo`] when the port cannot be listened on.
pub async fn open(
    address: SocketAddr,
    naming: &Naming,
    mut config: Config,
    console: &Console,
) -> Result<(Endpoint, Link), Failure> {
    let (credentials, peer) = naming.credentials(console)?;
    config.max_connections = usize::try_from(naming.max_connections).unwrap_or(usize::MAX);
    config.max_memory = usize::try_from(naming.max_memory).unwrap_or(usize::MAX);
    config.validate().or_exit(Exit::Usage)?;
    let endpoint = Endpoint::bind(address, credentials, config).await.map_err(|error| {
        Failure::message(Exit::LocalIo, format_args!("cannot listen on {address}: {error}; try another --listen"))
    })?;
    let link = link(naming.host.as_deref(), endpoint.local_addr(), peer)?;
    Ok((endpoint, link))
}

/// Prints the link alone on stdout, so that it can be piped, and what to do with it on stderr.
pub fn announce(link: &str, what_to_do: &str, console: &Console) {
    if console.json() {
        return console.event(&Event::Link { link });
    }
    console.say(what_to_do);
    console.print(link);
}

/// Runs `job`, and meanwhile keeps the list of who may come in as its file is, and names each peer that is
/// not on it.
pub async fn guarding<T>(endpoint: &Endpoint, naming: &Naming, console: &Console, job: impl Future<Output = T>) -> T {
    tokio::select! {
        ended = job => ended,
        never = tell_refused(endpoint, console) => never,
        never = keep_list(endpoint, naming.authorized_keys.as_deref(), console) => never,
    }
}

/// Names each peer whose key is not authorized, once: it gets no answer, and its user will ask why.
async fn tell_refused<T>(endpoint: &Endpoint, console: &Console) -> T {
    let mut told = BTreeSet::new();
    while let Some(refused) = endpoint.unauthorized().await {
        if told.len() < MOST_REFUSED && told.insert(refused.key) {
            let (peer, key) = (refused.from.to_string(), refused.key.to_string());
            console.warn(&format!("refused {peer}: its key is not in --authorized-keys: {key}"));
            console.event(&Event::Refused { peer, key });
        }
    }
    std::future::pending().await
}

/// Reads `--authorized-keys` again whenever the file changes. Who was added gets in while it still asks; who
/// was taken off is cut off. A file that is wrong or gone changes nothing and is named.
async fn keep_list<T>(endpoint: &Endpoint, file: Option<&Path>, console: &Console) -> T {
    let Some(path) = file else { return std::future::pending().await };
    let version = || std::fs::metadata(path).ok().map(|file| (file.modified().ok(), file.len()));
    let (mut last, mut ticks) = (None, tokio::time::interval(LIST_CHECK));
    loop {
        ticks.tick().await;
        let now = Some(version());
        if now == last {
            continue;
        }
        // The first time it may have changed since it was read at the start.
        let first = std::mem::replace(&mut last, now).is_none();
        match keys::read_authorized(path) {
            Ok(keys) => {
                if !first {
                    console.say(&format!("`{}` was read again: {} keys", path.display(), keys.len()));
                }
                endpoint.authorize(keys);
            }
            Err(error) => console.warn(&format!("{error:#}; who was let in before still is")),
        }
    }
}

/// How often the list is looked at. Chosen: a peer asks for 30 s, its user added to the list meanwhile shall
/// not notice.
const LIST_CHECK: Duration = Duration::from_secs(1);

/// Refused keys that are named, at most: anybody who knows our public key can send some.
const MOST_REFUSED: usize = 100;

fn link(host: Option<&str>, listening: SocketAddr, peer: Peer) -> Result<Link, Failure> {
    if let Some(host) = host {
        // The link's own grammar reads HOST and HOST:PORT, and refuses what could not be read back.
        let port =
            if host.ends_with(']') || !host.contains(':') { format!(":{}", listening.port()) } else { String::new() };
        return format!("tidewire://{host}{port}/#{}", peer.reveal()).parse().or_exit(Exit::Usage);
    }
    let host = match listening.ip() {
        ip if !ip.is_unspecified() => ip,
        ip => default_route_address(ip).ok_or_else(|| {
            let wanted = "this machine has no default route: give the address that others reach it by with --host";
            Failure::message(Exit::Usage, wanted)
        })?,
    };
    Ok(Link { host: host.to_string(), port: listening.port(), query: Vec::new(), peer })
}

/// The address that this machine sends from toward the Internet. Connecting a UDP socket asks the routing
/// table and sends nothing; the targets are documentation addresses (RFC 5737, RFC 3849).
fn default_route_address(wildcard: IpAddr) -> Option<IpAddr> {
    let target: SocketAddr = match wildcard {
        IpAddr::V4(_) => ([192, 0, 2, 1], 9).into(),
        IpAddr::V6(_) => ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9).into(),
    };
    let socket = UdpSocket::bind((wildcard, 0)).ok()?;
    socket.connect(target).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}
