//! The `bucket` profile: blocks of what is ready, both forms, streams and messages.

use std::sync::{Arc, Mutex};

use tidewire_codec::Code;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::profile::Profile;
use tidewire_proto::trace::{PacketContent, Trace, TraceEvent};

use super::profiles::{half_load, profile, trial};
use super::*;

/// Pictures of 6,000 bytes at 12.5 Mbit/s.
fn pictures(bytes: u64) -> Flow {
    Flow { record: 6_000, ..half_load(bytes) }
}

/// Bytes arrive whole whatever is lost, reordered and doubled, under each code that replaces source symbols.
#[test]
fn every_byte_arrives_and_no_source_symbol_leaves() {
    let seeds = if tidewire_testing::few_seeds() { 2 } else { 20 };
    let profiles = ["bucket", "bucket:1,1", "bucket:64,1.5", "bucket:4,1.25,fixed", "bucket:15,1"].map(profile);
    let codes = [Code::Rlc, Code::Cauchy, Code::RsFft, Code::RaptorQ].map(|code| Profile { code, ..profile("bucket") });
    for (n, profile) in profiles.into_iter().chain(codes).enumerate() {
        for seed in 0..seeds {
            let loss = ["0%", "1%", "10%", "gilbert:10%,4", "30%"][(seed as usize + n) % 5];
            let flow = match seed % 3 {
                0 => Flow::bulk(End::Near, 2_000_000),
                1 => half_load(2_000_000),
                _ => pictures(2_000_000),
            };
            let mut trial = trial(profile, loss, flow, seed);
            for (key, value) in [("reorder", "3%,8ms"), ("duplicate", "2%")] {
                trial.link.set(Direction::Both, key, value, Path::new("")).unwrap();
            }
            let report = trial.run();
            whole(&report);
            let (packets, symbols) = (report.near.packets, report.far.symbols);
            let name = format!("{} {:?} {seed} {loss}", profile.redundancy, profile.code);
            // A probe carries a symbol as it is. The combination of a single symbol is the symbol.
            assert!(packets.source + symbols.resent < 40, "{name}: {packets:?} {symbols:?}");
            let is_fixed = profile.redundancy.to_string().ends_with("fixed");
            assert_eq!(report.near.symbols.padding > 0, is_fixed, "{name}: {} empty", report.near.symbols.padding);
        }
    }
}

/// Each source symbol adds Gamma combinations, whatever the blocks are.
#[test]
fn gamma_combinations_leave_per_symbol() {
    for (text, expected) in [("15,1", 1.0), ("15,1.25", 1.25), ("15,1.5", 1.5)] {
        for flow in [half_load(5_000_000), pictures(5_000_000), Flow::bulk(End::Near, 5_000_000)] {
            let report = trial(profile(&format!("bucket:{text}")), "0%", flow, 1).run();
            whole(&report);
            let per_symbol = report.near.packets.repair as f64 / report.far.symbols.delivered as f64;
            assert!((per_symbol - expected).abs() < 0.01, "{text}: {per_symbol}");
        }
    }
}

/// The paper's comparison: the variable form sends no empty symbols, and the fixed one fills a block with
/// them for each record.
#[test]
fn the_fixed_form_pays_for_empty_symbols() {
    let [variable, fixed] = ["bucket:15,1.25", "bucket:15,1.25,fixed"].map(|text| {
        let report =
            trial(profile(text), "1%", Flow { record: 1_200, ..Flow::paced(End::Near, 600_000, 60_000) }, 1).run();
        whole(&report);
        (report.near.symbols.padding, report.near.bytes.wire_sent, report.delay().mean())
    });
    println!("{variable:?} {fixed:?}");
    assert!(variable.0 == 0 && fixed.0 > 5_000, "{variable:?} {fixed:?}");
    assert!(fixed.1 > 8 * variable.1, "{variable:?} {fixed:?}");
}

/// Mean number of symbols in the blocks of the combinations that leave after the first second.
fn mean_block(flow: Flow) -> f64 {
    let blocks = Arc::<Blocks>::default();
    let mut trial = trial(profile("bucket:15,1.25"), "0%", flow, 1);
    trial.near = trial.near.with_trace(blocks.clone());
    whole(&trial.run());
    let blocks = blocks.0.lock().unwrap();
    let late: Vec<f64> = blocks.iter().filter(|(at, _)| *at > 1.0).map(|(_, count)| f64::from(*count)).collect();
    late.iter().sum::<f64>() / late.len() as f64
}

