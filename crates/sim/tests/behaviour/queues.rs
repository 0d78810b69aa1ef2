//! A bulk stream over a queue shorter than the delay thresholds, and over a path with jitter above them.

use core::time::Duration;

use tidewire_sim::pair::End;
use tidewire_sim::settings::Direction;

use super::bulk;

/// When counting begins, and when it ends.
const SETTLED: Duration = Duration::from_secs(5);
const OVER: Duration = Duration::from_secs(15);
const SEEDS: u64 = 3;

/// Figures of a bulk stream after it has settled.
struct Steady {
    /// Delivered rate as a fraction of the link's rate.
    goodput: f64,
    /// Fraction of the packets that the queue dropped.
    dropped: f64,
    /// IP bytes sent for each byte delivered.
    sent: f64,
}

fn steady(mbit: u64, settings: &[(Direction, &str, &str)], seed: u64) -> Steady {
    let rate = format!("{mbit}mbit");
    let mut trial = bulk(1 << 40, &[&[(Direction::Both, "rate", rate.as_str())], settings].concat());
    trial.link.set_seed(seed);
    trial.seed = seed;
    let mut run = trial.start();
    run.until(run.began() + SETTLED);
    let (before, sent) = (run.report(), run.stats(End::Near).bytes.wire_sent);
    run.until(run.began() + OVER);
    let (after, sent) = (run.report(), run.stats(End::Near).bytes.wire_sent - sent);
    let bytes = (after.bytes - before.bytes) as f64;
    let offered = (after.forward.offered - before.forward.offered) as f64;
    Steady {
        goodput: bytes * 8e-6 / (OVER - SETTLED).as_secs_f64() / mbit as f64,
        dropped: (after.forward.queue_dropped - before.forward.queue_dropped) as f64 / offered,
        sent: sent as f64 / bytes,
    }
}

/// The sender took a part of the queue's drops for losses of the medium, and paced above the link's rate to
/// make up for them: 4 to 8 % of the packets were dropped at 60 ms. At 100 ms start-up never ended: the queue
/// dropped half of the packets and nothing was delivered.
#[test]
#[ignore = "slow: seconds of processor time"]
fn a_queue_of_5_ms_drops_little() {
    for (mbit, rtt, loss) in
        [(25, "60ms", "3%"), (25, "100ms", "3%"), (25, "20ms", "3%"), (10, "60ms", "3%"), (25, "60ms", "10%")]
    {
        for seed in 1..=SEEDS {
            let settings = [
                (Direction::Both, "rtt", rtt),
                (Direction::Forward, "loss", loss),
                (Direction::Forward, "queue", "5ms"),
            ];
            let Steady { goodput, dropped, sent } = steady(mbit, &settings, seed);
            println!(
                "{mbit} Mbit/s, {rtt}, {loss}, seed {seed}: {goodput:.3}, {:.2} % dropped, {sent:.2} sent",
                dropped * 100.0
            );
            let passes = if loss == "3%" { 0.97 } else { 0.9 };
            assert!(dropped <= 0.03 && goodput >= 0.88 * passes, "{mbit} Mbit/s, {rtt}, {loss}, seed {seed}");
        }
    }
}

/// Jitter of 6 ms each way on a round trip of 10 ms looked like a standing queue. The sender drained for most
/// of the time and delivered 0.64 to 0.78 of the link.
#[test]
#[ignore = "slow: seconds of processor time"]
fn jitter_is_no_queue() {
    for (key, value) in [("jitter", "6ms"), ("reorder", "10%,6ms")] {
        for seed in 1..=SEEDS {
            let settings = [
                (Direction::Both, "rtt", "10ms"),
                (Direction::Both, "loss", "gilbert:3%,6"),
                (Direction::Both, key, value),
            ];
            let Steady { goodput, .. } = steady(50, &settings, seed);
            println!("{key} {value}, seed {seed}: {goodput:.3}");
            assert!(goodput >= 0.82, "{key} {value}, seed {seed}: {goodput:.3}");
        }
    }
}
