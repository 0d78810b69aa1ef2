//! `tidewire dash FILE...`: shows recordings of `--record` in a browser.

use std::net::SocketAddr;
use std::path::PathBuf;

use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::interrupt::{self, quietly, unless_interrupted};
use tidewire_command::options::Output;
use tidewire_command::report::Console;
use tidewire_dashboard::Recording;

use crate::watch::{announce, no_page};

/// Arguments of `dash`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Recordings that --record wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Address of the page. The default is a free port of this machine
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Serves the page until Ctrl-C.
///
/// # Errors
/// [`Exit::Usage`] if a file is no recording, or the port is taken.
pub async fn run(args: Args, console: Console) -> Result<(), Failure> {
    let recordings: Vec<Recording> =
        args.files.into_iter().map(Recording::find).collect::<Result<_, _>>().or_exit(Exit::Usage)?;
    interrupt::heed();
    let shown = tidewire_dashboard::show(args.listen, recordings).map_err(no_page)?;
    announce(shown.url(), &console);
    quietly(unless_interrupted(std::future::pending()).await)
}
