//! The log that the environment asks for: `TIDEWIRE_LOG=debug tidewire send ...` writes to stderr.
//!
//! `main` starts it before the verb runs. Without the variable nothing is logged, and connections have no
//! trace.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::exit::{Exit, Failure};

/// Environment variable with a level, or with filters of the crate `tracing-subscriber`.
pub const LOG_VARIABLE: &str = "TIDEWIRE_LOG";

/// Starts the log if the environment asks for one.
///
/// # Errors
/// [`Exit::Usage`] if the variable has no valid filter.
pub fn start() -> Result<(), Failure> {
    let Ok(text) = std::env::var(LOG_VARIABLE) else { return Ok(()) };
    let filter = EnvFilter::builder().parse(&text).map_err(|error| {
        let example = "write a level (error, warn, info, debug, trace) or filters such as tidewire=debug";
        Failure::message(Exit::Usage, format_args!("{LOG_VARIABLE}={text}: {error}; {example}"))
    })?;
    let stderr = std::io::stderr();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(stderr.is_terminal());
    log.with_writer(std::io::stderr).init();
    Ok(())
}
