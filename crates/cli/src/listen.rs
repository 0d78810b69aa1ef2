//! Opens the socket of a verb that listens, reads its secret or key, and prints the link for the other side.
//!
//! Each verb that waits for connections calls it once, before it accepts the first. Invariant: the printed
//! links lead to the socket that was opened. Otherwise the verb ends before it prints anything.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tidewire::link::{Link, Peer};
use tidewire::{
    Config, Credentials, Endpoint, EndpointEnded, KeyCredentials, PublicKey, Relay, Unauthorized, new_secret,
};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt;
use tidewire_command::report::Console;
use tidewire_forward::own;
use tidewire_units::parse_size;

use crate::backend;
use crate::keys::{self, KeyFile};
use crate::via::Relayed;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// The listener waits.
    Link {
        /// The whole link with its secret.
        link: &'a str,
    },
    /// The listener waits behind a relay, which needs this link.
    HopLink {
        /// The whole link with its secret.
        link: &'a str,
    },
    /// A peer got no answer because its key is not authorized.
    Refused {
        /// The source address of its HELLO.
        peer: String,
        key: String,
    },
}

/// The address to listen on.
#[derive(Args, Clone, Copy, Debug)]
pub struct Listen {
    /// Address and UDP port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7700")]
    pub listen: SocketAddr,
}

/// What the printed link contains, and who may connect with it.
#[derive(Args, Clone, Debug)]
pub struct Naming {
    /// Host, or HOST:PORT, to print in the link, if others reach this machine by another name
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
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
    /// Sockets that share the port, 1 to 256. Each moves the datagrams of its own connections, so that as
    /// many cores can; a new connection goes to the one with the fewest. Linux only; not with --relayed
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    #[command(flatten)]
    relayed: Relayed,
}

impl Naming {
    /// The file with the public keys that may connect, if one was given.
    pub fn authorized_keys(&self) -> Option<&Path> {
        self.authorized_keys.as_deref()
    }

    /// Reads the credentials of this end, and returns them with the part of the link after `#`.
    ///
    /// # Errors
    /// See [`credentials`].
    pub fn credentials(&self, console: &Console) -> Result<(Credentials, Peer), Failure> {
        let files = (self.key.as_deref(), self.authorized_keys.as_deref());
        credentials(files, ("--key", "--authorized-keys"), console)
    }

    /// `config` with the limits of these options.
    ///
    /// # Errors
    /// [`Exit::Usage`] if a limit is outside its range.
    pub fn limits(&self, config: &Config) -> Result<Config, Failure> {
        let builder = config
            .to_builder()
            .max_connections(usize::try_from(self.max_connections).unwrap_or(usize::MAX))
            .max_memory(usize::try_from(self.max_memory).unwrap_or(usize::MAX));
        builder.build().or_exit(Exit::Usage)
    }

    /// Refuses `--relayed`, and so what needs it, in a verb that cannot use it.
    ///
    /// # Errors
    /// [`Exit::Usage`] if it was given.
    pub fn refuse_relayed(&self, why: &str) -> Result<(), Failure> {
        match self.is_relayed() {
            true => Err(Failure::message(Exit::Usage, format_args!("{why}: leave --relayed out"))),
            false => Ok(()),
        }
    }

    /// Refuses `--threads` in a verb that cannot use it.
    ///
    /// # Errors
    /// [`Exit::Usage`] if more than one was given.
    pub fn refuse_threads(&self, why: &str) -> Result<(), Failure> {
        match self.threads {
            1 => Ok(()),
            _ => Err(Failure::message(Exit::Usage, format_args!("{why}: leave --threads out"))),
        }
    }

    /// Whether to wait behind a relay.
    pub fn is_relayed(&self) -> bool {
        self.relayed.is_wanted()
    }
}

