//! `tidewire lab`: emulated links. A UDP proxy needs no privileges; links between hosts in network namespaces
//! need root on Linux.

#[cfg(target_os = "linux")]
mod check;
#[cfg(target_os = "linux")]
mod comparison;
#[cfg(target_os = "linux")]
mod contest;
#[cfg(target_os = "linux")]
mod hosts;
mod link;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod peers;

use std::path::Path;

use serde::Serialize;
use tidewire_lab::distribution::milliseconds;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::link::LinkStats;
use tidewire_sim::scenario::Scenario;

use super::{Ended, block_on, with};
use crate::exit::{Exit, Failure, OrExit};
use crate::report::Console;

/// The event that `lab link` and `sim` share.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// What `lab link` has carried so far, or `sim` in all.
    LinkStats {
        /// Counts of the direction toward the target.
        forward: LinkCounts,
        /// Counts of the direction from the target.
        back: LinkCounts,
        /// Clients that have sent something.
        clients: u64,
    },
}

/// What one direction of an emulated link did with its datagrams.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LinkCounts {
    /// Datagrams that arrived at the link.
    offered: u64,
    /// Datagrams that the link handed on.
    delivered: u64,
    /// Datagrams dropped by the loss model, by a blackout, or because they exceed the MTU.
    lost: u64,
    /// Datagrams dropped because the queue was full.
    queue_dropped: u64,
    /// Datagrams dropped by CoDel.
    codel_dropped: u64,
    /// Datagrams dropped by the policer.
    policed: u64,
    /// Datagrams handed on with a congestion mark, if their senders know marks.
    marked: u64,
    /// Attempts that the link made again.
    attempts_repeated: u64,
    /// Mean time in the queue.
    queueing_ms: f64,
    /// IP bytes that arrived at the link.
    offered_bytes: u64,
    /// IP bytes that the link handed on.
    delivered_bytes: u64,
}

/// The verbs of the lab.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Emulate a lossy link between UDP sockets. Senders use the --listen address instead of the receiver's
    Link(Box<link::LinkArgs>),
    /// Run the hosts of a scenario in network namespaces, joined by its links, until Ctrl-C (needs root)
    #[cfg(target_os = "linux")]
    Up(hosts::UpArgs),
    /// Run a command on one of two hosts joined by a scenario's link, measure peers across the link, or run
    /// the flows of a network (needs root)
    #[cfg(target_os = "linux")]
    Run(Box<hosts::RunArgs>),
    /// Compare the lab with the link that it emulates: rate, losses, bursts, added delay (needs root)
    #[cfg(target_os = "linux")]
    Check(check::Args),
    /// Measure how flows of kernel TCP and Tidewire share one queue (needs root)
    #[cfg(target_os = "linux")]
    Contest(contest::Args),
}

/// Runs a verb of the lab.
pub fn run(command: Command) -> (Console, Ended) {
    match command {
        Command::Link(args) => with(args.output.console(), |console| block_on(link::run(args, console))),
        #[cfg(target_os = "linux")]
        Command::Up(args) => with(args.output.console(), |console| block_on(hosts::up(args, console))),
        #[cfg(target_os = "linux")]
        Command::Run(args) => with(args.console(), |console| block_on(hosts::run(*args, console))),
        #[cfg(target_os = "linux")]
        Command::Check(args) => with(args.output.console(), |console| check::run(&args, &console)),
        #[cfg(target_os = "linux")]
        Command::Contest(args) => with(args.output.console(), |console| contest::run(&args, &console)),
    }
}

/// Reads the link of a scenario file, or of the text `default` without one. `seed` replaces the file's seed.
fn link_of(scenario: Option<&Path>, default: &str, seed: Option<u64>) -> Result<DuplexConfig, Failure> {
    let scenario = match scenario {
        Some(path) => Scenario::read(path),
        None => Scenario::parse(default, Path::new("default")),
    };
    let mut config = scenario.or_exit(Exit::Usage)?.link;
    if let Some(seed) = seed {
        config.set_seed(seed);
    }
    Ok(config)
}

/// Converts the counts of one direction for `--json`.
pub(super) fn counts(link: &LinkStats) -> LinkCounts {
    LinkCounts {
        offered: link.offered,
        delivered: link.delivered,
        lost: link.lost + link.blacked_out + link.too_long,
        queue_dropped: link.queue_dropped,
        codel_dropped: link.codel_dropped,
        policed: link.policed(),
        marked: link.marked,
        attempts_repeated: link.attempts_repeated(),
        queueing_ms: milliseconds(link.mean_queueing()),
        offered_bytes: link.offered_bytes,
        delivered_bytes: link.delivered_bytes,
    }
}

/// Describes the counts of the two directions, a line each.
fn describe(forward: &LinkStats, back: &LinkStats) -> String {
    let way = |link: &LinkStats| {
        let LinkCounts { offered, delivered, lost, queue_dropped, policed, queueing_ms, .. } = counts(link);
        format!(
            "{offered} came, {delivered} went on, {lost} lost, {queue_dropped} queue full, {policed} policed, \
             {queueing_ms:.1} ms queueing"
        )
    };
    format!("there: {}\nback:  {}", way(forward), way(back))
}
