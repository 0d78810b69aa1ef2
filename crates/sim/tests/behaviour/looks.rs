//! What the policies of honest pairs look at over a long path with heavy loss: blocks and repairs in flight,
//! for each packet. `crates/proto/tests/hostile/looks.rs` has the same of hostile peers.

use tidewire_codec::Code;
use tidewire_proto::config::Config;
use tidewire_proto::profile::{Profile, block};
use tidewire_proto::rate::RateControl;

use super::*;

/// 100 Mbit/s over 300 ms: 2,600 packets are in flight.
const RATE: u64 = 100_000_000;
const TIME: Duration = Duration::from_secs(6);
const STEP: Duration = Duration::from_millis(1);
/// Bounds for each packet that is sent, acknowledged or lost: in all, and in each millisecond but one of a
/// thousand.
const MOST: f64 = 8.0;
const MOST_OF_A_TURN: f64 = 32.0;

fn check(redundancy: &str, code: Code) {
    for loss in ["0%", "30%", "70%"] {
        let settings = [
            (Direction::Both, "rate", "100mbit"),
            (Direction::Both, "rtt", "300ms"),
            (Direction::Forward, "loss", loss),
        ];
        let mut trial = bulk(u64::MAX / 4, &settings);
        let profile = Profile { code, redundancy: redundancy.parse().expect(redundancy), ..block(2, 1) };
        let config = Config::builder().profile(profile).rate_control(RateControl::Fixed { bits_per_second: RATE });
        trial.near = config.build().expect("in range");
        let mut run = trial.start();
        let (mut at, end) = (run.began(), run.began() + TIME);
        let (mut before, mut each) = ((0, 0), Vec::new());
        while at < end {
            at += STEP;
            run.until(at);
            let Some((_, near)) = run.pair.endpoint(End::Near).connections().next() else { continue };
            let packets = near.stats().packets;
            let now = (near.looks(), packets.sent + packets.acked + packets.lost);
            each.push((now.0 - before.0) as f64 / (now.1 - before.1).max(1) as f64);
            before = now;
        }
        let all = before.0 as f64 / before.1 as f64;
        each.sort_by(f64::total_cmp);
        let most = each[each.len() - 1 - each.len() / 1_000];
        println!("{redundancy}, {loss}: {} packets, {all:.1} for a packet, {most:.1} in a turn", before.1);
        assert!(all <= MOST && most <= MOST_OF_A_TURN, "{redundancy}, {loss}: {all:.1}, {most:.1}");
    }
}

#[test]
fn blocks_of_two_cost_what_is_new() {
    check("block:2,1", Code::Rlc);
}

#[test]
fn blocks_of_eight_cost_what_is_new() {
    check("block:8,4", Code::Rlc);
}

#[test]
fn blocks_of_32_cost_what_is_new() {
    check("block:32,8", Code::Cauchy);
}

#[test]
fn buckets_cost_what_is_new() {
    check("bucket:15,1.25", Code::Rlc);
}

#[test]
fn instantaneous_compensation_costs_what_is_new() {
    check("sphinx:4", Code::Rlc);
}