/// Reads the credentials of a listener from the files of its key and of the keys that may connect, which the
/// options of these names gave. Returns them with the part of the link after `#`.
///
/// # Errors
/// [`Exit::Usage`] if a file is wrong, or one is missing beside the other.
pub fn credentials(
    (key, authorized): (Option<&Path>, Option<&Path>),
    (key_option, authorized_option): (&str, &str),
    console: &Console,
) -> Result<(Credentials, Peer), Failure> {
    let file = key.map(|path| keys::read(path, console)).transpose().or_exit(Exit::Usage)?;
    let secret = match (file, authorized) {
        (Some(KeyFile::Private(private)), Some(path)) => {
            let authorized = Arc::new(keys::read_authorized(path).or_exit(Exit::Usage)?);
            let peer = Peer::Key(private.public());
            return Ok((Credentials::Key(KeyCredentials { authorized, ..KeyCredentials::new(private) }), peer));
        }
        (Some(KeyFile::Private(_)), None) => {
            let wanted = format_args!(
                "{key_option} holds a private key: give the public keys that may connect with {authorized_option} FILE"
            );
            return Err(Failure::message(Exit::Usage, wanted));
        }
        (_, Some(_)) => {
            let wanted = format_args!(
                "{authorized_option} needs a private key: give one with {key_option} (tidewire keygen --pair -o FILE)"
            );
            return Err(Failure::message(Exit::Usage, wanted));
        }
        (Some(KeyFile::Secret(secret)), None) => secret,
        (None, None) => new_secret().or_exit(Exit::Other)?,
    };
    Ok((Credentials::Psk(secret.clone()), Peer::Secret(secret)))
}

/// Opens the socket, and returns the links that lead to it.
///
/// # Errors
/// [`Exit::Usage`] for a wrong key file or host, or options that exclude each other; [`Exit::LocalIo`] if the
/// port is in use.
pub async fn open(
    address: SocketAddr,
    naming: &Naming,
    config: &Config,
    console: &Console,
) -> Result<(Endpoint, Links), Failure> {
    if naming.is_relayed() && naming.threads != 1 {
        let wanted = "--threads shares a port, and an end behind a relay waits at none: leave --threads out";
        return Err(Failure::message(Exit::Usage, wanted));
    }
    let (credentials, peer) = naming.credentials(console)?;
    let config = naming.limits(config)?;
    let address = of_this_machine(address, console);
    if naming.is_relayed() {
        let (endpoint, hop) = naming.relayed.open(address, (credentials, &peer), &config, console)?;
        announce_hop(&Links::to(naming.host.as_deref(), endpoint.local_addr(), &hop)?, console);
        let links = Links::to(naming.host.as_deref(), endpoint.local_addr(), &peer)?;
        return Ok((endpoint, links));
    }
    let threads = NonZeroUsize::new(naming.threads.into()).unwrap_or(NonZeroUsize::MIN);
    let endpoint = backend::bind(address, credentials, config, threads, console).map_err(|error| {
        Failure::message(Exit::LocalIo, format_args!("cannot listen on {address}: {error}; try another --listen"))
    })?;
    let links = Links::to(naming.host.as_deref(), endpoint.local_addr(), &peer)?;
    Ok((endpoint, links))
}

/// `address`, or the port at all IPv6 addresses if it stands for all IPv4 addresses of a machine that has
/// none.
pub fn of_this_machine(address: SocketAddr, console: &Console) -> SocketAddr {
    let [all_v4, all_v6] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()].map(|ip: IpAddr| ip);
    let has = |wildcard| !interface_addresses(wildcard).is_empty();
    if address.ip() != all_v4 || has(all_v4) || !has(all_v6) {
        return address;
    }
    let address = SocketAddr::new(all_v6, address.port());
    console.say(&format!("this machine has no IPv4 address: listening on {address}"));
    address
}

/// Prints each link alone on a line of stdout, so that it can be piped, and on stderr what to do with the
/// first. From then on, a request to end is heeded.
pub fn announce(links: &Links, what_to_do: impl FnOnce(&str) -> String, console: &Console) {
    interrupt::heed();
    if !console.json() {
        console.say(&what_to_do(&links.first().reveal()));
        links.say_why_many(console);
    }
    for link in links.iter() {
        let link = link.reveal();
        match console.json() {
            true => console.event(&Event::Link { link: &link }),
            false => console.print(&link),
        }
    }
}