/// When each combination of the near end left, in seconds, and how many symbols its block had.
#[derive(Debug, Default)]
struct Blocks(Mutex<Vec<(f64, u16)>>);

impl Trace for Blocks {
    fn record(&self, now: Time, _: ConnectionHandle, event: &TraceEvent) {
        if let TraceEvent::PacketSent { content: PacketContent::Repair { count, .. }, .. } = event {
            self.0.lock().unwrap().push((now.since(Time::ZERO).as_secs_f64(), *count));
        }
    }
}

/// Single records are blocks of one, a picture is a block, and bulk has full blocks.
#[test]
fn the_bucket_is_what_is_ready() {
    let [single, picture, bulk] =
        [half_load(5_000_000), pictures(5_000_000), Flow::bulk(End::Near, 10_000_000)].map(mean_block);
    println!("{single:.2} {picture:.2} {bulk:.2}");
    assert!(single < 1.2, "{single}");
    assert!((3.0..6.0).contains(&picture), "{picture}");
    assert!(bulk > 12.0, "{bulk}");
}

/// Prints the figures of `docs/recovery.md`.
#[test]
#[ignore = "slow: seconds of processor time"]
fn delay_and_goodput_beside_stream() {
    let seeds = if tidewire_testing::few_seeds() { 1..2 } else { 1..7 };
    let rows = ["stream", "bucket:15,1.25", "bucket:15,1.5", "bucket:15,1", "bucket:4,1.25,fixed"];
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
            let is_fixed = text.ends_with("fixed");
            assert!(goodput > 10.0 && (is_fixed || p99 < 250.0), "{loss} {text}: {p99} {goodput}");
        }
    }
}

/// With the answer `open`, a block that lost too much stays lost until a silence brings probes.
#[test]
fn without_answers_only_probes_help_a_stream() {
    let with = |answer: &str| {
        let redundancy = format!("bucket:15,1,{answer}").parse().expect("a redundancy");
        let report = trial(Profile { redundancy, ..profile("bucket") }, "2%", half_load(300_000), 1).run();
        whole(&report);
        report
    };
    let [open, deficit] = ["open", "deficit"].map(with);
    assert!(open.far.symbols.resent > 0 && deficit.far.symbols.resent == 0, "{:?}", deficit.near.packets);
    assert!(open.seconds > deficit.seconds + 0.2, "{} and {}", open.seconds, deficit.seconds);
}

/// The path's MTU falls during the transfer. The combinations no longer fit, so the symbols go in parts.
#[test]
fn symbols_that_no_longer_fit_the_path_go_in_parts() {
    let trial = trial(profile("bucket"), "2%", half_load(4_000_000), 1);
    let mut run = trial.start();
    run.until(run.began() + Duration::from_millis(900));
    run.pair.link_mut().forward.set_mtu(Some(1_300));
    let end = run.began() + trial.limit;
    run.until(end);
    whole(&run.report());
}

/// What the near end asks for holds for what the far end sends.
#[test]
fn the_far_end_combines_as_the_near_end_asks() {
    let mut trial = Trial::new(link(&[]), vec![Flow::bulk(End::Far, 1_000_000)], 7);
    trial.near = Config::builder().profile(profile("bucket")).asks_peer(true).build().expect("in range");
    let stats = trial.run().far;
    assert!(stats.policy_followed && stats.packets.source < 40, "{stats:?}");
    assert!(stats.packets.repair > 5 * stats.packets.source, "{stats:?}");
}

/// Workers make the combinations of a block.
#[test]
fn combinations_that_workers_make_late_arrive_whole() {
    let mut trial = trial(profile("bucket:64,1.25"), "5%", Flow::bulk(End::Near, 5_000_000), 1);
    trial.near = trial.near.to_builder().workers(1).inline_products(0).build().expect("in range");
    trial.far = trial.near.clone();
    trial.jobs = Some(Duration::from_millis(10));
    whole(&trial.run());
}
