//! Watching a job: the options that show or keep what its connections do, and what the user is told of it.
//!
//! Each verb that carries data flattens [`WatchArgs`] into its arguments, calls [`WatchArgs::begin`] with its
//! configuration, and keeps the [`Watching`] until its connections are closed. Without an option of this
//! room, the configuration gets no trace and nothing runs. The consumers are those of [`tidewire_dashboard`].

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tidewire::Config;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::keylog::KeyLogging;
use tidewire_command::report::{Console, Event as Common};
use tidewire_dashboard::{Consumer, Dashboard, FanOut, Metrics, PageError, Qlog, Recorder, Watching};
use tidewire_units::parse_size;

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

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// The page of the job.
    Dashboard {
        /// Its address. Whoever knows it can watch.
        url: &'a str,
    },
}

/// Tells the user where the page is.
pub fn announce(url: &str, console: &Console) {
    console.event(&Event::Dashboard { url });
    console.say(&format!("dashboard: {url}"));
}

/// There is no page.
pub fn no_page(error: PageError) -> Failure {
    let exit = if matches!(error, PageError::Port { .. }) { Exit::Usage } else { Exit::Other };
    Failure::new(exit, error)
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
        let consumers = self.consumers(verb, console)?;
        if consumers.is_empty() {
            return Ok((config, Watching::nothing()));
        }
        let console = console.clone();
        let (fan_out, watching) = FanOut::start(consumers, move |name, reason| {
            console.warn(&format!("tidewire: {name} ends here: {reason}; the job goes on"));
        })
        .context("the system refuses a thread; allow more (ulimit -u)")
        .or_exit(Exit::Other)?;
        Ok((config.with_trace(Arc::new(fan_out)), watching))
    }

    /// The consumers that the options ask for. Each option adds one here.
    fn consumers(&self, verb: &str, console: &Console) -> Result<Vec<Box<dyn Consumer>>, Failure> {
        let mut consumers: Vec<Box<dyn Consumer>> = Vec::new();
        if let Some(address) = self.dashboard {
            consumers.push(Box::new(dashboard(address, verb, console)?));
        }
        if let Some(address) = self.metrics {
            consumers.push(Box::new(metrics(address, verb, console)?));
        }
        if let Some(path) = &self.qlog {
            let opened = Qlog::create(path, verb).with_context(|| format!("cannot write --qlog `{}`", path.display()));
            consumers.push(Box::new(opened.or_exit(Exit::LocalIo)?));
        }
        if let Some(path) = &self.record {
            consumers.push(Box::new(recorder(path, self.record_limit, verb)?));
        }
        Ok(consumers)
    }
}

/// Shows the job. The page gets the summaries of the console.
fn dashboard(address: SocketAddr, verb: &str, console: &Console) -> Result<Dashboard, Failure> {
    let summaries = console.clone();
    let page = Dashboard::open(address, verb, move || summaries.take_summary()).map_err(no_page)?;
    announce(page.url(), console);
    Ok(page)
}

/// Serves the figures of the job, and tells where.
fn metrics(address: SocketAddr, verb: &str, console: &Console) -> Result<Metrics, Failure> {
    let opened = Metrics::open(address, verb);
    let metrics = opened
        .with_context(|| format!("cannot listen on --metrics {address}; choose another port"))
        .or_exit(Exit::Usage)?;
    let local = metrics.address();
    if !local.ip().is_loopback() {
        console.warn(&format!("the figures of this job are open to everyone who reaches {local}"));
    }
    let url = metrics.url();
    console.say(&format!("figures for Prometheus: {url}"));
    console.event(&Common::Metrics { url });
    Ok(metrics)
}

fn recorder(path: &Path, limit: Option<u64>, verb: &str) -> Result<Recorder, Failure> {
    Recorder::create(path, limit, verb).map_err(|error| {
        let name = path.display();
        Failure::message(
            Exit::LocalIo,
            format_args!("cannot record into `{name}`: {error}; name another file with --record"),
        )
    })
}
