//! Results of the protocol on a series of links, kept as snapshots, so that a change of the protocol shows as
//! a difference, and the figures that it must reach.
//!
//! All links have 25 Mbit/s and a queue of one round trip. Each cell has three seeds, and each column is a
//! median. `INSTA_UPDATE=always` writes the snapshots anew.

mod figures;

use core::fmt::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tidewire_proto::config::Config;
use tidewire_proto::profile::Profile;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::{Report, Trial};
use tidewire_sim::settings::Direction;

const RATE: f64 = 25e6;
const SEEDS: [u64; 3] = [1, 2, 3];
const LOSSES: [&str; 8] = ["0%", "1%", "2%", "5%", "10%", "20%", "gilbert:5%,4", "gilbert:10%,4"];
const POLICIES: [&str; 4] = ["none", "block:32,5", "every:5", "adaptive"];

/// A cell of a table.
#[derive(Clone, Copy, Debug)]
struct Cell {
    policy: &'static str,
    loss: &'static str,
    back_loss: &'static str,
    rtt: &'static str,
    bytes: u64,
    /// Bytes per second that the application writes. `None` means as many as the path takes.
    load: Option<u64>,
}

/// A profile by its name, or the default profile with another redundancy.
fn profile(text: &str) -> Profile {
    text.parse().unwrap_or_else(|_| Profile { redundancy: text.parse().unwrap(), ..Profile::default() })
}

impl Cell {
    fn run(&self, seed: u64) -> Report {
        let mut link = DuplexConfig::default();
        let mut set = |direction, key, text| link.set(direction, key, text, Path::new("")).unwrap();
        set(Direction::Both, "rate", "25mbit");
        set(Direction::Both, "rtt", self.rtt);
        set(Direction::Both, "queue", self.rtt);
        set(Direction::Forward, "loss", self.loss);
        set(Direction::Back, "loss", self.back_loss);
        link.set_seed(seed);
        let flow = match self.load {
            Some(rate) => Flow::paced(End::Near, self.bytes, rate),
            None => Flow::bulk(End::Near, self.bytes),
        };
        let mut trial = Trial::new(link, vec![flow], seed);
        let config = Config::builder().profile(profile(self.policy)).build().expect("in range");
        (trial.near, trial.far) = (config.clone(), config);
        let report = trial.run();
        assert!(report.done, "{self:?} seed {seed}: {report:?}");
        report
    }

    /// Bits per second that the losses leave.
    fn capacity(&self) -> f64 {
        let share = self.loss.trim_start_matches("gilbert:").split('%').next().unwrap();
        RATE * (1.0 - share.parse::<f64>().unwrap() / 100.0)
    }
}

/// Runs every cell with every seed, on all cores, and returns the reports in order.
fn run_all(cells: &[Cell]) -> Vec<Vec<Report>> {
    let jobs: Vec<(Cell, u64)> = cells.iter().flat_map(|&cell| SEEDS.map(|seed| (cell, seed))).collect();
    let next = AtomicUsize::new(0);
    let reports = Mutex::new(Vec::new());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let Some((cell, seed)) = jobs.get(job) else { return };
                    let report = cell.run(*seed);
                    reports.lock().unwrap().push((job, report));
                }
            });
        }
    });
    let mut reports = reports.into_inner().unwrap();
    reports.sort_by_key(|&(job, _)| job);
    let reports: Vec<Report> = reports.into_iter().map(|(_, report)| report).collect();
    reports.chunks(SEEDS.len()).map(<[Report]>::to_vec).collect()
}

/// Median over the seeds.
fn median(reports: &[Report], of: impl Fn(&Report) -> f64) -> f64 {
    tidewire_figures::median(reports.iter().map(of))
}

fn millis(duration: core::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Two significant digits, which a change of the protocol moves and another seed does not.
fn rounded(value: f64) -> String {
    if value < 0.05 {
        return "0".to_owned();
    }
    let digits = (1 - value.log10().floor() as i32).clamp(0, 1) as usize;
    let step = 10f64.powf(value.log10().floor() - 1.0);
    format!("{:.digits$}", (value / step).round() * step)
}

fn table(rtt: &'static str, load: Option<u64>, bytes: u64) -> String {
    let grid = LOSSES.iter().flat_map(|&loss| POLICIES.map(|policy| (loss, policy)));
    let cells: Vec<Cell> =
        grid.map(|(loss, policy)| Cell { policy, loss, back_loss: "0%", rtt, bytes, load }).collect();
    let mut text = String::new();
    writeln!(text, "loss           policy       goodput   delay ms: mean    p50    p99   sent/app  queue ms").unwrap();
    for (cell, reports) in cells.iter().zip(run_all(&cells)) {
        let limit = load.map_or(cell.capacity(), |bytes| bytes as f64 * 8.0);
        let goodput = median(&reports, |r| r.goodput_bps) / limit * 100.0;
        let delay = |of: fn(&Report) -> f64| rounded(median(&reports, of));
        writeln!(
            text,
            "{:<14} {:<12} {goodput:>5.0} % {:>16} {:>6} {:>6} {:>10.2} {:>9}",
            cell.loss,
            cell.policy,
            delay(|r| millis(r.delay().mean())),
            delay(|r| millis(r.delay().quantile(0.5))),
            delay(|r| millis(r.delay().quantile(0.99))),
            median(&reports, Report::sent_per_byte),
            delay(|r| millis(r.outward().mean_queueing())),
        )
        .unwrap();
    }
    text
}

/// 12.5 Mbit/s in records of 1,200 bytes.
const HALF: Option<u64> = Some(1_562_500);

#[test]
#[ignore = "slow: seconds of processor time"]
fn saturated_at_10_ms() {
    insta::assert_snapshot!(table("10ms", None, 12_000_000));
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn saturated_at_60_ms() {
    insta::assert_snapshot!(table("60ms", None, 12_000_000));
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn half_load_at_10_ms() {
    insta::assert_snapshot!(table("10ms", HALF, 6_000_000));
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn half_load_at_60_ms() {
    insta::assert_snapshot!(table("60ms", HALF, 6_000_000));
}
