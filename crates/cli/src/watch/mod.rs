//! Watching a job: its connections report what happens to a fan-out, and consumers turn that into recordings,
//! displays and figures.
//!
//! Each verb that carries data flattens [`WatchArgs`] into its arguments, calls [`WatchArgs::begin`] with its
//! configuration, and keeps the [`Watching`] until its connections are closed. Without an option of this
//! room, the configuration gets no trace and nothing runs. Invariant: no consumer, however slow, delays a
//! connection. What it cannot take is dropped and counted.

mod consumer;
mod hub;

use std::sync::Arc;

use clap::Args;
use tidewire::Config;

pub use consumer::{Batch, Consumer, Observed};
use hub::Hub;
pub use hub::Watching;

use crate::exit::Failure;
use crate::report::Console;

/// Options that show or keep what the connections of a job do.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Watching")]
pub struct WatchArgs {}

/// What a consumer may want to know about the job.
#[derive(Clone, Debug)]
pub struct Job {
    /// The verb.
    pub verb: &'static str,
    /// The output of the job, for warnings.
    pub console: Console,
}

impl WatchArgs {
    /// Starts the consumers that the options ask for. Returns the configuration with the trace that feeds
    /// them. Call it once for each job, before the first endpoint is made.
    ///
    /// # Errors
    /// What a consumer needs cannot be had, such as a file or a port.
    pub fn begin(&self, verb: &'static str, config: Config, console: &Console) -> Result<(Config, Watching), Failure> {
        let consumers = self.consumers(&Job { verb, console: console.clone() })?;
        if consumers.is_empty() {
            return Ok((config, Watching::nothing()));
        }
        let (hub, watching) = Hub::start(consumers, console);
        Ok((config.with_trace(Arc::new(hub)), watching))
    }

    /// The consumers that the options ask for. Each option adds one here.
    fn consumers(&self, job: &Job) -> Result<Vec<Box<dyn Consumer>>, Failure> {
        let _ = job;
        Ok(Vec::new())
    }
}
