//! The floor of sanity (docs/recovery.md section 2): whatever a rate control believes, at most 1.3 / (1 - p) bytes
//! are sent for a byte that arrives, and media that lose packets lose no goodput to that.

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{Event, LaneConfig, LaneId};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};
use tidewire_proto::stats::FloorStats;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::{Application, End, Pair};
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

use super::link;

/// More bytes than any of these links carries.
const ENDLESS: u64 = 1 << 40;
const SAMPLE: Duration = Duration::from_millis(50);
/// Samples of two seconds.
const SPAN: usize = 40;

/// Bytes that were given to the link and bytes that arrived until each sample, and what the floor did.
struct Counts {
    samples: Vec<(u64, u64)>,
    floor: FloorStats,
}

impl Counts {
    /// The most bytes sent for a byte that arrived, over two seconds that begin after `from` seconds.
    fn worst(&self, from: usize) -> f64 {
        let windows = self.samples[from * SPAN / 2..].windows(SPAN + 1);
        let ratio = |w: &[(u64, u64)]| (w[SPAN].0 - w[0].0) as f64 / (w[SPAN].1 - w[0].1).max(1) as f64;
        windows.map(ratio).fold(0.0, f64::max)
    }
}

fn config(control: &str) -> Config {
    Config::builder().rate_control(control.parse().unwrap()).build().unwrap()
}

type Settings<'a> = [(Direction, &'a str, &'a str)];

/// A stream as fast as `control` goes, or at `rate` bytes per second.
fn stream(control: &str, rate: Option<u64>, settings: &Settings<'_>, seed: u64, seconds: usize) -> (Counts, u64) {
    let flow = Flow { rate, ..Flow::bulk(End::Near, ENDLESS) };
    let mut trial = Trial::new(link(settings), vec![flow], seed);
    trial.near = config(control);
    let mut run = trial.start();
    let began = run.pair.now();
    let mut samples = Vec::new();
    for sample in 0..=seconds * SPAN / 2 {
        run.until(began + SAMPLE * sample as u32);
        let report = run.report();
        samples.push((report.forward.offered_bytes, report.forward.delivered_bytes));
    }
    let floor = run.stats(End::Near).loss.floor;
    (Counts { samples, floor }, run.load.read())
}

const POLICED: &str = "10mbit:50kB";

#[test]
fn measure() {
    for control in ["bbr", "share", "train", "aimd", "open", "fixed:25mbit"] {
        for loss in ["0%", "5%", "20%"] {
            for rtt in ["20ms", "60ms", "200ms"] {
                let settings = [
                    (Direction::Both, "rate", "100mbit"),
                    (Direction::Both, "rtt", rtt),
                    (Direction::Forward, "police", POLICED),
                    (Direction::Forward, "loss", loss),
                ];
                let (counts, read) = stream(control, None, &settings, 1, 12);
                let q = loss.trim_end_matches('%').parse::<f64>().unwrap() / 100.0;
                let p = counts.floor.confirmed_loss;
                println!(
                    "{control} {loss} {rtt}: first {:.2} worst {:.3} of {:.3} ({:.3}), {read} {:?}",
                    counts.samples[SPAN].0 as f64 / counts.samples[SPAN].1 as f64,
                    counts.worst(3),
                    1.3 / (1.0 - p),
                    1.3 / (1.0 - q),
                    counts.floor
                );
            }
        }
    }
}

#[test]
fn series() {
    for (control, loss, rtt) in [("open", "20%", "60ms"), ("train", "20%", "200ms"), ("bbr", "0%", "200ms"), ("share", "5%", "200ms")] {
        let settings = [
            (Direction::Both, "rate", "100mbit"),
            (Direction::Both, "rtt", rtt),
            (Direction::Forward, "police", POLICED),
            (Direction::Forward, "loss", loss),
        ];
        let (counts, read) = stream(control, None, &settings, 1, 12);
        println!("{control} {loss} {rtt} {read} {:?}", counts.floor);
        for w in counts.samples.windows(7).step_by(6) {
            println!("  {:.2} {:.2}", (w[6].0 - w[0].0) as f64 * 8e-6 / 0.3, (w[6].1 - w[0].1) as f64 * 8e-6 / 0.3);
        }
    }
}

#[test]
fn harm() {
    let only = std::env::var("ONLY").unwrap_or_default();
    for control in ["bbr", "share", "train"] {
        for loss in ["1%", "5%", "20%", "40%", "60%", "gilbert:20%,4", "gilbert:40%,4", "gilbert:20%,16", "gilbert:40%,16"] {
            if !loss.contains(&only) { continue; }
            for (rate, rtt) in [("25mbit", "60ms"), ("5mbit", "200ms")] {
            let (mut early, mut late, mut tests, mut exceeded, mut limited) = (0.0, 0.0, 0, 0, 0);
            for seed in 1..=4 {
                let settings = [(Direction::Both, "rate", rate), (Direction::Both, "rtt", rtt), (Direction::Forward, "loss", loss)];
                let (counts, _) = stream(control, None, &settings, seed, 30);
                early += counts.samples[60].1 as f64 * 8e-6 / 12.0;
                late += (counts.samples[600].1 - counts.samples[120].1) as f64 * 8e-6 / 96.0;
                tests += counts.floor.tests;
                exceeded += counts.floor.exceeded;
                limited += u32::from(counts.floor.is_limited);
            }
            println!("{control:5} {loss:15} {rate:6} early {early:6.2} late {late:6.2} exceeded {exceeded} tests {tests} limited {limited}");
            }
        }
    }
}
