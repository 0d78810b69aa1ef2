//! The `pipeline` profile: combinations instead of source symbols, both forms, all ratios, streams and
//! messages.

use tidewire_proto::config::Config;
use tidewire_proto::profile::{Profile, STREAM};
use tidewire_proto::rate::RateControl;
use tidewire_proto::stats::Stats;

use super::profiles::{half_load, profile, trial};
use super::*;

/// Bytes arrive whole whatever is lost, reordered and doubled. No source symbol leaves, except by the probe
/// of a silent path.
#[test]
fn every_byte_arrives_and_no_source_symbol_leaves() {
    let seeds = if tidewire_testing::few_seeds() { 2 } else { 20 };
    let texts = ["16,1.25", "64,1", "64,min", "16,combo", "3,combo-printed", "1,1.5", "32,adaptive", "64,2"];
    for (text, seed) in texts.iter().flat_map(|text| (0..seeds).map(move |seed| (*text, seed))) {
        let loss = ["0%", "1%", "10%", "gilbert:10%,4", "30%"][seed as usize % 5];
        let flow = if seed % 2 == 0 { Flow::bulk(End::Near, 3_000_000) } else { half_load(3_000_000) };
        let mut trial = trial(profile(&format!("pipeline:{text}")), loss, flow, seed);
        for (key, value) in [("reorder", "3%,8ms"), ("duplicate", "2%")] {
            trial.link.set(Direction::Both, key, value, Path::new("")).unwrap();
        }
        let report = trial.run();
        whole(&report);
        let (packets, symbols) = (report.near.packets, report.far.symbols);
        // A probe may carry new data as it is.
        assert!(packets.source + symbols.direct + symbols.resent < 40, "{text} {seed} {loss}: {packets:?} {symbols:?}");
        assert!(packets.repair >= symbols.delivered, "{text} {seed} {loss}: {packets:?} {symbols:?}");
    }
}

/// Combinations beyond the first packet of each symbol, per symbol.
fn extra(report: &Report, is_systematic: bool) -> f64 {
    let first = if is_systematic { 0.0 } else { report.far.symbols.delivered as f64 };
    (report.near.packets.repair as f64 - first) / report.far.symbols.delivered as f64
}

/// Each ratio has its packets: without loss 1.25, 1, 1.4 and 2.4, at 10 % loss 1.11, 1.5 (the cap) and 2.51.
#[test]
fn the_packets_follow_the_ratio() {
    for (text, loss, expected) in [
        ("16,1.25", "0%", 0.25),
        ("16,1.25,systematic", "0%", 0.25),
        ("16,1.25", "10%", 0.25),
        ("64,min", "0%", 0.0),
        ("64,min", "10%", 0.111),
        ("64,combo", "0%", 0.4),
        ("64,combo", "10%", 0.5),
        ("64,combo-printed", "0%", 1.4),
        ("64,combo-printed", "10%", 1.511),
    ] {
        let report = trial(profile(&format!("pipeline:{text}")), loss, half_load(10_000_000), 1).run();
        whole(&report);
        let extra = extra(&report, text.ends_with("systematic"));
        println!("{text} at {loss}: {extra:.3}");
        // The first 64 packets of a lossy path have no estimate yet.
        assert!((extra - expected).abs() < 0.02, "{text} at {loss}: {extra:.3}");
    }
}

/// Without loss each combination reveals a symbol at once: nothing waits for a generation.
#[test]
fn without_loss_no_symbol_is_delayed() {
    for text in ["pipeline:64,1", "pipeline:64,1.25", "pipeline:16,1.05"] {
        let report = trial(profile(text), "0%", half_load(10_000_000), 1).run();
        whole(&report);
        // The first round trips have a small window.
        let p95 = report.delay().quantile(0.95);
        assert!(p95 < Duration::from_millis(1), "{text}: {p95:?}");
    }
}

