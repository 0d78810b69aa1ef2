//! Runs of the papers' experiments over the lab's link in real time, and the files of their results.
//!
//! The caller makes [`Runs`] for each experiment and passes them to its cases. It is told about each run when
//! it ends, because a run takes ten seconds. A run that fails is named, and its point is left out. Invariant:
//! no file is written without the conditions of the measurement.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tidewire_lab::distribution::{Distribution, milliseconds};
use tidewire_lab::pair::{Carried, carry};
use tidewire_lab::peer::Table;
use tidewire_lab::processor::Look;
use tidewire_lab::trial::{Measured, Traffic, Trial};
use tidewire_proto::config::Config;
use tidewire_sim::duplex::DuplexConfig;

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
    /// Mean in-order delay in milliseconds.
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

    /// Runs a saturated peer of the lab's table; `None` if it failed.
    pub fn peer(&mut self, name: &str, loss: f64, link: DuplexConfig, time: Duration) -> Option<Measured> {
        let before = Look::now();
        let run = || {
            let table = Table::read(None)?;
            Trial { link, program: self.program, peer: table.named(name)?, load: Traffic::Full, time }.run()
        };
        let measured = run().map_err(|problem| self.fail(name, loss, &problem)).ok()?;
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
        std::fs::write(folder.join(format!("{name}.csv")), row::csv(rows))?;
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
