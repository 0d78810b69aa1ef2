//! Windows of the controllers that take loss for congestion, over time on a simulated link. The curves are
//! kept as snapshots, so that a change shows as a difference. `INSTA_UPDATE=always` writes them anew.

use core::fmt::Write;
use core::time::Duration;
use std::path::Path;

use tidewire_proto::config::Config;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

/// The window in packets of 1,500 bytes over 25 Mbit/s and 60 ms (125 packets, and as many in the queue),
/// with these faults: rows of ten values `step` milliseconds apart.
fn curve(control: &str, settings: &[(&str, &str)], from: u64, step: u64, rows: u64) -> String {
    let mut link = DuplexConfig::default();
    let base = [("rate", "25mbit"), ("rtt", "60ms"), ("queue", "60ms")];
    for (key, text) in base.iter().chain(settings) {
        link.set(Direction::Both, key, text, Path::new("")).unwrap();
    }
    let mut trial = Trial::new(link, vec![Flow::bulk(End::Near, 1 << 30)], 1);
    let config = Config::builder()
        .rate_control(control.parse().unwrap())
        .redundancy("none".parse().unwrap())
        .build()
        .expect("in range");
    (trial.near, trial.far) = (config.clone(), config);
    let mut run = trial.start();
    let mut text = String::new();
    for row in 0..rows {
        write!(text, "{:>5} ms", from + row * step * 10).unwrap();
        for value in 0..10 {
            run.until(run.began() + Duration::from_millis(from + (row * 10 + value) * step));
            write!(text, "{:>4}", run.stats(End::Near).rate.window / 1_500).unwrap();
        }
        text.push('\n');
    }
    text
}

#[test]
fn newreno_saws() {
    insta::assert_snapshot!(curve("newreno", &[], 500, 250, 12));
}

#[test]
fn cubic_bends() {
    insta::assert_snapshot!(curve("cubic", &[], 500, 250, 12));
}

/// A blackout of ten round trips is persistent congestion: both controllers start again from two packets.
#[test]
fn a_blackout_collapses_the_window() {
    insta::assert_snapshot!(curve("cubic", &[("blackout", "10s..11s")], 10_500, 30, 5));
}
