//! Policers, queues, losses and delays that vary, in virtual time: the two loads of a probe over one link.

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

use tidewire::{Config, Redundancy, Time};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::network::topology::{Joint, Node, Role, Topology};
use tidewire_sim::network::{Carrier, FlowPlan, Network, Plan};
use tidewire_sim::pair::End;
use tidewire_sim::settings::Direction;

use super::*;
use crate::probe::follow::Follower;

/// As in a probe of 20 s.
const LIGHT: Duration = Duration::from_secs(12);
const PAUSE: Duration = Duration::from_millis(500);
const FULL: Duration = Duration::from_secs(8);
/// Measured, of 24: a window that falls to a half or 0.7 after each drop leaves few of them.
const CUBIC_FOUND: usize = 17;

/// The packets of both loads over 100 Mbit/s and 30 ms, changed by `settings`: words like `loss=5%`, with
/// `back.` before the name for the way back, and `control=` for the rate control.
fn followed(settings: &str) -> [Vec<Followed>; 2] {
    let (mut link, mut control) = (DuplexConfig::default(), "share");
    for setting in ["rate=100mbit", "rtt=30ms"].into_iter().chain(settings.split_whitespace()) {
        let (key, value) = setting.split_once('=').unwrap();
        let (direction, key) = match key {
            "control" => {
                control = value;
                continue;
            }
            "rate" | "rtt" => (Direction::Both, key),
            _ => key.strip_prefix("back.").map_or((Direction::Forward, key), |key| (Direction::Back, key)),
        };
        link.set(direction, key, value, Path::new("")).unwrap();
    }
    link.set_seed(7);
    let node = |name: &str| Node { name: name.to_owned(), role: Role::Host };
    let joint = Joint { name: "link".to_owned(), nodes: [0, 1], config: link };
    let mut plan = Plan::new(7, Topology { nodes: vec![node("a"), node("b")], links: vec![joint] });
    plan.time = Some(LIGHT + PAUSE + FULL);
    let config = Config::builder().rate_control(control.parse().unwrap()).build().unwrap();
    let quiet = config.to_builder().redundancy(Redundancy::ARQ).build().unwrap();
    let light = Flow { record: 300, ..Flow::paced(End::Near, 125_000 * LIGHT.as_secs(), 125_000) };
    let loads = [(quiet, light, Duration::ZERO), (config.clone(), Flow::bulk(End::Near, 1 << 40), LIGHT + PAUSE)];
    let followers = [0, 1].map(|_| Arc::new(Follower::new(0.0)));
    for ((near, stream, start), follower) in loads.into_iter().zip(&followers) {
        let ends = Box::new([near.with_trace(follower.clone()), config.clone()]);
        let carrier = Carrier::Ours { ends, streams: vec![stream], via: Vec::new() };
        plan.flows.push(FlowPlan { name: String::new(), from: 0, to: 1, through: None, start, carrier });
    }
    let mut network = Network::new(&plan);
    network.until(Time::from_millis((LIGHT + PAUSE + FULL).as_millis() as u64));
    followers.map(|follower| follower.packets())
}

/// Whether it is found, with R within 3 % and B within 0.7 and 1.5 of it.
fn is_found(control: &str, mbit: u32, bucket_kb: u32) -> bool {
    let case = format!("police={mbit}mbit:{bucket_kb}kB control={control}");
    let [light, full] = followed(&case);
    let Some(policer) = recognise(&light, &full) else {
        println!("{case}: not recognised");
        return false;
    };
    println!("{case}: {policer}");
    let (rate, bucket) =
        (policer.rate_bps / 1e6 / f64::from(mbit), policer.bucket_bytes as f64 / 1e3 / f64::from(bucket_kb));
    assert!((0.97..=1.03).contains(&rate) && (0.7..=1.5).contains(&bucket), "{case}: {policer}");
    let dropped = policer.dropped(&light, &full).iter().map(|dropped| dropped.packets).sum::<u64>();
    let own = light.iter().chain(&full).filter(|packet| packet.lost && packet.at_own_rate).count() as u64;
    let lost = light.iter().chain(&full).filter(|packet| packet.lost).count() as u64;
    assert!((lost / 2..=lost).contains(&(dropped + own)), "{dropped} and {own} of {lost}: {case}");
    true
}

