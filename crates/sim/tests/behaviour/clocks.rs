//! One-way delays between ends whose clocks differ and drift, over a way back with jitter.

use core::cell::RefCell;
use core::time::Duration;

use tidewire_proto::Custom;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::path::{AckSample, Budget, RateController};
use tidewire_proto::rate::RateControl;
use tidewire_sim::clock::Clock;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

use super::link;

thread_local! {
    /// Time, one-way delay and round trip of each sample of this thread.
    static SEEN: RefCell<Vec<(Time, Duration, Duration)>> = const { RefCell::new(Vec::new()) };
}

/// Sends at 2 Mbit/s, and from second 150 on for half a second at twice the rate of the link.
#[derive(Debug)]
struct Recorder(Time);

impl RateController for Recorder {
    fn on_ack(&mut self, ack: &AckSample) {
        self.0 = ack.now;
        assert_eq!(ack.rtt.is_some(), ack.one_way.is_some(), "each FEEDBACK tells the arrival");
        assert_eq!(ack.rtt.is_some(), ack.newest_bytes > 0);
        let (Some(one_way), Some(rtt)) = (ack.one_way, ack.rtt) else { return };
        SEEN.with_borrow_mut(|seen| seen.push((ack.now, one_way, rtt)));
    }

    fn budget(&self) -> Budget {
        let burst = (BURST..BURST + 500).contains(&(self.0.0 / 1_000_000));
        Budget { window: 10 << 20, pacing: if burst { 6_250_000 } else { 250_000 } }
    }
}

/// When the burst begins, in milliseconds.
const BURST: u64 = 150_000;

#[test]
fn one_way_delays_show_the_queue_of_our_direction_whatever_the_clocks() {
    for drift_ppm in [0, 200, -200] {
        SEEN.with_borrow_mut(Vec::clear);
        let settings = [(Direction::Back, "jitter", "20ms"), (Direction::Forward, "queue", "4MB")];
        let mut trial = Trial::new(link(&settings), vec![Flow::bulk(End::Near, 1 << 40)], 3);
        let build = |_: f64| Box::new(Recorder(Time::ZERO)) as Box<dyn RateController>;
        let control = RateControl::Custom(Custom { name: "recorder", build, parameter: 0.0 });
        trial.near = Config::builder().rate_control(control).build().expect("in range");
        trial.far_clock = Clock { ahead: Duration::from_secs(4_000), drift_ppm };
        let mut run = trial.start();
        run.until(run.began() + Duration::from_secs(180));
        let longest = run.pair.link_mut().forward.stats().max_queueing();
        let seen = SEEN.with_borrow(Vec::clone);
        let of = |from: u64, to: u64| seen.iter().filter(move |sample| (from..to).contains(&(sample.0.0 / 1_000_000)));
        // The least of each ten seconds, once the drift is known.
        let least = |from: u64| of(from, from + 10_000).map(|sample| sample.1).min().expect("samples");
        let floor: Vec<_> = (40_000..170_000).step_by(10_000).map(least).collect();
        let (low, high) = (floor.iter().min().unwrap(), floor.iter().max().unwrap());
        assert!(*high - *low < Duration::from_millis(1), "{drift_ppm} ppm: {floor:?}");
        // Without a queue, only the round trip has the jitter.
        let quiet: Vec<_> = of(140_000, BURST).collect();
        let most = quiet.iter().map(|sample| sample.1).max().unwrap();
        let rtt = quiet.iter().map(|sample| sample.2).max().unwrap();
        assert!(most - least(140_000) < Duration::from_millis(3), "{drift_ppm} ppm: {most:?}");
        assert!(rtt > Duration::from_millis(75), "{rtt:?}");
        let queue = of(BURST, 160_000).map(|sample| sample.1).max().unwrap() - least(140_000);
        assert!(longest > Duration::from_millis(300), "{longest:?}");
        assert!(queue.abs_diff(longest) < Duration::from_millis(5), "{drift_ppm} ppm: {queue:?} of {longest:?}");
    }
}

/// An end that did not begin when its clock did, as every server, must not behave otherwise: the first credit
/// of a stream came too late for its window to grow.
#[test]
fn a_run_is_the_same_whatever_the_far_clock_shows() {
    let settings = [(Direction::Both, "rate", "100mbit"), (Direction::Forward, "loss", "5%")];
    let run = |ahead| {
        let mut trial = Trial::new(link(&settings), vec![Flow::bulk(End::Near, 20_000_000)], 3);
        trial.far_clock.ahead = Duration::from_secs(ahead);
        let report = trial.run();
        assert!(report.done, "{report:?}");
        (report.counted.datagrams, report.seconds)
    };
    assert!([8, 4_000, 100_000].into_iter().all(|ahead| run(ahead) == run(0)), "{:?}, {:?}", run(8), run(0));
}
