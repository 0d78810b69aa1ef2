//! `tidewire_model` against the ideal queue with random losses: only what the formulas assume.
//!
//! Cells are means of independent runs, whose spread shows the effect of chance. With few seeds it has a
//! tenth of the symbols and five times the tolerance.

use std::path::Path;
use std::thread;

use tidewire_model::gilbert::{self, Gilbert};
use tidewire_model::streaming::Streaming;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::ideal::{Delays, losses, open_loop};
use tidewire_sim::settings::Direction;

/// Runs of one cell.
const RUNS: u64 = 8;

/// The simulation of one cell: all delays, mean over the runs, its relative standard error, and how much
/// looser that is.
struct Cell {
    delays: Delays,
    mean: f64,
    error: f64,
    looser: f64,
}

impl Cell {
    fn run(loss: &str, spacing: f64, symbols: u64) -> Self {
        let few = tidewire_testing::few_seeds();
        let (symbols, looser) = if few { (symbols / 10, 5.0) } else { (symbols, 1.0) };
        let mut link = DuplexConfig::default();
        link.set(Direction::Forward, "loss", loss, Path::new("")).unwrap();
        let run = |seed| open_loop(spacing, symbols / RUNS, losses(&link.forward.loss, seed));
        let runs = thread::scope(|scope| {
            let halves =
                [0, 1].map(|half| scope.spawn(move || (0..RUNS / 2).map(|n| run(2 * n + half)).collect::<Vec<_>>()));
            halves.map(|half| half.join().unwrap()).concat()
        });
        let mean = runs.iter().map(Delays::mean).sum::<f64>() / RUNS as f64;
        let variance = runs.iter().map(|run| (run.mean() - mean).powi(2)).sum::<f64>() / (RUNS - 1) as f64;
        let mut delays = Delays::default();
        runs.iter().for_each(|run| delays.merge(run));
        Self { delays, mean, error: (variance / RUNS as f64).sqrt() / mean, looser }
    }

    /// Checks that the mean is within `tolerance` of the model's, the fractions later than its p50, p90 and
    /// p99 within four times that, and that of the p999, which has few samples, within eight times.
    fn agrees(&self, name: &str, mean: f64, quantile: impl Fn(f64) -> Option<f64>, tolerance: f64) {
        let off = self.mean / mean - 1.0;
        println!(
            "{name}: {:.4} slots, model {mean:.4}, off {:+.2} %, error {:.2} %",
            self.mean,
            1e2 * off,
            1e2 * self.error
        );
        assert!(off.abs() < tolerance * self.looser, "{name}");
        let slack = 4.0 * tolerance * self.looser;
        for q in [0.5, 0.9, 0.99] {
            let expected = quantile(q).unwrap();
            let (from, beyond) = (self.late(expected - 1.0) / (1.0 - q), self.late(expected) / (1.0 - q));
            println!("  p{} {expected:.1} (simulated {})", 100.0 * q, self.delays.quantile(q));
            assert!(beyond < 1.0 + slack && from > 1.0 - slack, "{name}, p{}: {beyond} {from}", 100.0 * q);
        }
        let (got, expected) = (self.delays.quantile(0.999) as f64, quantile(0.999).unwrap());
        assert!((got - expected).abs() <= (2.0 * slack * expected).max(1.0), "{name}, p999: {got} {expected}");
    }

    /// Fraction of symbols that waited for more than `slots` slots.
    fn late(&self, slots: f64) -> f64 {
        let later = self.delays.counts().filter(|&(delay, _)| delay as f64 > slots);
        later.map(|(_, count)| count).sum::<u64>() as f64 / self.delays.count() as f64
    }
}

#[test]
fn independent_losses() {
    let cells = [
        (0.01, 5, 40_000_000, 0.01),
        (0.01, 30, 40_000_000, 0.01),
        (0.02, 25, 40_000_000, 0.01),
        (0.05, 10, 40_000_000, 0.01),
        (0.1, 3, 20_000_000, 0.01),
        (0.1, 5, 40_000_000, 0.01),
        (0.1, 7, 60_000_000, 0.01),
        (0.2, 4, 60_000_000, 0.01),
        (0.3, 2, 40_000_000, 0.01),
        (0.1, 9, 60_000_000, 0.05),
        (0.3, 3, 60_000_000, 0.05),
    ];
    for (loss, spacing, symbols, tolerance) in cells {
        let code = Streaming::new(loss, spacing.into()).unwrap();
        let cell = Cell::run(&format!("{}%", loss * 100.0), spacing.into(), symbols);
        cell.agrees(&format!("e={loss} l={spacing}"), code.mean_delay(), |q| code.quantile(q), tolerance);
    }
}

#[test]
fn losses_in_bursts() {
    // Nothing was fitted to these cells.
    for (loss, burst, spacing) in [
        (0.1, 4.0, 4),
        (0.1, 4.0, 5),
        (0.1, 2.0, 5),
        (0.02, 4.0, 10),
        (0.05, 8.0, 8),
        (0.2, 1.5, 3),
        (0.3, 3.0, 2),
        (0.01, 3.0, 20),
    ] {
        let code = Gilbert::new(loss, burst, spacing).unwrap();
        let cell = Cell::run(&format!("gilbert:{}%,{burst}", loss * 100.0), spacing.into(), 60_000_000);
        cell.agrees(&format!("e={loss} B={burst} l={spacing}"), code.mean_delay(), |q| code.quantile(q), 0.02);
    }
}

#[test]
fn repairs_spread_evenly_at_real_spacing() {
    for (loss, spacing) in [(0.1, 3.5), (0.1, 6.667), (0.1, 8.4), (0.02, 25.5), (0.2, 3.4)] {
        let code = Streaming::new(loss, spacing).unwrap();
        let cell = Cell::run(&format!("{}%", loss * 100.0), spacing, 60_000_000);
        cell.agrees(&format!("e={loss} l={spacing}"), code.mean_delay(), |q| code.quantile(q), 0.03);
    }
    for (spacing, slots) in [(4.5, 80.0), (5.3, 100.0), (6.7, 300.0)] {
        let cell = Cell::run("gilbert:10%,4", spacing, 60_000_000);
        let (got, expected) = (cell.late(slots), gilbert::late(0.1, 4.0, spacing, slots));
        println!("l={spacing}: {got:.5} later than {slots}, model {expected:.5}");
        assert!((got / expected - 1.0).abs() < 0.1 * cell.looser);
    }
}
