//! Concurrent streams: their number is bounded, and a stream that nobody reads stops no other.

use core::time::Duration;

use tidewire_proto::config::Config;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

use super::{link, whole};

#[test]
fn more_streams_than_allowed_wait_for_their_turn() {
    let mut trial = Trial::new(link(&[(Direction::Both, "loss", "5%")]), vec![Flow::bulk(End::Near, 50_000); 40], 5);
    trial.far = Config::builder().max_streams(4).build().expect("in range");
    let report = trial.run();
    whole(&report);
    assert_eq!(report.bytes, 40 * 50_000);
}

#[test]
fn a_stream_that_nobody_reads_stops_no_other() {
    let mut deaf = Flow::bulk(End::Near, 4_000_000);
    deaf.deaf = Duration::from_secs(20);
    let flows = vec![deaf, Flow::bulk(End::Near, 20_000_000)];
    let mut run = Trial::new(link(&[(Direction::Forward, "loss", "10%")]), flows, 5).start();
    run.until(run.began() + Duration::from_secs(15));
    let read: Vec<u64> = run.load.progress().map(|at| at.read).collect();
    assert_eq!(read, [0, 20_000_000], "the other stream took all of the link meanwhile");
    let held: Vec<u64> = run.load.progress().map(|at| at.written).collect();
    assert!(held[0] <= 256 << 10, "no more than its credit: {}", held[0]);
    run.until(run.began() + Duration::from_secs(60));
    whole(&run.report());
}
