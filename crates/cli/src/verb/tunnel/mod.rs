//! `tidewire tunnel up LINK` and `tidewire tunnel up --listen ADDRESS:PORT`: carries the IP packets of a TUN
//! device (`docs/tunnel.md`).
//!
//! [`dial`] keeps the connection of the end with a link, [`serve`] those of the other end, [`routing`] has
//! the device and the routes, [`state`] the events. The packets are moved by [`tidewire_tunnel`].

mod dial;
mod routing;
mod serve;
mod state;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use clap::Subcommand;
use ipnet::IpNet;
use tidewire::{Config, PublicKey};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::{quietly, unless_interrupted};
use tidewire_command::options::{Coding, Output};
use tidewire_command::report::Console;
use tidewire_tunnel::{
    DEFAULT_MTU, Hub, MTUS, Outer, Routes, configure, only_peer, parse_address, parse_network, read_peers,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::dial::{Dialer, Passage, outer};
use self::routing::up;
use crate::link;
use crate::listen::{self, Naming};
use crate::reconnect;
use crate::session;
use crate::via::Via;
use crate::watch::WatchArgs;
use crate::way::Way;

/// The subcommands of `tunnel`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a TUN device and carry its packets until Ctrl-C: connect to a link, or print one and wait
    Up(Box<Args>),
}

/// Arguments of `tunnel up`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Link that `tidewire tunnel up --listen` printed (tidewire://...), or @FILE with the link. The default
    /// is TIDEWIRE_LINK
    #[arg(value_name = "LINK", conflicts_with = "listen")]
    link: Option<String>,
    /// Wait for the other side on this address and UDP port, and print the link
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Address of this machine in the tunnel, with the length of its network's prefix. Repeat the option for
    /// an IPv6 address [example: 10.77.0.1/24]
    #[arg(long, value_name = "ADDRESS/LENGTH", required = true, value_parser = parse_address)]
    address: Vec<IpNet>,
    /// Network that is reached through the tunnel, besides those of --address; 0.0.0.0/0 and ::/0 for
    /// everything. Repeat the option for more [example: 192.168.7.0/24]
    #[arg(long, value_name = "NETWORK", value_parser = parse_network, conflicts_with = "authorized_keys")]
    route: Vec<IpNet>,
    /// Name of the TUN device
    #[arg(long, value_name = "NAME", default_value = "tidewire0", value_parser = parse_interface)]
    interface: String,
    /// Leave the networks of --route unreachable when the tunnel ends, also after `kill -9`, until a tunnel
    /// without this option ends or you open them (docs/tunnel.md, section 5)
    #[arg(long, requires = "route")]
    fail_closed: bool,
    /// Longest IP packet that this end takes. The tunnel carries what both ends take
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_MTU, value_parser = clap::value_parser!(u16).range(i64::from(*MTUS.start())..=i64::from(*MTUS.end())))]
    mtu: u16,
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    via: Via,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    coding: Coding,
}

impl Command {
    pub(super) fn console(&self) -> Console {
        let Self::Up(args) = self;
        args.output.console()
    }
}

/// Carries packets until Ctrl-C.
///
/// # Errors
/// [`Exit::Usage`] for a wrong link or overlapping networks, [`Exit::LocalIo`] if the device, a route or the
/// port cannot be had, [`Exit::Unreachable`] if nothing answers, [`Exit::Authentication`] if the far side has
/// no networks for our key; [`Exit::Sigint`] after Ctrl-C.
pub async fn run(command: Command, console: Console) -> Result<(), Failure> {
    let Command::Up(args) = command;
    match args.listen {
        Some(address) => listen(&args, address, &console).await,
        None => dial(&args, &console).await,
    }
}

async fn dial(args: &Args, console: &Console) -> Result<(), Failure> {
    let link = link::given(args.link.as_deref()).or_exit(Exit::Usage)?;
    let config =
        configure(&args.coding.over(&Config::default(), Some(&link)).or_exit(Exit::Usage)?).or_exit(Exit::Other)?;
    let peer = only_peer(&args.address, &args.route);
    let way = Way::to(link, args.naming.key.as_deref(), &args.via, console)?;
    // Before any route leads into the tunnel.
    let find = || link::addresses(way.first_hop(), "the link");
    let addresses = quietly(unless_interrupted(reconnect::until_ready(console, find)).await)?;
    refuse_own_path(&peer.networks, &addresses)?;
    let (hub, routes) = up(args, vec![peer], outer(&addresses), console).await?;
    let (config, _watching) = args.watch.begin("tunnel", config, console)?;
    let passage = Passage { addresses, routes: Arc::clone(&routes) };
    let dialer = Dialer::new(way, passage, config, &hub, console);
    let ended = carrying(&hub, &routes, console, dialer.run()).await;
    routing::tell_closed(args, console);
    dialer.close(quietly(ended)).await
}

