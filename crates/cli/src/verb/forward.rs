//! `tidewire forward -L [ADDR:]PORT:HOST:PORT LINK`: TCP connections to here are taken up at the far side, as with `ssh -L`.

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
    /// Listen on PORT (of this machine only, or of ADDR) and have the far side connect to HOST:PORT; repeat it for more
    #[arg(short = 'L', value_name = "[ADDR:]PORT:HOST:PORT", required = true)]
    local: Vec<LocalForward>,
    /// What `tidewire serve` printed: tidewire://..., or @FILE that holds it; without it, TIDEWIRE_LINK is used
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
/// [`Exit::Usage`] for a wrong link, [`Exit::LocalIo`] when a port is taken, [`Exit::Unreachable`] when nothing answers,
/// [`Exit::Authentication`] when a target is not allowed; [`Exit::Sigint`] in the end.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let link = link::given(args.link.as_deref()).or_exit(Exit::Usage)?;
    let mut config = args.coding.config(Some(&link)).or_exit(Exit::Usage)?;
    let credentials = keys::to_open(&link, args.own.key.as_deref(), &console)?;
    config.keep_alive = Some(KEEP_ALIVE);
    let client = Client::new(link, credentials, config, &console);
    let ended = unless_interrupted(client.run(&args.local)).await;
    client.close(session::quietly(ended)).await
}
