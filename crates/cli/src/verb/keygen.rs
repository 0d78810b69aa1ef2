//! `tidewire keygen`: a fresh secret, on stdout or in a file that only its owner can read.

use std::io::Write;
use std::path::PathBuf;

use crate::exit::{Exit, Failure, OrExit};
use crate::link::fresh_secret;

/// Arguments of `keygen`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write it to FILE, which must not exist, readable by its owner only
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Makes and writes the secret.
///
/// # Errors
/// [`Exit::LocalIo`] when the file exists or cannot be written.
pub fn run(args: &Args) -> Result<(), Failure> {
    let text = fresh_secret().or_exit(Exit::Other)?.reveal();
    let Some(path) = &args.output else {
        // A closed pipe is the reader's business.
        let _ = writeln!(std::io::stdout(), "{}", *text);
        return Ok(());
    };
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut file| {
        writeln!(file, "{}", *text)?;
        file.sync_all()
    });
    written.map_err(|error| Failure::message(Exit::LocalIo, format_args!("cannot write `{}`: {error}", path.display())))
}
