//! The `tidewire` command: parses the command line, runs the verb, ends with its code.

use std::process::ExitCode;

use clap::Parser;
use tidewire_cli::verb::Cli;

fn main() -> ExitCode {
    tidewire_cli::verb::main(Cli::parse())
}
