//! How a verb listens: the socket, the secret, and the link that it prints for the other side.
//!
//! Called once by each verb that waits for connections, before it takes the first. Invariant: what is printed leads back to
//! the socket that was opened, or the verb ends before it prints anything.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use clap::Args;
use tidewire::{Config, Endpoint, Secret};

use crate::exit::{Exit, Failure, OrExit};
use crate::link::{Link, fresh_secret, secret_from_file};
use crate::report::{Console, Event};

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
    /// Host (or HOST:PORT) to print in the link, when others reach this machine by another name
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// File with the secret (see keygen); without it each start makes a fresh one
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// Opens the socket; the link leads to it.
///
/// # Errors
/// [`Exit::Usage`] for a wrong key file or host, [`Exit::LocalIo`] when the port cannot be listened on.
pub async fn open(address: SocketAddr, naming: &Naming, config: Config) -> Result<(Endpoint, Link), Failure> {
    let secret = match &naming.key {
        Some(path) => secret_from_file(path).or_exit(Exit::Usage)?,
        None => fresh_secret().or_exit(Exit::Other)?,
    };
    let endpoint = Endpoint::bind(address, secret.clone(), config).await.map_err(|error| {
        Failure::message(Exit::LocalIo, format_args!("cannot listen on {address}: {error}; try another --listen"))
    })?;
    let link = link(naming.host.as_deref(), endpoint.local_addr(), secret)?;
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

fn link(host: Option<&str>, listening: SocketAddr, secret: Secret) -> Result<Link, Failure> {
    if let Some(host) = host {
        // The link's own grammar reads HOST and HOST:PORT, and refuses what could not be read back.
        let port =
            if host.ends_with(']') || !host.contains(':') { format!(":{}", listening.port()) } else { String::new() };
        let text = format!("tidewire://{host}{port}/#{}", *secret.reveal());
        return text.parse().or_exit(Exit::Usage);
    }
    let host = match listening.ip() {
        ip if !ip.is_unspecified() => ip,
        ip => default_route_address(ip).ok_or_else(|| {
            let wanted = "this machine has no default route: give the address that others reach it by with --host";
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
