//! The `rcdp` profile: blocks, repairs instead of retransmissions, both forms, and both directions at once.

use std::sync::{Arc, Mutex};

use tidewire_codec::Code;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::profile::{Profile, rcdp, rcdp_basic};
use tidewire_proto::rate::RateControl;
use tidewire_proto::trace::{PacketContent, Trace, TraceEvent};

use super::*;

/// The round trip of the paper's Figure 5.
const PAPERS_RTT: Duration = Duration::from_millis(20);

/// The link of the paper's Figure 5: 50 Mbit/s and 10 ms one way.
fn papers_link(settings: &[(Direction, &str, &str)]) -> DuplexConfig {
    let mut link = DuplexConfig::default();
    let base = [(Direction::Both, "rate", "50mbit"), (Direction::Both, "rtt", "20ms")];
    for (direction, key, text) in base.iter().chain(settings) {
        link.set(*direction, key, text, Path::new("")).unwrap();
    }
    link
}

fn trial(profile: Profile, loss: &str, bytes: u64) -> Trial {
    let link = papers_link(&[(Direction::Forward, "loss", loss)]);
    let mut trial = Trial::new(link, vec![Flow::bulk(End::Near, bytes)], 7);
    trial.near = Config::builder().profile(profile).build().expect("in range");
    trial.far = trial.near.clone();
    trial
}

fn goodput(trial: &Trial) -> f64 {
    let report = trial.run();
    whole(&report);
    report.goodput_bps
}

/// For each source symbol that was sent again: the time since an acknowledgement arrived.
#[derive(Debug, Default)]
struct Resends(Mutex<(Time, Vec<Duration>)>);

impl Trace for Resends {
    fn record(&self, now: Time, _: ConnectionHandle, event: &TraceEvent) {
        let (acked, resends) = &mut *self.0.lock().unwrap();
        match event {
            TraceEvent::PacketAcked { .. } => *acked = now,
            TraceEvent::PacketSent { content: PacketContent::Source { again: true, .. }, .. } => {
                resends.push(now.since(*acked));
            }
            _ => {}
        }
    }
}

/// Bytes arrive whole under every code, with losses, bursts and reordering. A source symbol is sent again
/// only by the probe of a silent path: no acknowledgement had arrived for a round trip.
#[test]
fn every_byte_arrives_and_no_source_symbol_is_sent_again_unless_the_path_is_silent() {
    let under = |code| Profile { code, ..rcdp(84) };
    let codes = [Code::Rlc, Code::Rlc16, Code::RsFft, Code::Cauchy].map(under);
    for profile in [rcdp(84), rcdp(3), rcdp_basic(84), rcdp_basic(20)].into_iter().chain(codes) {
        for loss in ["0%", "5%", "20%", "gilbert:10%,6"] {
            let resends = Arc::<Resends>::default();
            let mut trial = trial(profile, loss, 4_000_000);
            trial.link.set(Direction::Back, "loss", loss, Path::new("")).unwrap();
            trial.near = trial.near.with_trace(resends.clone());
            let report = trial.run();
            whole(&report);
            let (_, resends) = &*resends.0.lock().unwrap();
            let name = format!("{} {:?} {loss}", profile.redundancy, profile.code);
            assert!(resends.iter().all(|&silence| silence >= PAPERS_RTT), "{name}: {resends:?}");
            assert!(report.far.symbols.resent <= resends.len() as u64, "{name}: {:?}", report.far.symbols);
            let repaired = report.far.symbols.repaired;
            assert_eq!(repaired > 0, loss != "0%", "{name}: {repaired} repaired");
        }
    }
}

/// A Cauchy code has two keys for a block of 254, which are used up at 20 % loss.
#[test]
fn a_code_without_further_keys_sends_lost_symbols_again() {
    for profile in [rcdp(254), rcdp_basic(254)] {
        let report = trial(Profile { code: Code::Cauchy, ..profile }, "20%", 4_000_000).run();
        whole(&report);
        assert!(report.far.symbols.resent > 0, "{:?}", report.far.symbols);
    }
}

/// The next block's source symbols fill the slots in which the basic form waits for a report.
#[test]
fn the_overlapped_form_has_at_least_1_3_times_the_goodput_of_the_basic_form() {
    for loss in ["0%", "5%", "20%"] {
        for rate_control in [RateControl::Share, RateControl::Fixed { bits_per_second: 48_000_000 }] {
            let [overlapped, basic] = [rcdp(84), rcdp_basic(84)]
                .map(|profile| goodput(&trial(Profile { rate_control, ..profile }, loss, 10_000_000)));
            println!("{loss} {rate_control:?}: {:.1} and {:.1} Mbit/s", overlapped / 1e6, basic / 1e6);
            assert!(overlapped >= 1.3 * basic, "{loss} {rate_control:?}: {overlapped} and {basic}");
        }
    }
}

