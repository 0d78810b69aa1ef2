//! `tidewire completions SHELL`: prints the script that makes a shell complete verbs and options.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "For bash: tidewire completions bash > ~/.local/share/bash-completion/completions/tidewire")]
pub struct Args {
    /// Shell to print the script for
    shell: Shell,
}

/// Prints the script on stdout.
pub fn run(args: &Args) {
    let mut script = Vec::new();
    generate(args.shell, &mut super::Cli::command(), "tidewire", &mut script);
    // A reader that closed the pipe is not a failure.
    let _ = std::io::stdout().lock().write_all(&script);
}
