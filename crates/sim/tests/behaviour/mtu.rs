//! The packet size is found by probing, and no larger size than the path takes is relied on, also when the
//! path changes. The survival list has a row for data that goes on through a black hole (`survival.rs`, s04).

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{CloseCode, CloseReason};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::rebinding::Rebound;
use tidewire_sim::report::Run;
use tidewire_sim::settings::Direction;

use super::{bulk, whole};

/// The largest UDP payload found over a link with this IP limit.
fn found(mtu: &str) -> u16 {
    let report = bulk(8_000_000, &[(Direction::Both, "mtu", mtu)]).run();
    whole(&report);
    assert!(report.forward.too_long < 40, "{:?}", report.forward);
    report.near.datagram_size
}

#[test]
fn a_limit_of_1300_is_found_within_the_resolution() {
    let size = found("1300B");
    assert!(size > 1_252 && size <= 1_272, "{size}");
}

#[test]
fn an_ethernet_frame_is_filled() {
    assert_eq!(found("1500B"), 1_472);
}

#[test]
fn the_least_path_is_enough() {
    assert_eq!(found("1228B"), 1_200);
}

/// Repairs of a block, which are longer than most source symbols, are lost together in bursts while shorter
/// packets pass. This is no black hole.
#[test]
fn issue_5_bursts_are_no_black_hole() {
    for policy in ["block:16,7", "block:32,11"] {
        let mut trial = bulk(0, &[(Direction::Forward, "loss", "gilbert:10%,4"), (Direction::Both, "queue", "60ms")]);
        trial.link.set_seed(1);
        trial.seed = 1;
        trial.flows = vec![Flow::paced(End::Near, 1 << 40, 1_562_500)];
        trial.near = Config::builder().profile(policy.parse().unwrap()).build().unwrap();
        trial.far = trial.near.clone();
        let mut run = trial.start();
        for second in 2..=13 {
            run.until(run.began() + Duration::from_secs(second));
            assert_eq!(run.stats(End::Near).datagram_size, 1_472, "{policy} after {second} s");
        }
    }
}

fn limit(run: &mut Run, mtu: Option<usize>) {
    let link = run.pair.link_mut();
    link.forward.set_mtu(mtu);
    link.back.set_mtu(mtu);
}

/// The search starts again ten minutes after it ended.
#[test]
fn a_path_that_becomes_wider_again_is_filled_again() {
    let mut trial = bulk(0, &[]);
    trial.flows = vec![Flow::paced(End::Near, 100_000_000, 24_000)];
    trial.limit = Duration::from_secs(700);
    let mut run = trial.start();
    for (mtu, until, size) in [(None, 2, 1_472..=1_472), (Some(1_240), 30, 1_200..=1_212), (None, 690, 1_472..=1_472)] {
        limit(&mut run, mtu);
        run.until(Time::from_millis(until * 1_000));
        let found = run.stats(End::Near).datagram_size;
        assert!(size.contains(&found), "{found} at {until} s");
    }
    assert!(run.load.errors.is_empty() && run.load.closed == [None, None], "{:?}", run.report());
}

/// Symbols that were made for the wider path are sent in parts, whichever end moved, and whether it knew or
/// not.
#[test]
fn a_move_to_a_narrower_path_loses_nothing() {
    for (from, what) in
        [End::Near, End::Far].into_iter().flat_map(|from| [Rebound::Roams, Rebound::Host].map(|what| (from, what)))
    {
        let mut trial = bulk(0, &[(Direction::Both, "loss", "5%")]);
        trial.flows = vec![Flow::bulk(from, 12_000_000)];
        let mut run = trial.start();
        run.until(Time::from_millis(2_000));
        limit(&mut run, Some(1_228));
        run.pair.rebind(what);
        let before = run.load.read();
        run.until(Time::from_millis(3_000));
        assert!(run.load.read() > before + 1_000_000, "{what:?}, {from:?} sends: stalled");
        run.until(Time::from_millis(60_000));
        let report = run.report();
        whole(&report);
        // Datagrams to the old address are lost. Datagrams from it still arrive.
        if from == End::Far {
            let symbols = report.near.symbols;
            assert!(symbols.resent > 50, "{symbols:?}");
        }
        assert_eq!(run.stats(from).datagram_size, 1_200);
    }
}

/// Nearly nothing: 20 bytes in a second.
fn tiny() -> Flow {
    Flow { record: 20, ..Flow::paced(End::Near, 10_000, 20) }
}

