//! Runs of the papers' experiments over the lab's link in real time, and the files of what they measured.
//!
//! The verb `papers NAME --lab` makes [`Runs`] for each experiment, which says what it does as it goes: a run takes ten seconds. A run that fails is
//! named and leaves its point out. Invariant: no file without the conditions it was measured under.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tidewire::Config;
use tidewire_sim::duplex::DuplexConfig;

use super::conditions::{Conditions, Jiffies};
use super::row::{self, Row};
use crate::distribution::{Distribution, milliseconds};
use crate::lab::pair::{Carried, carry};
use crate::lab::peer::Table;
use crate::lab::trial::{Load, Measured, Trial};
use crate::report::{Console, rate};

/// Runs of one experiment.
#[derive(Debug)]
pub struct Runs<'a> {
    console: &'a Console,
    done: Vec<Run>,
    failed: Vec<String>,
}

/// What tells whether a run can be trusted.
#[derive(Clone, Debug, Serialize)]
struct Run {
    name: String,
    loss: f64,
    mean_delay_ms: f64,
    goodput_bps: f64,
    /// How late the emulator handed on packets, 95th percentile.
    late_p95_ms: f64,
    /// Packets that it did not read in time.
    unread: u64,
    /// Share of the processors' time that the host of a virtual machine kept.
    stolen: f64,
}

impl<'a> Runs<'a> {
    /// None yet.
    pub fn new(console: &'a Console) -> Self {
        Self { console, done: Vec::new(), failed: Vec::new() }
    }

    /// Those that failed.
    pub fn failed(&self) -> &[String] {
        &self.failed
    }

    /// A file of ours; none if it did not arrive.
    pub fn file(
        &mut self,
        name: &str,
        loss: f64,
        link: &DuplexConfig,
        ends: [Config; 2],
        bytes: u64,
        limit: Duration,
    ) -> Option<Carried> {
        let before = Jiffies::now();
        let carried = carry(link, ends, bytes, limit).map_err(|problem| self.fail(name, loss, &problem)).ok()?;
        self.note(Run {
            name: name.to_owned(),
            loss,
            mean_delay_ms: milliseconds(carried.far.delay.mean()),
            goodput_bps: 8.0 * bytes as f64 / carried.time.as_secs_f64(),
            late_p95_ms: late_p95(&carried.late),
            unread: carried.unread,
            stolen: Jiffies::now().stolen_since(before),
        });
        Some(carried)
    }

    /// A peer of `peers.toml`, saturated; none if it failed.
    pub fn peer(&mut self, name: &str, loss: f64, link: DuplexConfig, time: Duration) -> Option<Measured> {
        let before = Jiffies::now();
        let run = || {
            let table = Table::read(None)?;
            Trial { link, peer: table.named(name)?, load: Load::Full, time }.run()
        };
        let measured = run().map_err(|problem| self.fail(name, loss, &problem)).ok()?;
        self.note(Run {
            name: name.to_owned(),
            loss,
            mean_delay_ms: measured.delay.mean().unwrap_or_default(),
            goodput_bps: measured.goodput_bps,
            late_p95_ms: late_p95(&measured.late),
            unread: measured.unread,
            stolen: Jiffies::now().stolen_since(before),
        });
        Some(measured)
    }

    fn note(&mut self, run: Run) {
        let Run { name, loss, mean_delay_ms, goodput_bps, .. } = &run;
        let goodput = rate(*goodput_bps);
        self.console.say(&format!("  {name}, loss {} %: mean delay {mean_delay_ms:.1} ms, {goodput}", 100.0 * loss));
        self.done.push(run);
    }

    fn fail(&mut self, name: &str, loss: f64, problem: &anyhow::Error) {
        let name = format!("{name}, loss {} %", 100.0 * loss);
        self.console.warn(&format!("  {name}: {problem:#}"));
        self.failed.push(name);
    }

    /// Writes `rows` as `NAME.csv`, and with the conditions and the runs as `NAME.json`, into `folder`.
    ///
    /// # Errors
    /// What the file system says.
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
