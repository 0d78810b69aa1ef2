//! `tidewire forward`: carries TCP connections to and from the far side, with ssh's options `-L`, `-D`, `-R`
//! and `-W`.

use crate::exit::{Exit, Failure, OrExit};
use crate::forward::client::{Client, Ports};
use crate::forward::{MAX_STREAMS, PortForward, SocksForward, Target};
use crate::keys::{self, Own};
use crate::link;
use crate::options::{Coding, Output};
use crate::report::Console;
use crate::session::{self, KEEP_ALIVE, unless_hung_up, unless_interrupted};

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
    /// Link that `tidewire serve` printed (tidewire://...), or @FILE with the link. The default is
    /// TIDEWIRE_LINK
    #[arg(value_name = "LINK")]
    link: Option<String>,
    #[command(flatten)]
    own: Own,
    #[command(flatten)]
    coding: Coding,
    #[command(flatten)]
    output: Output,
}

impl Args {
    /// The output. With `-W`, standard output carries the data.
    pub(super) fn console(&self) -> Console {
        let console = self.output.console();
        if self.single.is_some() { console.beside_data() } else { console }
    }
}

/// Forwards until Ctrl-C; with `-W`, until the connection has ended.
///
/// # Errors
/// [`Exit::Usage`] for a wrong link, [`Exit::LocalIo`] if a port is in use, [`Exit::Unreachable`] if nothing
/// answers, [`Exit::Authentication`] if a target or port is not allowed; [`Exit::Sigint`] after Ctrl-C.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let link = link::given(args.link.as_deref()).or_exit(Exit::Usage)?;
    let config = args.coding.config(Some(&link)).or_exit(Exit::Usage)?;
    let credentials = keys::to_open(&link, args.own.key.as_deref(), &console)?;
    let config =
        config.to_builder().keep_alive(Some(KEEP_ALIVE)).max_streams(MAX_STREAMS).build().or_exit(Exit::Other)?;
    let client = Client::new(link, credentials, config, &console);
    let ended = match &args.single {
        Some(target) => unless_hung_up(client.run_single(target)).await,
        None => {
            let ports = Ports { local: args.local, socks: args.socks, remote: args.remote };
            unless_interrupted(client.run(&ports)).await
        }
    };
    client.close(session::quietly(ended)).await
}
