//! Coding jobs that run elsewhere: their results arrive late, in any order, or after the end.

use core::time::Duration;

use tidewire_proto::config::Config;
use tidewire_proto::connection::CloseCode;
use tidewire_proto::profile::block;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

use super::{bulk, whole};

/// Blocks of 32 with 8 repairs at 10 % loss. All their jobs leave the connection, and their results arrive
/// within `most`.
fn delayed(bytes: u64, most: Duration) -> Trial {
    let mut trial = bulk(bytes, &[(Direction::Forward, "loss", "10%")]);
    trial.jobs = Some(most);
    trial.near = Config::builder().workers(1).inline_products(0).profile(block(32, 8)).build().expect("in range");
    trial.far = trial.near.clone();
    trial
}

/// The byte oracle checks every byte. 300 ms are five round trips, so far more generations wait for their
/// results than are open without delay.
#[test]
fn results_that_come_late_and_in_any_order_change_no_byte() {
    for most in [0, 1, 20, 300] {
        let mut run = delayed(10_000_000, Duration::from_millis(most)).start();
        run.until(run.began() + Duration::from_secs(600));
        let report = run.report();
        whole(&report);
        let jobs = run.pair.delayed_jobs();
        assert!(jobs > 150, "{jobs} jobs left");
        assert!(report.far.symbols.repaired > jobs, "{:?}", report.far.symbols);
        assert_eq!(report.endpoints.map(|stats| stats.late_results), [0, 0]);
    }
}

/// All jobs leave the connection, or none. If results arrive at once, the packets are the same.
#[test]
fn jobs_whose_results_come_at_once_change_no_packet() {
    let inline = {
        let mut trial = delayed(5_000_000, Duration::ZERO);
        trial.jobs = None;
        trial.near = trial.near.to_builder().workers(0).build().expect("in range");
        trial.far = trial.near.clone();
        trial.run()
    };
    let mut trial = delayed(5_000_000, Duration::ZERO);
    trial.jobs = None;
    let elsewhere = trial.run();
    whole(&inline);
    whole(&elsewhere);
    assert_eq!(inline.far.symbols, elsewhere.far.symbols);
}

#[test]
fn results_after_the_end_are_counted_and_leave_nothing() {
    let mut run = delayed(100_000_000, Duration::from_secs(30)).start();
    run.until(run.began() + Duration::from_secs(2));
    let jobs = run.pair.delayed_jobs();
    let handle = run.load.handle(End::Far).expect("connected");
    let now = run.pair.local(End::Far);
    run.pair.endpoint(End::Far).connection_mut(handle).expect("it lives").close(now, CloseCode::Done, "");
    run.pair.wake(End::Far);
    let until = run.began() + Duration::from_secs(60);
    run.pair.run(&mut run.load, until, |_| false);
    let late = [End::Near, End::Far].map(|end| run.pair.endpoint(end).stats().late_results);
    let sum = late[0] + late[1];
    // Some of the results arrived before the end.
    assert!(jobs > 3 && late[1] > 0 && sum > jobs / 2 && sum <= jobs, "{late:?} of {jobs}");
    for end in [End::Near, End::Far] {
        assert_eq!(run.pair.endpoint(end).connections().count(), 0);
    }
}