/// The share of the link that pays for the further packets, and the delay beside that of `stream`. Prints the
/// figures of `docs/recovery.md`.
#[test]
#[ignore = "slow: seconds of processor time"]
fn delay_and_goodput_beside_stream() {
    let seeds = if tidewire_testing::few_seeds() { 1..2 } else { 1..7 };
    let rows = ["stream", "pipeline:16,1.25", "pipeline:16,1.25,systematic", "pipeline:64,min", "pipeline:64,adaptive"];
    for loss in ["0%", "5%"] {
        for text in rows {
            let over = |flow: fn() -> Flow| -> Vec<Report> {
                seeds.clone().map(|seed| trial(profile(text), loss, flow(), seed).run()).collect()
            };
            let (half, full) = (over(|| half_load(23_000_000)), over(|| Flow::bulk(End::Near, 30_000_000)));
            half.iter().chain(&full).for_each(whole);
            let mean =
                |of: &[Report], value: &dyn Fn(&Report) -> f64| of.iter().map(value).sum::<f64>() / of.len() as f64;
            let ms = |q: f64| mean(&half, &|report| report.delay().quantile(q).as_secs_f64() * 1e3);
            let (p50, p95, p99) = (ms(0.5), ms(0.95), ms(0.99));
            let goodput = mean(&full, &|report| report.goodput_bps / 1e6);
            let sent = mean(&half, &|report| report.near.bytes.wire_sent as f64 / report.bytes as f64);
            println!(
                "{loss} {text}: {p50:.1} / {p95:.1} / {p99:.1} ms, {sent:.3} bytes a byte; bulk {goodput:.2} Mbit/s"
            );
            assert!(p99 < 200.0 && goodput > 12.0, "{loss} {text}: {p99} {goodput}");
        }
    }
}

/// A last record whose combinations are all lost is combined again, not sent by itself.
#[test]
fn a_lost_tail_is_combined_again() {
    use tidewire_sim::link::Loss;
    let mut trial = trial(profile("pipeline:64,1"), "0%", Flow { record: 1_200, ..half_load(24_000) }, 1);
    // The datagrams of the near end: two HELLOs, then twenty records and FEEDBACK between them.
    trial.link.forward.loss = Loss::Trace((0..400).map(|n| (16..20).contains(&n)).collect());
    let report = trial.run();
    whole(&report);
    assert!(report.near.packets.feedback_repair > 0 && report.near.packets.source == 0, "{:?}", report.near.packets);
    assert!(report.seconds < 1.0, "{}", report.seconds);
}

/// Under `open` nothing answers a loss: a stream stands still until a silence brings a probe, and still every
/// byte arrives.
#[test]
fn without_answers_only_probes_help_a_stream() {
    let with = |answer: &str| {
        let redundancy = format!("pipeline:16,1,{answer}").parse().expect("a redundancy");
        let report = trial(Profile { redundancy, ..STREAM }, "2%", half_load(300_000), 1).run();
        whole(&report);
        report
    };
    let [open, deficit] = ["open", "deficit"].map(with);
    // A probe that is late carries what the peer has already.
    assert!(open.far.symbols.resent > 0 && deficit.far.symbols.resent == 0, "{:?}", open.near.packets);
    assert!(open.seconds > deficit.seconds + 0.2, "{} and {}", open.seconds, deficit.seconds);
}

/// The path's MTU falls during the transfer. The combinations no longer fit, so the symbols go in parts.
#[test]
fn symbols_that_no_longer_fit_the_path_go_in_parts() {
    for text in ["pipeline:16,1.25", "pipeline:16,1.25,systematic"] {
        let trial = trial(profile(text), "2%", half_load(4_000_000), 1);
        let mut run = trial.start();
        run.until(run.began() + Duration::from_millis(900));
        run.pair.link_mut().forward.set_mtu(Some(1_300));
        let end = run.began() + trial.limit;
        run.until(end);
        whole(&run.report());
    }
}

/// What the near end asks for holds for what the far end sends.
#[test]
fn the_far_end_combines_as_the_near_end_asks() {
    let mut trial = Trial::new(link(&[]), vec![Flow::bulk(End::Far, 1_000_000)], 7);
    trial.near = Config::builder().profile(profile("pipeline:32,1.25")).asks_peer(true).build().expect("in range");
    let stats: Stats = trial.run().far;
    assert!(stats.policy_followed && stats.packets.source < 40, "{stats:?}");
    assert!(stats.packets.repair > 5 * stats.packets.source, "{stats:?}");
}

/// Without rate control the link's queue is the only limit. The transfer ends, and so do the losses of the
/// queue.
#[test]
fn open_rate_control_fills_the_queue_and_every_byte_arrives() {
    let profile = Profile { rate_control: RateControl::Open, ..profile("pipeline:16,1.25") };
    let report = trial(profile, "1%", half_load(5_000_000), 1).run();
    whole(&report);
    assert!(report.delay().quantile(0.5) < Duration::from_millis(5), "{:?}", report.delay().quantile(0.5));
    let flood = trial(profile, "0%", Flow::bulk(End::Near, 5_000_000), 1).run();
    whole(&flood);
    assert!(flood.forward.queue_dropped > 100, "{:?}", flood.forward);
}
