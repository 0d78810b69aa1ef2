//! The `tidewire` command: parses the command line, runs the verb, ends with its code.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidewire_cli::verb::main()
}
