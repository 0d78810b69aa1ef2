//! Runs of the papers' experiments over the lab's link in real time, and the files of their results.
//!
//! The caller makes [`Runs`] for each experiment and passes them to its cases. It is told about each run when
//! it ends, because a run takes ten seconds. A run that fails is named, and its point is left out. Invariant:
//! no file is written without the conditions of the measurement.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tidewire_figures::{Distribution, milliseconds};
use tidewire_lab::contest::{Contest, Outcome};
use tidewire_lab::network;
use tidewire_lab::pair::{Carried, carry};
use tidewire_lab::peer::Table;
use tidewire_lab::processor::Look;
use tidewire_lab::trial::{Measured, Traffic, Trial};
use tidewire_lab::video::{Showing, Shown};
use tidewire_proto::config::Config;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::network::{FlowReport, Plan};

use crate::conditions::Conditions;
use crate::row::{self, Row};

/// The runs of one experiment.
pub struct Runs<'a> {
    program: &'a Path,
    tell: &'a dyn Fn(Told<'_>),
    done: Vec<Run>,
    failed: Vec<String>,
}

/// Figures that tell whether a run can be trusted.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Name of the transport.
    pub name: String,
    /// Loss rate of the link, from 0 to 1.
    pub loss: f64,
    /// Mean in-order delay in milliseconds; of a contest, of a video and of a
    /// network the mean time in the queue of the link, which is the narrowest one of a network.
    pub mean_delay_ms: f64,
    /// Bits per second that arrived.
    pub goodput_bps: f64,
    /// Lateness of the emulator, 95th percentile in milliseconds.
    pub late_p95_ms: f64,
    /// Packets that the emulator did not read in time.
    pub unread: u64,
    /// Fraction of the processors' time that the host of a virtual machine gave to others; `None` if the
    /// system does not report it.
    pub stolen: Option<f64>,
}

/// The end of a run.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// It succeeded, with these figures.
    Done(&'a Run),
    /// It failed.
    Failed {
        /// The transport and the loss.
        name: &'a str,
        /// Why it failed.
        problem: &'a anyhow::Error,
    },
}

impl<'a> Runs<'a> {
    /// No runs yet. `program` is the file of the `tidewire` command. `tell` is called after each run.
    pub fn new(program: &'a Path, tell: &'a dyn Fn(Told<'_>)) -> Self {
        Self { program, tell, done: Vec::new(), failed: Vec::new() }
    }

    /// Names of the runs that failed.
    pub fn failed(&self) -> &[String] {
        &self.failed
    }

    /// Runs a file over our transport; `None` if it did not arrive.
    pub fn file(
        &mut self,
        name: &str,
        loss: f64,
        link: &DuplexConfig,
        ends: [Config; 2],
        bytes: u64,
        limit: Duration,
    ) -> Option<Carried> {
        let before = Look::now();
        let carried = carry(link, ends, bytes, limit).map_err(|problem| self.fail(name, loss, &problem)).ok()?;
        self.note(Run {
            name: name.to_owned(),
            loss,
            mean_delay_ms: milliseconds(carried.far.delay.mean()),
            goodput_bps: 8.0 * bytes as f64 / carried.time.as_secs_f64(),
            late_p95_ms: late_p95(&carried.late),
            unread: carried.unread,
            stolen: stolen_since(before),
        });
        Some(carried)
    }

    /// The file of the `tidewire` command.
    pub fn program(&self) -> &'a Path {
        self.program
    }

    /// Runs a saturated peer of the lab's table; `None` if it failed.
    pub fn peer(&mut self, name: &str, loss: f64, link: DuplexConfig, time: Duration) -> Option<Measured> {
        let table = Table::read(None);
        let peer = table.as_ref().map_err(|problem| self.fail(name, loss, problem)).ok()?.named(name);
        let peer = peer.map_err(|problem| self.fail(name, loss, &problem)).ok()?;
        let trial = Trial { link, program: self.program, peer, load: Traffic::Full, record: None, time };
        self.trial(name, loss, &trial)
    }

