//! `tidewire sim SCENARIO`: a scenario in virtual time.

use std::path::PathBuf;

use crate::exit::{Exit, Failure, OrExit};
use crate::options::Output;
use crate::report::Console;

/// Arguments of `sim`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Scenario file
    scenario: PathBuf,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Runs the scenario.
///
/// # Errors
/// [`Exit::Usage`] for a wrong scenario.
pub fn run(args: &Args, _: &Console) -> Result<(), Failure> {
    tidewire_sim::scenario::Scenario::read(&args.scenario).or_exit(Exit::Usage)?;
    Err(Failure::message(Exit::Other, "waits for the pair driver"))
}
