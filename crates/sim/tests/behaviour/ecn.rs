//! Congestion marks end to end: a link that marks at 15 ms of queue drops nothing and stays at least two
//! thirds full, with every rate controller.

use tidewire_proto::config::Config;
use tidewire_sim::settings::Direction::Forward;

use super::{RTT, bulk};

#[test]
fn marks_keep_the_queue_short_and_cost_no_packet() {
    for control in ["share", "cubic", "newreno"] {
        let run = |mark| {
            let mut trial = bulk(30_000_000, &[(Forward, "queue", "120ms"), (Forward, "mark", mark)]);
            let config = Config::builder().rate_control(control.parse().expect("a name")).build().expect("in range");
            (trial.near, trial.far) = (config.clone(), config);
            let report = trial.run();
            let link = report.forward;
            let rate = report.goodput_bps / 25e6;
            let dropped = link.queue_dropped as f64 / link.offered as f64;
            println!(
                "{control}, mark {mark}: {rate:.3} of the link, {:.1} ms queueing, {:.2} % dropped, {} marked",
                link.mean_queueing().as_secs_f64() * 1e3,
                dropped * 100.0,
                link.marked
            );
            (rate, link)
        };
        let (_, without) = run("none");
        let (rate, with) = run("15ms");
        assert_eq!(without.marked, 0);
        assert_eq!(with.queue_dropped, 0, "{control}");
        assert!(with.marked > 0 && with.mean_queueing() < RTT / 4, "{control}");
        assert!(rate > 0.65, "{control}");
    }
}
