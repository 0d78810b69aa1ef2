//! The streaming code of Karzand, Leith, Cloud and Médard in the simulator, against the closed form of its
//! mean in-order delay (`tidewire_model::streaming`).
//!
//! Open loop as in the paper: one repair after every `l - 1` source symbols regardless of feedback, and no
//! loss on the way back. It is the real code in real packets. A slot is the time of one packet at the fixed
//! rate.

use core::time::Duration;
use std::path::Path;
use std::thread;

use tidewire_model::streaming::Streaming;
use tidewire_proto::config::Config;
use tidewire_proto::rate::RateControl;
use tidewire_proto::redundancy::{Answer, Redundancy};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

/// Source symbols of one run: about 10,000 busy periods.
const SYMBOLS: u64 = 100_000;
/// IP bytes of a full packet without size probing (1,200 bytes of UDP payload), and bits per second.
const PACKET: f64 = 1_228.0;
const RATE: u64 = 25_000_000;

/// Mean in-order delay in slots over one run.
fn measured(spacing: u32, seed: u64) -> f64 {
    let mut link = DuplexConfig::default();
    let mut set = |direction, key, text: &str| link.set(direction, key, text, Path::new("")).unwrap();
    set(Direction::Both, "rtt", "4ms");
    set(Direction::Forward, "loss", "10%");
    link.set_seed(seed);
    let mut trial = Trial::new(link, vec![Flow::bulk(End::Near, SYMBOLS * 1_100)], seed);
    trial.near = Config::default();
    trial.near = trial
        .near
        .to_builder()
        .redundancy(Redundancy { answer: Answer::Open, ..Redundancy::every(spacing.into()) })
        .rate_control(RateControl::Fixed { bits_per_second: RATE })
        .probe_size(false)
        .build()
        .expect("in range");
    let mut run = trial.start();
    run.until(run.began() + Duration::from_secs(120));
    let report = run.report();
    assert!(report.errors.is_empty() && report.near.packets.repair > SYMBOLS / u64::from(spacing) / 2, "{report:?}");
    report.delay().mean().as_secs_f64() * RATE as f64 / 8.0 / PACKET
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn mean_delay_of_the_streaming_code_is_the_papers() {
    // Enough symbols for a standard error of the mean below 0.7 %, by the spread of the runs.
    let full = [(3, 30, 0.007, 0.03), (5, 64, 0.007, 0.03)];
    let rough = [(3, 4, 0.03, 0.09), (5, 8, 0.03, 0.09)];
    let few = tidewire_testing::few_seeds();
    for (spacing, seeds, precision, tolerance) in if few { rough } else { full } {
        let runs = thread::scope(|scope| {
            let halves = [0, 1].map(|half| {
                scope.spawn(move || (1..=seeds / 2).map(|n| measured(spacing, 2 * n + half)).collect::<Vec<_>>())
            });
            halves.map(|half| half.join().unwrap()).concat()
        });
        let mean = runs.iter().sum::<f64>() / runs.len() as f64;
        let variance = runs.iter().map(|run| (run - mean).powi(2)).sum::<f64>() / (runs.len() - 1) as f64;
        let error = (variance / runs.len() as f64).sqrt() / mean;
        let expected = Streaming::new(0.1, spacing.into()).unwrap().mean_delay();
        println!(
            "l = {spacing}: {mean:.4} slots, model {expected:.4}, off {:+.2} %, standard error {:.2} %",
            (mean / expected - 1.0) * 100.0,
            error * 100.0
        );
        assert!(error < precision, "too few symbols to tell");
        assert!((mean / expected - 1.0).abs() < tolerance, "l = {spacing}: {mean} instead of {expected} slots");
    }
}