async fn listen(args: &Args, address: SocketAddr, console: &Console) -> Result<(), Failure> {
    let config = configure(&args.coding.over(&Config::default(), None).or_exit(Exit::Usage)?).or_exit(Exit::Other)?;
    let peers = match args.naming.authorized_keys() {
        Some(path) => read_peers(path).or_exit(Exit::Usage)?,
        None => vec![only_peer(&args.address, &args.route)],
    };
    let (config, _watching) = args.watch.begin("tunnel", config, console)?;
    let (endpoint, links) = listen::open(address, &args.naming, &config, console).await?;
    let (hub, routes) = up(args, peers, vec![Outer::From(endpoint.local_addr().port())], console).await?;
    let what =
        |link: &str| format!("waiting; on the other machine: tidewire tunnel up '{link}' --address ADDRESS/LENGTH");
    listen::announce(&links, what, console);
    let (stop, mut serving) = (watch::Sender::new(()), JoinSet::new());
    let accepting = serve::serve(&endpoint, &hub, console, &stop, &mut serving);
    let read = async |path: &Path| follow(path, &hub, &routes).await;
    let guarded = listen::guarding_by(&endpoint, &args.naming, console, read, accepting);
    let ended = carrying(&hub, &routes, console, guarded).await;
    routing::tell_closed(args, console);
    routes.close().await;
    // Each connection writes its summary before it ends, including those that are cut off here.
    drop(stop);
    while serving.join_next().await.is_some() {}
    session::close(&endpoint).await;
    quietly(ended)
}

/// Reads the list of peers again, and returns their keys. A list that is wrong changes nothing.
async fn follow(path: &Path, hub: &Hub, routes: &Routes) -> anyhow::Result<BTreeSet<PublicKey>> {
    let entries = read_peers(path)?;
    let keys = entries.iter().filter_map(|entry| entry.key).collect();
    // In this order, no packet comes before its peer is known, and no key is let in before it has networks.
    routes.follow(entries.iter().flat_map(|entry| &entry.networks).copied()).await?;
    hub.replace_peers(entries)?;
    Ok(keys)
}

/// Runs `job`, moves packets and keeps the routes meanwhile.
async fn carrying(
    hub: &Hub,
    routes: &Routes,
    console: &Console,
    job: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let ended = unless_interrupted(async {
        tokio::select! {
            ended = job => ended,
            ended = routing::keep(routes, console) => ended,
            ended = hub.read_device() => {
                let error = ended.err().map_or_else(String::new, |error| format!(": {error}"));
                Err(Failure::message(Exit::LocalIo, format_args!("the device {} is gone{error}", hub.device().name())))
            }
            never = state::report(hub, console) => never,
        }
    })
    .await;
    console.event(&state::state(hub));
    ended
}

/// Refuses routes that would lead the tunnel's own datagrams into the tunnel. They pass a default route.
fn refuse_own_path(networks: &[IpNet], outer: &[SocketAddr]) -> Result<(), Failure> {
    let outer = outer.iter().map(|address| address.ip().to_canonical());
    let within = |address: IpAddr| {
        let contains = |network: &&IpNet| network.prefix_len() > 0 && network.contains(&address);
        networks.iter().find(contains).map(|network| (address, *network))
    };
    outer.filter_map(within).next().map_or(Ok(()), |(address, network)| {
        Err(Failure::message(
            Exit::Usage,
            format_args!(
                "{network} contains {address}, the address of the far side: the datagrams of the tunnel would go into the tunnel. Give networks that do not contain it, or 0.0.0.0/0 and ::/0 for everything"
            ),
        ))
    })
}

/// The kernel's limits for the name of a device.
fn parse_interface(text: &str) -> Result<String, String> {
    let is_name = (1..=15).contains(&text.len()) && text != "." && text != "..";
    if is_name && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':') {
        return Ok(text.to_owned());
    }
    Err("a name has 1 to 15 letters or digits, as tidewire0".into())
}
