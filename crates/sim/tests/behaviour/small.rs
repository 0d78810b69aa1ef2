//! Records that are much smaller than a packet: their cost and their delay.

use core::time::Duration;
use std::path::Path;

use tidewire_figures::{ascending, median};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

/// Figures of a flow of records.
#[derive(Debug)]
struct Outcome {
    sent_per_byte: f64,
    /// Milliseconds beyond the one-way time.
    median: f64,
    largest: f64,
    seconds: f64,
}

/// `seconds` of records of `record` bytes at `bps` over 50 Mbit/s.
fn run(rtt_ms: u64, loss: &str, (record, bps): (u64, f64), seconds: f64, seed: u64) -> Outcome {
    let mut link = DuplexConfig::default();
    let mut set = |direction, key, text: &str| link.set(direction, key, text, Path::new("")).unwrap();
    set(Direction::Both, "rate", "50mbit");
    set(Direction::Both, "rtt", &format!("{rtt_ms}ms"));
    set(Direction::Forward, "loss", loss);
    link.set_seed(seed);
    let rate = (bps / 8.0) as u64;
    let flow = Flow { record, ..Flow::paced(End::Near, (bps / 8.0 * seconds) as u64, rate) };
    let trial = Trial::new(link, vec![flow], seed);
    let mut run = trial.start();
    run.until(run.began() + trial.limit);
    let one_way = Duration::from_millis(rtt_ms) / 2;
    let delays = ascending(run.load.arrivals().iter().map(|arrival| (arrival.delay() - one_way).as_secs_f64() * 1e3));
    let report = run.report();
    assert!(report.done, "{rtt_ms} ms, {loss}, seed {seed}: {report:?}");
    let outcome = Outcome {
        sent_per_byte: report.sent_per_byte(),
        median: median(delays.iter().copied()),
        largest: delays[delays.len() - 1],
        seconds: report.seconds,
    };
    println!("{rtt_ms} ms, {loss}, {record} bytes, seed {seed}: {outcome:.2?}");
    outcome
}

#[test]
fn ten_thousand_records_a_second_share_packets() {
    // When each record had its own packet, 4.85 bytes were sent per byte without loss, and 6.1 at 10 %.
    for (loss, most) in [("0%", 1.45), ("10%", 1.9), ("40%", 4.0)] {
        for seed in 1..=3 {
            let outcome = run(60, loss, (20, 1.6e6), 10.0, seed);
            assert!(outcome.sent_per_byte <= most, "{loss}, seed {seed}: {outcome:?}");
            assert!(loss != "0%" || outcome.median <= 1.0, "{loss}, seed {seed}: {outcome:?}");
        }
    }
}

#[test]
fn records_of_64_bytes_over_a_long_path_keep_their_rate_at_40_percent() {
    for seed in 1..=3 {
        let outcome = run(200, "40%", (64, 2.4e6), 15.0, seed);
        assert!(outcome.seconds <= 16.5 && outcome.sent_per_byte <= 3.2, "seed {seed}: {outcome:?}");
    }
}

#[test]
fn records_that_come_one_by_one_do_not_wait() {
    // One record in 2 ms, and one in 50 ms. A probe of the packet size may delay it by 0.24 ms.
    for bps in [80e3, 3.2e3] {
        let outcome = run(60, "0%", (20, bps), 5.0, 1);
        assert!(outcome.largest < 0.4, "{bps} bit/s: {outcome:?}");
    }
}
