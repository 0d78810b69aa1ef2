//! Advice over a table of paths.

use std::time::Duration;

use tidewire_command::report::{RateControl, Reordering};

use super::*;
use crate::probe::outlook::{Ground, predict};
use crate::probe::police::Dropped;
use crate::probe::{Bursts, interval};

/// A path that loses `lost` of `packets` in runs of `burst`.
fn phase(name: &'static str, packets: u64, lost: u64, burst: f64) -> Phase {
    let loss = lost as f64 / packets as f64;
    let runs = vec![(lost as f64 / burst).round() as u64];
    Phase {
        name,
        packets,
        lost,
        loss,
        loss_interval: interval(lost, packets, burst),
        rate_control: RateControl::default(),
        bursts: Bursts { mean: burst, longest: (4.0 * burst) as u64, runs },
        rtt_ms: Some(Spread { min: 60.0, p5: 60.2, p50: 61.0, p95: 63.0, jitter: 0.5 }),
        packet_bytes: 1_500,
        rate_bps: if name == "light" { 1.3e6 } else { 25e6 },
        goodput_bps: if name == "light" { 1e6 } else { 22e6 },
        reordering: Some(Reordering { packets: 0, of: packets, depth: 0 }),
        seconds: 10.0,
    }
}

fn with_queue(phase: Phase, wait_ms: f64) -> Phase {
    let rtt_ms = phase.rtt_ms.map(|rtt| Spread { p50: rtt.p50 + wait_ms, p95: rtt.p95 + 2.0 * wait_ms, ..rtt });
    Phase { rtt_ms, ..phase }
}

fn subjects(light: &Phase, full: &Phase) -> Vec<Subject> {
    advise(light, full, None, None).iter().map(|advice| advice.subject).collect()
}

#[test]
fn each_path_is_told_what_it_is_like() {
    use Subject::*;
    let light = |lost, burst| phase("light", 5_000, lost, burst);
    let full = |lost, burst| phase("full", 10_000, lost, burst);
    for (why, light, full, wanted) in [
        ("clean", light(0, 1.0), full(0, 1.0), &[PlainTcp][..]),
        ("nearly clean", light(4, 1.0), full(9, 1.0), &[PlainTcp]),
        ("a thousandth", light(5, 1.0), full(10, 1.0), &[TcpStarves]),
        ("independent", light(500, 1.1), full(1_000, 1.1), &[TcpStarves]),
        ("bursts", light(500, 4.0), full(1_000, 4.0), &[TcpStarves, Bursts]),
        ("few runs", light(8, 2.0), full(16, 2.0), &[TcpStarves]),
        ("a blackout", light(500, 20.0), full(500, 20.0), &[TcpStarves, Blackout]),
        ("congestion", light(0, 1.0), with_queue(full(500, 1.0), 40.0), &[Congestion, PlainTcp, LongQueue]),
        ("a queue that drops nothing", light(0, 1.0), with_queue(full(0, 1.0), 40.0), &[PlainTcp, LongQueue]),
        ("a short queue", light(0, 1.0), full(500, 1.0), &[ShallowQueue, PlainTcp]),
        ("within chance", phase("light", 300, 0, 1.0), phase("full", 100, 2, 1.0), &[PlainTcp]),
        ("too little", phase("light", 63, 0, 1.0), full(0, 1.0), &[TooLittle]),
    ] {
        assert_eq!(subjects(&light, &full), wanted, "{why}");
    }
}

#[test]
fn losses_in_others_queues_are_congestion_too() {
    let mut light = phase("light", 5_000, 100, 1.0);
    light.attribute(Dropped { packets: 100, bytes: 39_000 });
    assert_eq!((light.loss, light.packets, light.all_loss()), (0.0, 4_900, 0.02));
    assert_eq!(subjects(&light, &phase("full", 5_000, 100, 1.0)), [Subject::Congestion, Subject::PlainTcp]);
}

#[test]
fn a_policer_explains_the_losses_of_the_full_load() {
    let policer = Policer { rate_bps: 1e7, bucket_bytes: 49_600 };
    let (light, full) = (phase("light", 5_000, 0, 1.0), phase("full", 10_000, 500, 1.0));
    let said = advise(&light, &full, Some(&policer), None);
    assert_eq!(said.iter().map(|advice| advice.subject).collect::<Vec<_>>(), [Subject::Policed, Subject::PlainTcp]);
    assert!(said[0].words.starts_with("policed at 10.0 Mbit/s, bucket about 50 kB: "), "{}", said[0].words);
}

#[test]
fn order_size_spread_and_slowness_are_named() {
    let (clean, full) = (phase("light", 5_000, 0, 1.0), phase("full", 5_000, 0, 1.0));
    let late = |packets, depth| Some(Reordering { packets, of: 5_000, depth });
    let near = Phase { rtt_ms: clean.rtt_ms.map(|rtt| Spread { p95: 80.0, ..rtt }), ..clean.clone() };
    for (light, wanted) in [
        (Phase { reordering: late(100, 8), ..clean.clone() }, Some(Subject::Reordering)),
        (Phase { reordering: late(100, 2), ..clean.clone() }, None),
        (Phase { reordering: late(2, 8), ..clean.clone() }, None),
        (Phase { reordering: None, ..clean.clone() }, None),
        (Phase { packet_bytes: 1_228, ..clean.clone() }, Some(Subject::SmallPackets)),
        (Phase { packet_bytes: 1_400, ..clean.clone() }, None),
        (near, Some(Subject::Jitter)),
    ] {
        let said = subjects(&light, &full);
        assert_eq!((said[0], said.get(1).copied()), (Subject::PlainTcp, wanted));
    }
    let slow = Phase { goodput_bps: 0.5e6, ..clean };
    assert_eq!(subjects(&slow, &full)[0], Subject::SlowPath);
}

#[test]
fn short_round_trips_leave_tcp_its_rate() {
    let mut light = phase("light", 5_000, 25, 1.0);
    light.rtt_ms = Some(Spread { min: 1.0, p5: 1.0, p50: 1.1, p95: 1.3, jitter: 0.1 });
    let full = Phase { rtt_ms: light.rtt_ms, ..phase("full", 5_000, 25, 1.0) };
    assert_eq!(subjects(&light, &full), [Subject::TcpFills]);
}

#[test]
fn the_flow_comes_last_and_what_cannot_be_had_is_said() {
    let ground =
        Ground { loss: 0.1, burst: 4.0, rtt: Duration::from_millis(60), packet_bytes: 1_500, rate_bps: 12.5e6 };
    let (light, full) = (phase("light", 5_000, 500, 4.0), phase("full", 5_000, 500, 4.0));
    let last = |config: &tidewire::Config| advise(&light, &full, None, Some(&predict(ground, config))).pop().unwrap();
    let mut config = tidewire::Config::default();
    let usual = last(&config);
    assert!(usual.subject == Subject::Outlook && usual.words.contains("by retransmission alone"), "{}", usual.words);
    config = config.to_builder().latency(Some(Duration::from_millis(3))).max_overhead(0.1).build().expect("in range");
    let tight = last(&config);
    assert!(tight.subject == Subject::Infeasible && tight.words.contains("possible are"), "{}", tight.words);
}