const RATES: [u32; 6] = [1, 2, 5, 10, 20, 50];
const BUCKETS: [u32; 4] = [10, 50, 200, 1_000];

#[test]
#[ignore = "slow: seconds of processor time"]
fn policers_are_recognised_with_their_rate_and_bucket() {
    for mbit in RATES {
        for bucket_kb in BUCKETS {
            assert!(is_found("share", mbit, bucket_kb), "{mbit} Mbit/s, {bucket_kb} kB");
        }
    }
}

/// What a controller sends decides only how much a policer drops.
#[test]
#[ignore = "slow: seconds of processor time"]
fn policers_are_recognised_whatever_controls_the_rate() {
    let cases = RATES.into_iter().flat_map(|mbit| BUCKETS.map(|bucket_kb| (mbit, bucket_kb)));
    let found = cases.filter(|&(mbit, bucket_kb)| is_found("cubic", mbit, bucket_kb)).count();
    assert!(found >= CUBIC_FOUND, "{found} of 24");
    for control in ["train", "aimd", "fixed:11mbit", "fixed:15mbit", "fixed:50mbit"] {
        assert!(is_found(control, 10, 50), "{control}");
    }
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn queues_losses_and_delays_that_vary_are_no_policers() {
    let mut cases = Vec::new();
    for control in ["share", "cubic"] {
        for loss in ["0.5%", "1%", "5%", "20%", "40%", "gilbert:2%,4", "gilbert:10%,4", "gilbert:10%,20"] {
            for rate in ["5mbit", "25mbit", "100mbit"] {
                cases.push(format!("rate={rate} loss={loss} control={control}"));
            }
        }
        for queue in ["2ms", "5ms", "15ms", "60ms", "120ms"] {
            cases.push(format!("rate=25mbit queue={queue} control={control}"));
            cases.push(format!("rate=5mbit queue={queue} loss=2% control={control}"));
        }
        for varies in [
            "jitter=5ms",
            "jitter=20ms back.jitter=20ms",
            "slot=10ms:1ms",
            "slot=40ms:10ms loss=1%",
            "discipline=codel",
            "reorder=5%,5ms",
        ] {
            cases.push(format!("rate=25mbit {varies} control={control}"));
        }
    }
    // A load that does not yield overflows the queue all the time.
    cases.extend(["2ms", "10ms", "60ms"].map(|queue| format!("rate=25mbit queue={queue} control=fixed:40mbit")));
    for case in cases {
        let [light, full] = followed(&case);
        assert_eq!(recognise(&light, &full), None, "{case}");
    }
}

/// What the medium loses behind the policer did not arrive, so the rate seems as much lower.
#[test]
fn neither_losses_nor_jitter_beside_a_policer_hide_it() {
    for beside in ["loss=1%", "loss=2%", "jitter=5ms back.jitter=5ms"] {
        let [light, full] = followed(&format!("police=10mbit:50kB {beside}"));
        let policer = recognise(&light, &full).unwrap_or_else(|| panic!("{beside}: not recognised"));
        println!("{beside}: {policer:?}");
        assert!((9.7e6..10.3e6).contains(&policer.rate_bps), "{beside}: {policer}");
        assert!((35_000..75_000).contains(&policer.bucket_bytes), "{beside}: {policer}");
    }
}

#[test]
fn a_policer_in_words() {
    let policer = Policer { rate_bps: 1e7, bucket_bytes: 49_600 };
    assert_eq!(policer.to_string(), "policed at 10.0 Mbit/s, bucket about 50 kB");
    assert_eq!(recognise(&[], &[]), None);
}
