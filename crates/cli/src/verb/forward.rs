//! `tidewire forward -L [ADDR:]PORT:HOST:PORT LINK`: forwards local TCP ports through the far side, like `ssh
//! -L`.

use crate::exit::{Exit, Failure, OrExit};
use crate::forward::LocalForward;
use crate::forward::client::Client;
use crate::keys::{self, Own};
use crate::link;
use crate::options::{Coding, Output};
use crate::report::Console;
use crate::session::{self, KEEP_ALIVE, unless_interrupted};

/// Arguments of `forward`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Listen on TCP port PORT of ADDR, and forward connections to HOST:PORT from the far side. Without ADDR,
    /// only this machine can connect. Repeat the option for more ports
    #[arg(short = 'L', value_name = "[ADDR:]PORT:HOST:PORT", required = true)]
    local: Vec<LocalForward>,
    /// Link that `tidewire serve` printed (tidewire://...), or @FILE with the link. The default is
    /// TIDEWIRE_LINK
    #[arg(value_name = "LINK")]
    link: Option<String>,
    #[command(flatten)]
    own: Own,
    #[command(flatten)]
    coding: Coding,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Forwards until Ctrl-C.
///
/// # Errors
/// [`Exit::Usage`] for a wrong link, [`Exit::LocalIo`] if a port is in use, [`Exit::Unreachable`] if nothing
/// answers, [`Exit::Authentication`] if a target is not allowed; [`Exit::Sigint`] after Ctrl-C.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let link = link::given(args.link.as_deref()).or_exit(Exit::Usage)?;
    let config = args.coding.config(Some(&link)).or_exit(Exit::Usage)?;
    let credentials = keys::to_open(&link, args.own.key.as_deref(), &console)?;
    let config = config.to_builder().keep_alive(Some(KEEP_ALIVE)).build().or_exit(Exit::Other)?;
    let client = Client::new(link, credentials, config, &console);
    let ended = unless_interrupted(client.run(&args.local)).await;
    client.close(session::quietly(ended)).await
}