/// Prints the link for the relay alone on a line.
fn announce_hop(links: &Links, console: &Console) {
    if !console.json() {
        console.say(&format!(
            "behind a relay; on the relay: tidewire relay --to '{}'; the other machine then also needs --via with the \
             link that the relay prints",
            links.first().reveal()
        ));
        links.say_why_many(console);
    }
    for link in links.iter() {
        let link = link.reveal();
        match console.json() {
            true => console.event(&Event::HopLink { link: &link }),
            false => console.print(&link),
        }
    }
}

/// What peers connect to, if their keys are authorized.
pub trait Door {
    /// Waits for the next peer whose key is not authorized.
    fn unauthorized(&self) -> impl Future<Output = Result<Unauthorized, EndpointEnded>> + Send;
    /// From now on admits only these keys.
    fn authorize(&self, keys: BTreeSet<PublicKey>);
}

impl Door for Endpoint {
    async fn unauthorized(&self) -> Result<Unauthorized, EndpointEnded> {
        self.unauthorized().await
    }

    fn authorize(&self, keys: BTreeSet<PublicKey>) {
        self.authorize(keys);
    }
}

impl Door for Relay {
    async fn unauthorized(&self) -> Result<Unauthorized, EndpointEnded> {
        self.unauthorized().await
    }

    fn authorize(&self, keys: BTreeSet<PublicKey>) {
        self.authorize(keys);
    }
}

/// Runs `job`. Meanwhile, follows changes of the file of authorized keys, and reports each peer whose key it
/// lacks.
pub async fn guarding<T>(door: &impl Door, naming: &Naming, console: &Console, job: impl Future<Output = T>) -> T {
    guarding_by(door, naming, console, async |path: &Path| keys::read_authorized(path), job).await
}

/// The same for a verb whose file says more than keys: `read` takes that, and returns the keys.
pub async fn guarding_by<T>(
    door: &impl Door,
    naming: &Naming,
    console: &Console,
    read: impl AsyncFnMut(&Path) -> anyhow::Result<BTreeSet<PublicKey>>,
    job: impl Future<Output = T>,
) -> T {
    tokio::select! {
        ended = job => ended,
        never = tell_refused(door, console) => never,
        never = keep_list(door, naming.authorized_keys.as_deref(), read, console) => never,
    }
}

/// Reports each peer whose key is not authorized, once. The peer itself gets no answer, so its user will ask
/// why.
async fn tell_refused<T>(door: &impl Door, console: &Console) -> T {
    let mut told = BTreeSet::new();
    while let Ok(refused) = door.unauthorized().await {
        if told.len() < MOST_REFUSED && told.insert(refused.key) {
            let (peer, key) = (refused.from.to_string(), refused.key.to_string());
            console.warn(&format!("refused {peer}: its key is not in --authorized-keys: {key}"));
            console.event(&Event::Refused { peer, key });
        }
    }
    std::future::pending().await
}

/// Reads `--authorized-keys` again whenever the file has changed and then stayed as it is for a check. Peers
/// with an added key get in while they still send HELLOs. Peers with a removed key are disconnected. A file
/// that is wrong or missing is reported and changes nothing.
async fn keep_list<T>(
    door: &impl Door,
    file: Option<&Path>,
    mut read: impl AsyncFnMut(&Path) -> anyhow::Result<BTreeSet<PublicKey>>,
    console: &Console,
) -> T {
    let Some(path) = file else { return std::future::pending().await };
    let version = || std::fs::metadata(path).ok().map(|file| (file.modified().ok(), file.len()));
    let (mut last, mut seen, mut ticks) = (None, None, tokio::time::interval(LIST_CHECK));
    loop {
        ticks.tick().await;
        let now = Some(version());
        // Many programs empty a file before they write it: what they write has to stand for a while.
        let is_settled = std::mem::replace(&mut seen, now) == now;
        if now == last || (last.is_some() && !is_settled) {
            continue;
        }
        // Between the start and the first check, the file may have changed.
        let first = std::mem::replace(&mut last, now).is_none();
        match read(path).await {
            Ok(keys) => {
                if !first {
                    console.say(&format!("`{}` was read again: {} keys", path.display(), keys.len()));
                }
                door.authorize(keys);
            }
            Err(error) => console.warn(&format!("{error:#}; the keys read before stay authorized")),
        }
    }
}

