//! Short blackouts and the idle timeout; long ones are rows of the survival list (`survival.rs`).

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

/// Goal L7: a blackout of up to a second costs at most two round trips more than its length, at any time.
/// Round trips are as the sender measures them, its own queueing included.
#[test]
#[ignore = "slow: seconds of processor time"]
fn data_flows_two_round_trips_after_a_blackout() {
    let mut worst: f64 = 0.0;
    for length in [100, 500, 1_000] {
        for begins in (2_000..2_060).step_by(7) {
            let ends = begins + length;
            let blackout = format!("{begins}ms..{ends}ms");
            let mut run = bulk(20_000_000, &[(Direction::Both, "blackout", &blackout)]).start();
            let back = Time::from_millis(ends);
            let waited = next_byte(&mut run, back).since(back);
            let rtt = run.stats(End::Near).rtt.mean.max(RTT);
            println!("{blackout}: {waited:?} at round trips of {rtt:?}");
            worst = worst.max(waited.as_secs_f64() / rtt.as_secs_f64());
            run.until(Time::from_millis(60_000));
            whole(&run.report());
        }
    }
    assert!(worst <= 2.0, "the first byte came after {worst:.2} round trips");
}

#[test]
fn the_idle_timeout_is_exact() {
    for (late, closed) in [(0, false), (1, true)] {
        let mut trial = Trial::new(link(&[]), Vec::new(), 3);
        let config = Config::builder().idle_timeout(Duration::from_secs(5)).build().expect("in range");
        (trial.near, trial.far) = (config.clone(), config);
        trial.flows = vec![tidewire_sim::load::Flow::bulk(End::Near, 1), tidewire_sim::load::Flow::bulk(End::Near, 1)];
        // The last flow starts long after everything is silent. It never does if the connection ended before.
        trial.flows[1].start = Duration::from_secs(1_000);
        let mut run = trial.start();
        let quiet = last_heard(&mut run);
        run.until(quiet + Duration::from_millis(4_999 + late));
        assert_eq!(run.load.closed[End::Far as usize], closed.then_some(CloseReason::Idle), "{late} ms late");
    }
}

/// When the far end last received something, to the millisecond: the time at which its packet count was
/// complete.
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
