//! Watching a job: its connections report what happens to a fan-out, and consumers turn that into recordings,
//! displays and figures.
//!
//! Each verb that carries data flattens [`WatchArgs`] into its arguments, calls [`WatchArgs::begin`] with its
//! configuration, and keeps the [`Watching`] until its connections are closed. Without an option of this
//! room, the configuration gets no trace and nothing runs. Invariant: no consumer, however slow, delays a
//! connection. What it cannot take is dropped and counted.

mod consumer;
mod hub;
mod metrics;
mod qlog;
mod record;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tidewire::Config;
use tidewire_units::parse_size;

pub use consumer::{Batch, Consumer, Observed};
use hub::Hub;
pub use hub::Watching;
use record::Recorder;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::keylog::KeyLogging;
use tidewire_command::report::Console;

use crate::dash;

/// Port of `--metrics` that `top` looks at. Chosen: beside 7700, the port of the examples of links.
pub const METRICS_PORT: u16 = 7_780;

/// Options that show or keep what the connections of a job do.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Watching")]
pub struct WatchArgs {
    /// Show the job in a browser, at this address [example: 127.0.0.1:8080]. The default is a free port of
    /// this machine; the command prints the address with its secret part (docs/dashboard.md)
    #[arg(
        long,
        value_name = "ADDR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "127.0.0.1:0"
    )]
    dashboard: Option<SocketAddr>,
    /// Serve figures for Prometheus and `tidewire top` at ADDR [example: 127.0.0.1:7780]
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// Write every event into FILE, as text in the form of qlog
    #[arg(long, value_name = "FILE")]
    qlog: Option<PathBuf>,
    #[command(flatten)]
    keylog: KeyLogging,
    /// Record what the connections do into FILE (docs/recording.md). A file of this name is replaced
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// End the recording at this size, and go on with the job [default: 1GiB]
    #[arg(long, value_name = "SIZE", requires = "record", value_parser = parse_size)]
    pub record_limit: Option<u64>,
}

/// What a consumer may want to know about the job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name on the command line.
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
        let key_log = self.keylog.open(console)?;
        let config = config.to_builder().key_log(key_log).build().or_exit(Exit::Other)?;
        let consumers = self.consumers(&Job { verb, console: console.clone() })?;
        if consumers.is_empty() {
            return Ok((config, Watching::nothing()));
        }
        let (hub, watching) = Hub::start(consumers, console);
        Ok((config.with_trace(Arc::new(hub)), watching))
    }

    /// The consumers that the options ask for. Each option adds one here.
    fn consumers(&self, job: &Job) -> Result<Vec<Box<dyn Consumer>>, Failure> {
        let mut consumers: Vec<Box<dyn Consumer>> = Vec::new();
        if let Some(address) = self.dashboard {
            consumers.push(dash::watch(address, job.verb, &job.console)?);
        }
        if let Some(address) = self.metrics {
            consumers.push(Box::new(metrics::open(address, job)?));
        }
        if let Some(path) = &self.qlog {
            consumers.push(Box::new(qlog::Qlog::create(path, job)?));
        }
        if let Some(path) = &self.record {
            consumers.push(Box::new(Recorder::create(path, self.record_limit, job)?));
        }
        Ok(consumers)
    }
}
