//! Busy hosts: both ends look at their sockets and timers only now and then, and datagrams have the time at
//! which they arrived, which lies before times that the endpoint knew already.

use tidewire_proto::config::Config;
use tidewire_proto::connection::WakeReason;
use tidewire_proto::rate::RateControl;
use tidewire_sim::load::Load;
use tidewire_sim::pair::Pair;

use super::*;

const TURN: Duration = Duration::from_millis(5);
const BYTES: u64 = 5_000_000;

/// Every byte arrives under each rate control, no timer stands still, and no round trip seems shorter than
/// the link's or longer by the turns of the peer, which reports its delay.
#[test]
fn ends_that_look_late_measure_what_the_link_does() {
    for rate in ["share", "cubic", "newreno", "aimd:1,80", "train", "fixed:20mbit"] {
        for loss in ["0%", "3%"] {
            let rate_control = rate.parse::<RateControl>().expect("a name");
            let config = Config::builder().rate_control(rate_control).build().expect("in range");
            let link = link(&[(Direction::Both, "loss", loss), (Direction::Both, "rate", "50mbit")]);
            let mut pair = Pair::new(config.clone(), config, &link, 3);
            pair.take_turns(TURN);
            let mut load = Load::new(&[Flow::bulk(End::Near, BYTES)], 3);
            pair.connect(&mut load);
            let until = pair.now() + Duration::from_secs(600);
            assert!(pair.run(&mut load, until, Load::is_over), "{rate}, {loss}");
            assert!(load.is_done() && load.errors.is_empty(), "{rate}, {loss}: {:?}", load.errors);
            assert_eq!((load.read(), pair.counted().overdue), (BYTES, 0), "{rate}, {loss}");
            let handle = load.handle(End::Near).expect("connected");
            let least = pair.endpoint(End::Near).connection(handle).expect("alive").stats().rtt.least;
            assert!(least >= RTT && least < RTT + Duration::from_millis(1), "{rate}, {loss}: {least:?}");
        }
    }
}

/// A driver learns that it should be exact where packets leave in trains, and only there.
#[test]
fn trains_alone_ask_for_exact_times() {
    for (rate, trains) in [("train", true), ("share", false), ("fixed:20mbit", false)] {
        let config = Config::builder().rate_control(rate.parse().expect("a name")).build().expect("in range");
        let mut pair = Pair::new(config.clone(), config, &link(&[]), 3);
        let mut load = Load::new(&[Flow::bulk(End::Near, BYTES)], 3);
        pair.connect(&mut load);
        let (mut exact, mut paced) = (0, 0);
        for millis in 200..400 {
            pair.run(&mut load, tidewire_proto::Time::from_millis(millis), |_| false);
            match pair.endpoint(End::Near).poll_timeout() {
                Some((_, WakeReason::Train)) => exact += 1,
                Some((_, WakeReason::Pace)) => paced += 1,
                _ => {}
            }
        }
        assert_eq!((exact > 0, paced > 0), (trains, !trains), "{rate}: {exact} and {paced}");
    }
}