/// How the near end's connection over a path with this IP limit ends, and when.
fn ended(settings: &[(Direction, &str, &str)], flows: Vec<Flow>, seed: u64) -> Option<(CloseReason, Time)> {
    let mut trial = bulk(0, settings);
    (trial.seed, trial.flows) = (seed, flows);
    trial.link.set_seed(seed);
    let mut run = trial.start();
    for tenth in 1..=300 {
        let now = run.began() + Duration::from_millis(100 * tenth);
        run.until(now);
        if let Some(reason) = run.load.closed[0].clone() {
            return Some((reason, now));
        }
    }
    None
}

/// A path below the least size passes the handshake, and then nothing long. Whichever end sends, and
/// whichever direction is narrow, the connection ends with the cause, and does not stall.
#[test]
fn a_path_below_the_least_size_is_named() {
    let flows = [vec![Flow::bulk(End::Near, 1 << 30)], vec![Flow::bulk(End::Far, 1 << 30)], vec![tiny()]];
    for (mtu, carries) in [("1227B", 1_199), ("1200B", 1_172), ("1000B", 972), ("576B", 548)] {
        for direction in [Direction::Forward, Direction::Back, Direction::Both] {
            for (flow, loss) in flows.iter().flat_map(|flow| ["0%", "5%", "30%"].map(|loss| (flow, loss))) {
                let settings = [(direction, "mtu", mtu), (Direction::Both, "loss", loss)];
                let what = format!("{mtu} {direction:?}, loss {loss}, {flow:?}");
                let (reason, after) = ended(&settings, flow.clone(), 1).unwrap_or_else(|| panic!("stalled: {what}"));
                let found = match reason {
                    CloseReason::PathTooNarrow { carries, needed: 1_200 } => Some(carries),
                    CloseReason::Peer { code: CloseCode::PathTooNarrow, .. } => None,
                    other => panic!("{other:?}: {what}"),
                };
                assert!(found.is_none_or(|found| found <= carries && carries - found <= 20), "{found:?}: {what}");
                // 47 probes at most decide, one in a round trip and a half of 60 ms, or in a probe timeout.
                assert!(after < Time::from_millis(20_000), "{after:?}: {what}");
            }
        }
    }
}

/// A path that becomes so narrow during a connection ends it as well.
#[test]
fn a_path_that_falls_below_the_least_size_is_named() {
    for mtu in [1_227, 1_000] {
        let mut run = bulk(1 << 30, &[]).start();
        run.until(Time::from_millis(2_000));
        limit(&mut run, Some(mtu));
        run.until(Time::from_millis(20_000));
        let closed = run.load.closed[0].clone();
        assert!(matches!(closed, Some(CloseReason::PathTooNarrow { .. })), "{mtu}: {closed:?}");
    }
}

/// Loss takes no connection for one over a narrow path.
#[test]
fn loss_ends_no_connection_over_the_least_path() {
    for (loss, seed) in ["30%", "60%", "80%"].into_iter().flat_map(|loss| (0..10).map(move |seed| (loss, seed))) {
        let settings = [(Direction::Both, "mtu", "1228B"), (Direction::Both, "loss", loss)];
        for flows in [vec![Flow::paced(End::Near, 1 << 30, 24_000)], vec![tiny()]] {
            let closed = ended(&settings, flows, seed).map(|(reason, _)| reason);
            assert!(!matches!(closed, Some(CloseReason::PathTooNarrow { .. })), "{loss}, seed {seed}");
        }
    }
}

/// Symbols of the window are then up to 45 times as long as the packets that still pass.
#[test]
#[ignore = "slow: seconds of processor time"]
fn a_jumbo_path_that_shrinks_loses_nothing() {
    for longest in [8_972, 65_507] {
        let mut trial = bulk(0, &[(Direction::Both, "rate", "200mbit"), (Direction::Both, "loss", "2%")]);
        trial.near = Config::builder().max_datagram(longest).build().unwrap();
        trial.far = trial.near.clone();
        trial.flows = vec![Flow::bulk(End::Near, 150_000_000)];
        let mut run = trial.start();
        run.until(Time::from_millis(1_000));
        assert_eq!(run.stats(End::Near).datagram_size, longest);
        let before = run.load.read();
        limit(&mut run, Some(1_500));
        run.until(Time::from_millis(2_500));
        assert!(run.load.read() > before + 1_000_000, "{longest}: stalled");
        run.until(Time::from_millis(60_000));
        whole(&run.report());
        assert_eq!(run.stats(End::Near).datagram_size, 1_472);
    }
}
