//! Blackouts, a dead way back, and the idle timeout.

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::CloseReason;
use tidewire_sim::pair::End;
use tidewire_sim::report::{Run, Trial};
use tidewire_sim::settings::Direction;

use super::{RTT, bulk, link, whole};

/// When the first byte after `from` was read.
fn next_byte(run: &mut Run, from: Time) -> Time {
    run.until(from);
    let before = run.load.read();
    let mut at = from;
    while run.load.read() == before {
        at += Duration::from_millis(1);
        assert!(!run.until(at) && at < from + Duration::from_secs(60), "nothing came after the blackout");
    }
    at
}

#[test]
fn data_flows_soon_after_half_a_second_of_blackout() {
    let mut run = bulk(20_000_000, &[(Direction::Both, "blackout", "2s..2.5s")]).start().unwrap();
    let back = Time::from_millis(2_500);
    let first = next_byte(&mut run, back);
    // A probe timeout of a round trip and a half, a round trip until its answer, and half of one for what it asks for; the goal
    // of two round trips needs probes that carry the oldest symbol itself.
    assert!(first <= back + RTT * 4, "the first byte came after {:?}", first.since(back));
    run.until(Time::from_millis(60_000));
    whole(&run.report());
}

#[test]
fn thirty_seconds_of_blackout_are_survived() {
    let mut run = bulk(20_000_000, &[(Direction::Both, "blackout", "2s..32s")]).start().unwrap();
    let back = Time::from_millis(32_000);
    let before = run.pair.datagrams();
    run.until(back);
    let asked = run.pair.datagrams() - before;
    let first = next_byte(&mut run, back);
    assert!(first <= back + Duration::from_secs(2) + RTT * 2, "the first byte came after {:?}", first.since(back));
    // At least 80 % of the rate within two seconds of that.
    let read = run.load.read();
    run.until(first + Duration::from_secs(2));
    let resumed = run.load.read();
    run.until(first + Duration::from_secs(3));
    let rate = (run.load.read() - resumed) as f64 * 8.0;
    assert!(run.load.is_done() || rate >= 0.8 * 0.9 * 25e6, "{asked} {read} {rate}");
    run.until(Time::from_millis(90_000));
    whole(&run.report());
}

#[test]
fn a_dead_way_back_stops_the_sender_and_nothing_is_lost() {
    let mut run = bulk(20_000_000, &[(Direction::Back, "blackout", "2s..12s")]).start().unwrap();
    run.until(Time::from_millis(4_000));
    let before = run.pair.link_mut().forward.stats().offered;
    run.until(Time::from_millis(12_000));
    // One or two probes per probe timeout, which backs off to two seconds.
    let asked = run.pair.link_mut().forward.stats().offered - before;
    assert!((4..=40).contains(&asked), "{asked} packets in eight seconds without an answer");
    run.until(Time::from_millis(60_000));
    let report = run.report();
    whole(&report);
}

#[test]
fn the_idle_timeout_is_exact() {
    for (late, closed) in [(0, false), (1, true)] {
        let mut trial = Trial::new(link(&[]), Vec::new(), 3);
        let mut config = Config::default();
        config.idle_timeout = Duration::from_secs(5);
        (trial.near, trial.far) = (config.clone(), config);
        trial.flows = vec![tidewire_sim::load::Flow::bulk(End::Near, 1), tidewire_sim::load::Flow::bulk(End::Near, 1)];
        // The last flow starts long after everything is silent: it never does when the connection ended before.
        trial.flows[1].start = Duration::from_secs(1_000);
        let mut run = trial.start().unwrap();
        let quiet = last_heard(&mut run);
        run.until(quiet + Duration::from_millis(4_999 + late));
        assert_eq!(run.load.closed[End::Far as usize], closed.then_some(CloseReason::Idle), "{late} ms late");
    }
}

/// When the far end last heard something, to the millisecond: the moment by which its count of packets was complete.
fn last_heard(run: &mut Run) -> Time {
    let mut at = run.pair.now();
    let mut heard = at;
    let mut count = run.stats(End::Far).packets.received;
    for _ in 0..4_000 {
        at += Duration::from_millis(1);
        run.until(at);
        let now = run.stats(End::Far).packets.received;
        if now != count {
            (count, heard) = (now, at);
        }
    }
    heard
}