/// Time between checks of the file. Chosen: a peer sends HELLOs for 30 s, so a user who is added meanwhile
/// should notice no failure.
const LIST_CHECK: Duration = Duration::from_secs(1);

/// Limit of reported keys, because anybody who knows our public key can send new ones.
const MOST_REFUSED: usize = 100;

/// The links that lead to a socket: one, or one for each address of a machine without a default route.
#[derive(Debug)]
pub struct Links(Link, Vec<Link>);

impl Links {
    /// The links to a socket. `host` is what the user wants to be named.
    ///
    /// # Errors
    /// [`Exit::Usage`] if `host` cannot be parsed again.
    pub fn to(host: Option<&str>, listening: SocketAddr, peer: &Peer) -> Result<Self, Failure> {
        if let Some(host) = host {
            // Parsing the link checks HOST and HOST:PORT, and refuses what could not be parsed again.
            let port = match host.ends_with(']') || !host.contains(':') {
                true => format!(":{}", listening.port()),
                false => String::new(),
            };
            let link = format!("tidewire://{host}{port}/#{}", peer.reveal()).parse().or_exit(Exit::Usage)?;
            return Ok(Self(link, Vec::new()));
        }
        let link =
            |ip: IpAddr| Link { host: ip.to_string(), port: listening.port(), query: Vec::new(), peer: peer.clone() };
        let wildcard = listening.ip();
        if !wildcard.is_unspecified() {
            return Ok(Self(link(wildcard), Vec::new()));
        }
        if let Some(ip) = default_route_address(wildcard) {
            return Ok(Self(link(ip), Vec::new()));
        }
        let mut links = interface_addresses(wildcard).into_iter().map(link);
        let this_machine = || match wildcard {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        Ok(Self(links.next().unwrap_or_else(|| link(this_machine())), links.collect()))
    }

    /// The link that is used where one is wanted.
    pub fn first(&self) -> &Link {
        &self.0
    }

    fn iter(&self) -> impl Iterator<Item = &Link> {
        std::iter::once(&self.0).chain(&self.1)
    }

    /// Says why there are several links, or one that only this machine can use.
    fn say_why_many(&self, console: &Console) {
        if !self.1.is_empty() {
            console
                .say("this machine has no default route: give the other side the link with an address that it reaches");
        } else if self.0.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()) {
            console.say("only this machine reaches that address");
        }
    }
}

/// The address that this machine sends from toward the Internet, of the family of `wildcard`. The targets are
/// documentation addresses (RFC 5737, RFC 3849).
fn default_route_address(wildcard: IpAddr) -> Option<IpAddr> {
    let target: IpAddr = match wildcard {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    own::source_toward(target).ok()
}

/// The addresses of this machine's interfaces that others may reach, of the family of `wildcard`. An IPv6
/// address of a link alone means nothing without the name of an interface, so it is left out.
fn interface_addresses(wildcard: IpAddr) -> BTreeSet<IpAddr> {
    let reached = |ip: &IpAddr| match ip {
        IpAddr::V4(v4) => wildcard.is_ipv4() && !v4.is_loopback() && !v4.is_unspecified(),
        IpAddr::V6(v6) => wildcard.is_ipv6() && !v6.is_loopback() && !v6.is_unicast_link_local(),
    };
    own::interface_addresses().filter(reached).collect()
}
