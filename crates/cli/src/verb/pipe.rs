//! `tidewire pipe LINK` and `tidewire pipe --listen ADDRESS:PORT`: connects standard input and output of two
//! machines.

use std::net::SocketAddr;
use std::time::Instant;

use tidewire::link::Link;
use tidewire::{Config, Connection, Endpoint};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::unless_interrupted;
use tidewire_command::options::{Coding, Output};
use tidewire_command::report::{self, Console, Event, Role};
use tidewire_proto::config::KEEP_ALIVE;

use crate::explain::Explainer;
use crate::link;
use crate::listen::{self, Naming};
use crate::pipe::{self, PipeEnd};
use crate::session;
use crate::via::Via;
use crate::watch::WatchArgs;
use crate::way::Way;

/// Arguments of `pipe`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Link that `tidewire pipe --listen` printed (tidewire://...), or @FILE with the link. The default is
    /// TIDEWIRE_LINK
    #[arg(value_name = "LINK", conflicts_with = "listen")]
    link: Option<String>,
    /// Wait for the other side on this address and UDP port, and print the link on stderr
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    via: Via,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    coding: Coding,
}

/// Copies bytes until both directions have ended.
///
/// # Errors
/// [`Exit::Usage`] for a wrong link, [`Exit::Unreachable`] if nothing answers or the connection is lost,
/// [`Exit::LocalIo`] if standard output is closed.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let goal = match args.listen {
        Some(address) => Goal::Listen(address),
        None => Goal::Link(Box::new(link::given(args.link.as_deref()).or_exit(Exit::Usage)?)),
    };
    let config = args.coding.config(goal.link()).or_exit(Exit::Usage)?;
    let (config, _watching) = args.watch.begin("pipe", config, &console)?;
    let connecting = connect(&args, goal, config, &console);
    let (endpoint, connection, side) = unless_interrupted(connecting).await?;
    let begun = Instant::now();
    console.event(&Event::Connected { peer: connection.remote().to_string() });
    let _explained = Explainer::begin(connection.clone(), console.clone());
    let ended = unless_interrupted(pipe::run(&connection, side)).await;
    let elapsed = begun.elapsed();
    connection.close(session::CUT_OFF, "");
    let stats = connection.stats();
    session::close(&endpoint).await;
    let bytes = ended.as_ref().map_or(0, |moved| moved.sent + moved.received);
    console.conclude(&report::summary(&stats, Role::Both, bytes, elapsed), ended.map(|_| ()))
}

/// The other side: a listener, or whoever connects to this address.
enum Goal {
    Link(Box<Link>),
    Listen(SocketAddr),
}

impl Goal {
    /// The link, if the user gave one.
    fn link(&self) -> Option<&Link> {
        match self {
            Self::Link(link) => Some(link),
            Self::Listen(_) => None,
        }
    }
}

async fn connect(
    args: &Args,
    goal: Goal,
    config: Config,
    console: &Console,
) -> Result<(Endpoint, Connection, PipeEnd), Failure> {
    let address = match goal {
        Goal::Listen(address) => address,
        Goal::Link(link) => {
            let config = config.to_builder().keep_alive(Some(KEEP_ALIVE)).build().or_exit(Exit::Other)?;
            let way = Way::to(*link, args.naming.key.as_deref(), &args.via, console)?;
            let (endpoint, connection) = way.connect(&config, console).await?;
            return Ok((endpoint, connection, PipeEnd::Connects));
        }
    };
    let (endpoint, links) = listen::open(address, &args.naming, &config, console).await?;
    listen::announce(&links, |link| format!("waiting; on the other machine: tidewire pipe '{link}'"), console);
    let connection = listen::guarding(&endpoint, &args.naming, console, endpoint.accept()).await;
    Ok((endpoint, connection.or_exit(Exit::Other)?, PipeEnd::Listens))
}
