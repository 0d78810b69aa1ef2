//! Packet trains (`train`) on a link of 50 Mbit/s and 20 ms: one flow beside a constant rate, beside another
//! train and beside senders that fill the queue, and a link whose rate changes.
//!
//! Shares are stream bytes over the link's rate. Headers take a twentieth, so 0.945 of what leaves arrives as
//! stream bytes.

use std::sync::Arc;

use tidewire_sim::link::{Capacity, RateTrace};

use super::*;

/// Stream bytes over wire bytes.
const CONTENT: f64 = 0.945;
const PRINTED: &str = "train:16,50,95,printed";

fn shares(flows: Vec<&'static str>, queue: &'static str) -> Vec<f64> {
    let contest = Contest { mbit: 50, rtt: "20ms", queue, flows };
    let result = contest.run_with(1, ENDLESS, Duration::from_secs(6)..Duration::from_secs(26));
    print(&contest, &result);
    result.0
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn trains_take_what_a_constant_rate_leaves() {
    for queue in ["20ms", "40ms"] {
        assert!(shares(vec!["train"], queue)[0] >= 0.89);
        for (other, rate) in [("fixed:12.5mbit", 0.25), ("fixed:25mbit", 0.5), ("fixed:37.5mbit", 0.75)] {
            let shares = shares(vec!["train", other], queue);
            let wire = shares[0] / CONTENT;
            assert!(wire <= 1.0 - rate + 0.05 && shares[1] >= rate * CONTENT * 0.95, "{other}: {shares:?}");
            assert!(wire >= (1.0 - rate) * 0.75, "{other}: {shares:?}");
        }
    }
}

/// The defect of the paper's estimator: it takes βC - αX, here 0.825 of the link beside a quarter, and the
/// queue drops what is too much. The floor of sanity takes a few percent of that.
#[test]
fn trains_as_printed_take_more_than_is_left() {
    let shares = shares(vec![PRINTED, "fixed:12.5mbit"], "40ms");
    assert!(shares[0] / CONTENT > 0.78 && shares[1] < 0.21, "{shares:?}");
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn trains_share_with_trains() {
    for queue in ["20ms", "40ms"] {
        for flows in [2, 4] {
            let shares = shares(vec!["train"; flows], queue);
            let total: f64 = shares.iter().sum();
            assert!(total >= 0.85 && shares.iter().all(|share| share / total * flows as f64 >= 0.8), "{shares:?}");
        }
    }
}

/// In a queue of a quarter of this, CUBIC keeps a quarter of the link (docs/rcdp.md section 4).
#[test]
#[ignore = "slow: seconds of processor time"]
fn beside_tcp_both_keep_their_part() {
    for queue in ["20ms", "40ms"] {
        for other in ["cubic", KERNEL_BBR] {
            let shares = shares(vec!["train", other], queue);
            assert!(shares[0] >= 0.2 && shares[1] >= 0.4, "{other}: {shares:?}");
        }
    }
}

/// 50, 20 and 50 Mbit/s for five seconds each, in opportunities of 1,500 bytes.
fn steps() -> Capacity {
    let mut text = String::new();
    for (from, mbit) in [(0_u64, 50_u64), (5_000, 20), (10_000, 50)] {
        let packets = mbit * 5_000 / 12;
        (0..packets).for_each(|n| text.push_str(&format!("{}\n", from + (n + 1) * 5_000 / packets)));
    }
    Capacity::Trace(Arc::new(RateTrace::parse(&text).unwrap()))
}

#[test]
fn trains_find_a_new_rate_in_ten_round_trips() {
    let mut link = DuplexConfig::default();
    for (key, text) in [("rate", "50mbit"), ("rtt", "20ms"), ("queue", "1MB")] {
        link.set(Direction::Both, key, text, Path::new("")).unwrap();
    }
    link.forward.capacity = steps();
    let mut trial = Trial::new(link, vec![Flow::bulk(End::Near, ENDLESS)], 1);
    let config = Config::builder().rate_control("train".parse().unwrap()).redundancy("none".parse().unwrap());
    let config = config.build().expect("in range");
    (trial.near, trial.far) = (config.clone(), config);
    let mut run = trial.start();
    let began = run.began();
    for (seconds, mbit) in [(5_u64, 20.0), (10, 50.0)] {
        let from = began + Duration::from_secs(seconds) + Duration::from_millis(200);
        run.until(from);
        for window in 0..8 {
            let before = run.load.read();
            run.until(from + Duration::from_millis(100) * (window + 1));
            let rate = (run.load.read() - before) as f64 * 8.0 / 0.1 / 1e6 / CONTENT / mbit;
            println!("{seconds} s, window {window}: {rate:.3}");
            // The first window has 0.85 to 0.97 over round trips of 20.000 to 20.009 ms.
            let least = if window == 0 { 0.82 } else { 0.86 };
            assert!((least..=1.01).contains(&rate), "{mbit} Mbit/s, window {window}: {rate:.3}");
        }
    }
    // Two bandwidth-delay products of 50 Mbit/s are 250 kB, which 20 Mbit/s carries in 100 ms.
    let most = run.pair.link_mut().forward.stats().max_queueing();
    println!("longest queueing: {most:?}");
    assert!(most <= Duration::from_millis(100), "{most:?}");
}