/// The block size of the profile: goodput is within 2 % of that of larger blocks, whose delay is longer.
#[test]
fn larger_blocks_than_the_profiles_bring_little_goodput_and_more_delay() {
    for loss in ["1%", "10%"] {
        let [small, own, large] = [16, 84, 256].map(|symbols| {
            let report = trial(rcdp(symbols), loss, 15_000_000).run();
            whole(&report);
            (report.goodput_bps, report.delay().quantile(0.99))
        });
        assert!(own.0 > small.0 && own.0 >= 0.98 * large.0, "{loss}: {small:?} {own:?} {large:?}");
        assert!(own.1 < large.1, "{loss}: {small:?} {own:?} {large:?}");
    }
}

/// Both ends send over 20 Mbit/s at once and lose 5 % each way. Each reaches what it reaches alone.
#[test]
fn both_directions_at_once_reach_what_one_reaches_alone() {
    let run = |flows: Vec<Flow>| {
        let mut trial = trial(rcdp(84), "5%", 0);
        for (key, text) in [("loss", "5%"), ("rate", "20mbit")] {
            trial.link.set(Direction::Both, key, text, Path::new("")).unwrap();
        }
        trial.flows = flows;
        let mut run = trial.start();
        run.until(run.began() + Duration::from_secs(5));
        let report = run.report();
        assert_eq!(report.closed, [None, None], "{report:?}");
        [report.near, report.far].map(|stats| stats.bytes.app_received as f64)
    };
    let flow = |from| Flow::bulk(from, 1 << 40);
    let [_, alone] = run(vec![flow(End::Near)]);
    let [near, far] = run(vec![flow(End::Near), flow(End::Far)]);
    println!("received: alone {alone}, both {near} and {far}");
    assert!(alone > 0.86 * 0.95 * 20e6 / 8.0 * 5.0, "{alone}");
    assert!(near >= 0.95 * alone && far >= 0.95 * alone, "{alone} {near} {far}");
}

/// All jobs leave the connection, and their results are up to 100 ms late. The basic form waits for a report
/// after each block. The receiver reports a block when its rank suffices, so no block waits for its job.
#[test]
fn a_block_is_reported_before_its_decoding_job_is_done() {
    let sent = |jobs| {
        let mut trial = trial(rcdp_basic(84), "5%", 1 << 40);
        trial.near = trial.near.to_builder().workers(1).inline_products(0).build().expect("in range");
        trial.far = trial.near.clone();
        trial.jobs = jobs;
        let mut run = trial.start();
        run.until(run.began() + Duration::from_secs(3));
        (run.stats(End::Near).packets.source, run.pair.delayed_jobs())
    };
    let (at_once, _) = sent(None);
    let (late, jobs) = sent(Some(Duration::from_millis(100)));
    println!("{at_once} source symbols, {late} with {jobs} late jobs");
    // If each block waited 50 ms for its job on average, a third would be sent.
    assert!(jobs > 50 && late * 10 >= at_once * 8, "{late} of {at_once}, {jobs} jobs");
}

/// A worker makes the repairs of a block while the next block's source symbols are sent, so the time that
/// coding takes costs no goodput.
#[test]
fn repairs_that_are_made_late_cost_no_goodput() {
    let with = |jobs| {
        let mut trial = trial(rcdp(84), "5%", 10_000_000);
        trial.near = trial.near.to_builder().workers(1).inline_products(0).build().expect("in range");
        trial.jobs = jobs;
        goodput(&trial)
    };
    let at_once = with(None);
    for most in [2, 10, 20] {
        let late = with(Some(Duration::from_millis(most)));
        println!("up to {most} ms late: {:.1} Mbit/s of {:.1}", late / 1e6, at_once / 1e6);
        assert!(late >= 0.97 * at_once, "{most} ms: {late} of {at_once}");
    }
}

/// Records that leave blocks unfinished: each block is closed early, and nothing waits for more data.
#[test]
fn an_unfinished_block_is_repaired_without_further_data() {
    let mut trial = trial(rcdp(84), "10%", 0);
    trial.flows = vec![Flow { record: 5_000, ..Flow::paced(End::Near, 500_000, 100_000) }];
    let report = trial.run();
    whole(&report);
    let p90 = report.delay().quantile(0.9);
    assert!(p90 < 3 * PAPERS_RTT, "{p90:?}");
    assert!(report.near.packets.sent < 3 * report.near.packets.source, "{:?}", report.near.packets);
}

/// Single symbols are no train. Each TRAIN asked for FEEDBACK, which made the sender announce the next one.
#[test]
fn issue_17_single_symbols_are_not_announced_as_trains() {
    let link = papers_link(&[(Direction::Both, "rtt", "1ms")]);
    let mut trial = Trial::new(link, vec![Flow { record: 1, ..Flow::paced(End::Near, 10_000, 10_000) }], 7);
    trial.near = Config::builder().profile(rcdp(84)).build().expect("in range");
    trial.far = trial.near.clone();
    let report = trial.run();
    whole(&report);
    let packets = report.near.packets;
    println!("{packets:?}");
    assert!(packets.control < packets.source / 100, "{packets:?}");
}
