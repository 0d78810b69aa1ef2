//! `tidewire keygen`: makes a secret, on stdout or in a file that only its owner can read, or a key pair,
//! with the private key in such a file.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use tidewire::{new_private_key, new_secret};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::Console;
use tidewire_command::stdout;

use crate::keys::{self, KeyFile};

/// Arguments of `keygen`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write the secret or private key to FILE, readable by its owner only. FILE must not exist
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Make a key pair: write the private key to FILE and print the public key, for links and
    /// --authorized-keys
    #[arg(long, requires = "output")]
    pair: bool,
    /// Print the public key of the private key in FILE, and make nothing new
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "pair"])]
    public: Option<PathBuf>,
}

/// Makes and writes a secret or a key pair.
///
/// # Errors
/// [`Exit::LocalIo`] if the file exists or cannot be written, [`Exit::Usage`] if the file of `--public` holds
/// no private key.
pub fn run(args: &Args, console: &Console) -> Result<(), Failure> {
    if let Some(path) = &args.public {
        let KeyFile::Private(private) = keys::read(path, console).or_exit(Exit::Usage)? else {
            let wanted = "holds a secret, which has no public key; make a key pair with --pair";
            return Err(Failure::message(Exit::Usage, format_args!("`{}` {wanted}", path.display())));
        };
        say(private.public());
        return Ok(());
    }
    match &args.output {
        Some(path) if args.pair => {
            let private = new_private_key().or_exit(Exit::Other)?;
            write(path, &private.reveal())?;
            say(private.public());
        }
        Some(path) => write(path, &new_secret().or_exit(Exit::Other)?.reveal())?,
        None => say(&*new_secret().or_exit(Exit::Other)?.reveal()),
    }
    Ok(())
}

fn say(text: impl Display) {
    stdout::write_line(&text.to_string());
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    keys::write_private(path, text)
        .map_err(|error| Failure::message(Exit::LocalIo, format_args!("cannot write `{}`: {error}", path.display())))
}
