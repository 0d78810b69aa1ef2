//! `tidewire forward`: carries TCP connections to and from the far side, with ssh's options `-L`, `-D`, `-R`
//! and `-W`.

use tidewire::Connection;
use tidewire::link::Link;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::{quietly, unless_hung_up};
use tidewire_command::options::{Coding, Output};
use tidewire_command::report::Console;
use tidewire_forward::{HostPattern, MAX_STREAMS, Near, PortForward, Ports, Rule, SocksForward, Target, single};
use tidewire_proto::config::KEEP_ALIVE;

use crate::forwarding::{failure, report};
use crate::link;
use crate::pipe::{no_thread, stdio};
use crate::reconnect::{Ended, Patience, Reconnect};
use crate::ssh::{self, FarVerb, Host};
use crate::watch::WatchArgs;
use crate::way::{Reach, Way};

/// Arguments of `forward`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct Args {
    /// Listen on TCP port PORT of ADDR, and forward connections to HOST:PORT from the far side. Without ADDR,
    /// only this machine can connect. Repeat the option for more ports
    #[arg(short = 'L', value_name = "[ADDR:]PORT:HOST:PORT", group = "what")]
    local: Vec<PortForward>,
    /// Listen for SOCKS5 clients, such as browsers, on TCP port PORT of the loopback address ADDR, and
    /// forward each connection to the host that the client asks for. The far side resolves the names
    #[arg(short = 'D', value_name = "[ADDR:]PORT", group = "what")]
    socks: Vec<SocksForward>,
    /// Let the far side listen on its TCP port PORT, and forward connections to HOST:PORT from this side.
    /// Without ADDR, only the far machine can connect. It needs `serve --allow listen=[ADDR:]PORT`
    #[arg(short = 'R', value_name = "[ADDR:]PORT:HOST:PORT", group = "what")]
    remote: Vec<PortForward>,
    /// Forward standard input and output to HOST:PORT from the far side, and end with the connection
    /// [example: ssh -o ProxyCommand='tidewire forward -W %h:%p @link' host]
    #[arg(short = 'W', value_name = "HOST:PORT", group = "what", conflicts_with_all = ["local", "socks", "remote"])]
    single: Option<Target>,
    /// Link that `tidewire serve` printed (tidewire://...), @FILE with the link, or a host, as in
    /// user@host.example, on which ssh starts `tidewire serve`. The default is TIDEWIRE_LINK
    #[arg(value_name = "LINK|[USER@]HOST")]
    link: Option<String>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    coding: Coding,
}

impl Args {
    /// The output. With `-W`, standard output carries the data.
    pub(super) fn console(&self) -> Console {
        let console = self.output.console();
        if self.single.is_some() { console.beside_data() } else { console }
    }
}

/// The far side, as the user names it.
enum Goal {
    Link(Box<Link>),
    Host(Host),
}

impl Goal {
    /// The link, if the user gave one.
    fn link(&self) -> Option<&Link> {
        match self {
            Self::Link(link) => Some(link),
            Self::Host(_) => None,
        }
    }
}

impl Args {
    /// The link or the host that the command line names.
    fn goal(&self) -> Result<Goal, Failure> {
        match self.link.as_deref() {
            Some(argument) if !link::is_link(argument) => Ok(Goal::Host(Host::parse(argument).or_exit(Exit::Usage)?)),
            link => Ok(Goal::Link(Box::new(link::given(link).or_exit(Exit::Usage)?))),
        }
    }

    /// Starts the far end of a host. It allows exactly what these options need.
    async fn start(&self, host: &Host, console: &Console) -> Result<Way, Failure> {
        let rules: Vec<_> = self.rules().iter().map(|rule| format!("--allow '{rule}'")).collect();
        let usual = if self.single.is_some() { ssh::SINGLE_SILENCE } else { ssh::FORWARD_SILENCE };
        let words = self.coding.far_words() + &rules.join(" ");
        self.reach.host(host, FarVerb::Serve, usual, &words, console).await
    }

    /// The rules that the far end needs.
    fn rules(&self) -> Vec<Rule> {
        let targets = self.local.iter().map(|forward| &forward.target).chain(&self.single).map(Rule::from);
        let everywhere = self.socks.first().map(|_| Rule::Reach { host: HostPattern::Any, port: None });
        let ports = self.remote.iter().map(|forward| Rule::Listen {
            address: Some(forward.listen.ip()),
            port: Some(forward.listen.port()).filter(|port| *port != 0),
        });
        targets.chain(everywhere).chain(ports).collect()
    }
}

/// Forwards until Ctrl-C or a hang-up; with `-W`, until the connection has ended.
///
/// # Errors
/// [`Exit::Usage`] for a wrong link, [`Exit::LocalIo`] if a port is in use, [`Exit::Unreachable`] if nothing
/// answers, [`Exit::Authentication`] if a target or port is not allowed; [`Exit::Sigint`] after Ctrl-C.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let goal = args.goal()?;
    if goal.link().is_none() {
        args.reach.check_host()?;
    }
    let config = args.coding.config(goal.link()).or_exit(Exit::Usage)?;
    let ports = Ports { local: args.local.clone(), socks: args.socks.clone(), remote: args.remote.clone() };
    // A port that is in use is found before a far end is started.
    let mut near = Near::bind(&ports, report(&console)).map_err(failure)?;
    let way = match goal {
        Goal::Link(link) => args.reach.link(*link, &console)?,
        Goal::Host(host) => unless_hung_up(args.start(&host, &console)).await?,
    };
    // A far end that ends after a short silence needs packets more often.
    let keep_alive = way.silence().map_or(KEEP_ALIVE, |silence| KEEP_ALIVE.min(silence / 3));
    let config =
        config.to_builder().keep_alive(Some(keep_alive)).max_streams(MAX_STREAMS).build().or_exit(Exit::Other)?;
    let (config, _watching) = args.watch.begin("forward", config, &console)?;
    let reconnect = Reconnect::new(&console);
    let connect = async || {
        let (endpoint, connection) = way.connect(&config, &console).await?;
        Ok((endpoint, connection, ()))
    };
    let ended = match &args.single {
        Some(target) => {
            let job = async |connection: &Connection, ()| carry(connection, target).await;
            unless_hung_up(reconnect.run(Patience::Once, connect, job)).await
        }
        None => {
            let mut is_begun = false;
            // Owned by the job: when that ends early, the TCP connections are reset before the close.
            let job = async move |connection: &Connection, ()| {
                if !is_begun {
                    near.begin(connection).await.map_err(failure)?;
                    is_begun = true;
                }
                Ok(Ended::Lost(near.run(connection).await.to_string()))
            };
            let patience = way.silence().map_or(Patience::Endless, Patience::Silence);
            unless_hung_up(reconnect.run(patience, connect, job)).await
        }
    };
    reconnect.close(quietly(ended)).await
}

/// Carries standard input and output over a connection.
async fn carry(connection: &Connection, target: &Target) -> Result<Ended, Failure> {
    let (output, written) = stdio::output().map_err(|error| no_thread(&error))?;
    let input = stdio::input(single::PIECE).map_err(|error| no_thread(&error))?;
    let pieces = single::Pieces { input, output, written };
    single::carry(connection, target, pieces).await.map_err(failure)?;
    Ok(Ended::Done)
}
