//! A link whose rate grows: the sender finds the new rate. A long, fast and lossy link: the sender keeps it
//! full.

use core::time::Duration;
use std::sync::Arc;

use tidewire_sim::link::{Capacity, RateTrace};
use tidewire_sim::pair::End;
use tidewire_sim::settings::Direction;

use super::{RTT, bulk, whole};

/// A trace of a link that carries `before` megabits per second for five seconds and `after` for as long, in
/// opportunities of 1,500 bytes.
fn step(before: u64, after: u64) -> Capacity {
    let mut text = String::new();
    for (from, rate) in [(0, before), (5_000, after)] {
        let packets = rate * 5_000 / 12;
        (0..packets).for_each(|n| text.push_str(&format!("{}\n", from + (n + 1) * 5_000 / packets)));
    }
    Capacity::Trace(Arc::new(RateTrace::parse(&text).unwrap()))
}

/// Time from the step until two round trips deliver 0.8 of the new rate, of which headers leave 0.94.
fn settled(loss: &str, before: u64, after: u64) -> Duration {
    let mut trial = bulk(1 << 30, &[(Direction::Forward, "loss", loss), (Direction::Forward, "queue", "187kB")]);
    trial.link.forward.capacity = step(before, after);
    let mut run = trial.start();
    let pace = RTT * 2;
    let enough = after as f64 * 1e6 / 8.0 * 0.8 * pace.as_secs_f64();
    let mut at = run.began() + Duration::from_secs(5);
    run.until(at);
    let mut read = run.load.read();
    loop {
        at += pace;
        run.until(at);
        let more = run.load.read() - read;
        read += more;
        let took = at.since(run.began()).saturating_sub(Duration::from_secs(5));
        if more as f64 >= enough || took > Duration::from_secs(5) {
            println!("{before} to {after} Mbit/s, loss {loss}: {took:?}, {:?}", run.stats(End::Near).packets);
            return took;
        }
    }
}

#[test]
fn a_wider_link_is_found() {
    for loss in ["none", "5%"] {
        for (before, after) in [(10, 12), (10, 20), (10, 40), (5, 50)] {
            let took = settled(loss, before, after);
            assert!(took <= Duration::from_secs(2), "{before} to {after} Mbit/s, loss {loss}: {took:?}");
        }
    }
}

/// A fifth of the 1,700 packets in flight is lost, which is more than the rows of a matrix for one span. When
/// the decoder refused the rest, the window stood still at each span that could not be decoded at once, and a
/// tenth of the rate was left.
#[test]
fn a_long_fast_lossy_link_stays_full() {
    let mut trial = bulk(1 << 30, &[(Direction::Forward, "loss", "20%"), (Direction::Forward, "queue", "2500kB")]);
    trial.link.forward.capacity = step(340, 340);
    let mut run = trial.start();
    let (early, late) = (Duration::from_secs(3), Duration::from_secs(6));
    run.until(run.began() + early);
    let read = run.load.read();
    run.until(run.began() + late);
    let rate = (run.load.read() - read) as f64 * 8e-6 / (late - early).as_secs_f64();
    println!("{rate:.0} Mbit/s, {:?}", run.stats(End::Near).packets);
    assert!(rate >= 0.65 * 340.0, "{rate:.0} Mbit/s");
}

/// The receiver's credit and ring grow as fast as the rate controller finds the rate, so neither limits a
/// long fat link. 200 MB, of which start-up takes a part: 0.82, 0.79 and 0.77 of the link when this test was
/// written, and 0.82 without loss before credit followed the received symbols.
#[test]
#[ignore = "slow: seconds of processor time"]
fn credit_keeps_up_with_a_long_fat_link() {
    for (loss, least) in [("0%", 0.8), ("2%", 0.75), ("10%", 0.7)] {
        let settings = [
            (Direction::Both, "rate", "300mbit"),
            (Direction::Both, "rtt", "200ms"),
            (Direction::Forward, "loss", loss),
        ];
        let report = bulk(200_000_000, &settings).run();
        let share = report.steady_goodput_bps.unwrap_or(0.0) / 300e6;
        println!("{loss} lost: {:.2} s, steady goodput {share:.3} of the link", report.seconds);
        assert!(report.done && share >= least, "{loss} lost: {:.2} s, {share:.3} of the link", report.seconds);
    }
}

/// Over a round trip of 40 us, a receiver asks at most once per millisecond that its credit is confirmed.
/// Each such confirmation is a control packet of the sender.
#[test]
fn credit_of_a_short_path_is_seldom_confirmed() {
    let fast =
        [(Direction::Both, "rate", "4gbit"), (Direction::Both, "rtt", "40us"), (Direction::Both, "queue", "1MB")];
    let report = bulk(50_000_000, &fast).run();
    whole(&report);
    let (packets, millis) = (report.near.packets, (report.seconds * 1e3) as u64);
    println!("{packets:?} in {millis} ms");
    assert!(packets.control <= millis + 20, "{packets:?} in {millis} ms");
}