    /// Runs a trial; `None` if it failed.
    pub fn trial(&mut self, name: &str, loss: f64, trial: &Trial<'_>) -> Option<Measured> {
        let before = Look::now();
        let measured = trial.run().map_err(|problem| self.fail(name, loss, &problem)).ok()?;
        self.note(Run {
            name: name.to_owned(),
            loss,
            mean_delay_ms: measured.delay.mean().unwrap_or_default(),
            goodput_bps: measured.goodput_bps,
            late_p95_ms: late_p95(&measured.late),
            unread: measured.unread,
            stolen: stolen_since(before),
        });
        Some(measured)
    }

    /// Runs a contest; `None` if it failed. Its goodput is that of all flows.
    pub fn contest(&mut self, name: &str, loss: f64, contest: &Contest) -> Option<Outcome> {
        let before = Look::now();
        let outcome = contest.run().map_err(|problem| self.fail(name, loss, &problem)).ok()?;
        self.note(Run {
            name: name.to_owned(),
            loss,
            mean_delay_ms: milliseconds(outcome.counts.forward().mean_queueing()),
            goodput_bps: outcome.goodput_bps.iter().sum(),
            late_p95_ms: late_p95(&outcome.counts.late.distribution()),
            unread: outcome.unread,
            stolen: stolen_since(before),
        });
        Some(outcome)
    }

    /// Shows a video; `None` if it failed. Its goodput is that until the last byte or the end of the run.
    pub fn video(&mut self, name: &str, loss: f64, showing: &Showing) -> Option<Shown> {
        let before = Look::now();
        let shown = showing.run().map_err(|problem| self.fail(name, loss, &problem)).ok()?;
        let time = shown.arrived.unwrap_or(showing.time);
        self.note(Run {
            name: name.to_owned(),
            loss,
            mean_delay_ms: milliseconds(shown.counts.forward().mean_queueing()),
            goodput_bps: 8.0 * shown.bytes as f64 / time.as_secs_f64(),
            late_p95_ms: late_p95(&shown.counts.late.distribution()),
            unread: shown.unread,
            stolen: stolen_since(before),
        });
        Some(shown)
    }

    /// Runs a network's plan; `None` if it failed. Its goodput is that of all flows, and the time in queues
    /// is that of the link number `narrow`.
    pub fn network(&mut self, name: &str, loss: f64, plan: &Plan, narrow: usize) -> Option<network::Outcome> {
        let before = Look::now();
        // No plan of a figure has peers.
        let outcome = Table::read(None).and_then(|table| network::run(plan, self.program, &table));
        let outcome = outcome.map_err(|problem| self.fail(name, loss, &problem)).ok()?;
        let queueing = outcome.report.links.get(narrow).map(|link| link.stats[0].mean_queueing());
        self.note(Run {
            name: name.to_owned(),
            loss,
            mean_delay_ms: milliseconds(queueing.unwrap_or_default()),
            goodput_bps: outcome.report.flows.iter().map(FlowReport::goodput_bps).sum(),
            late_p95_ms: late_p95(&outcome.counts.late.distribution()),
            unread: outcome.unread,
            stolen: stolen_since(before),
        });
        Some(outcome)
    }

    fn note(&mut self, run: Run) {
        (self.tell)(Told::Done(&run));
        self.done.push(run);
    }

    fn fail(&mut self, name: &str, loss: f64, problem: &anyhow::Error) {
        let name = format!("{name}, loss {} %", 100.0 * loss);
        (self.tell)(Told::Failed { name: &name, problem });
        self.failed.push(name);
    }

    /// Writes `rows` as `NAME.csv`, and with the conditions and the runs as `NAME.json`, into `folder`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, folder: &Path, name: &str, conditions: &Conditions, rows: &[Row]) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join(format!("{name}.csv")), row::table(rows))?;
        let conditions = serde_json::to_string(conditions)?;
        let (runs, rows) = (row::json(&self.done)?, row::json(rows)?);
        let text = format!("{{\"conditions\": {conditions},\n\"runs\": {runs},\n\"rows\": {rows}}}\n");
        std::fs::write(folder.join(format!("{name}.json")), text)
    }
}

fn late_p95(late: &Distribution) -> f64 {
    late.quantile(0.95).unwrap_or_default()
}

fn stolen_since(before: Option<Look>) -> Option<f64> {
    Some(Look::now()?.since(&before?)?.stolen)
}
