//! Small records at a high rate over long links with heavy loss: thousands of symbols are missing at once.

use core::time::Duration;
use std::path::Path;

use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::Trial;
use tidewire_sim::settings::Direction;

/// A link, its loss forward, and the records: their length in bytes, and bytes per second.
struct Case {
    link: (&'static str, &'static str),
    loss: &'static str,
    record: u64,
    rate: u64,
}

/// Writes records for `seconds` over the link. All of them must arrive. After the ends are connected, some
/// bytes must be read in each [`PATIENCE`].
fn all_records_arrive(case: &Case, seeds: core::ops::RangeInclusive<u64>, seconds: u64) {
    for seed in seeds {
        let mut link = DuplexConfig::default();
        let settings = [
            (Direction::Both, "rate", case.link.0),
            (Direction::Both, "rtt", case.link.1),
            (Direction::Forward, "loss", case.loss),
        ];
        for (direction, key, text) in settings {
            link.set(direction, key, text, Path::new("")).unwrap();
        }
        link.set_seed(seed);
        let flow = Flow { record: case.record, ..Flow::paced(End::Near, case.rate * seconds, case.rate) };
        let mut run = Trial::new(link, vec![flow], seed).start();
        let name = format!("{} {} {}, seed {seed}", case.link.0, case.link.1, case.loss);
        let (mut at, mut read) = (run.began(), 0);
        // A burst of losses may swallow the first HELLOs.
        while run.load.began().is_none() {
            at += Duration::from_secs(1);
            assert!(!run.until(at), "{name}: no connection");
        }
        loop {
            at += PATIENCE;
            if run.until(at) {
                break;
            }
            let before = core::mem::replace(&mut read, run.load.read());
            assert!(read > before, "{name}: nothing is read beyond {read} bytes at {at:?}");
        }
        let report = run.report();
        println!("{name}: {:.2} s", report.seconds);
        assert!(report.done, "{name}: {} bytes, {:?}", report.bytes, report.closed);
    }
}

/// Longest time without a byte read: seven of the longest round trips.
const PATIENCE: Duration = Duration::from_secs(4);

/// One seed, or `full` of them.
fn seeds(full: u64) -> core::ops::RangeInclusive<u64> {
    1..=if tidewire_testing::few_seeds() { 1 } else { full }
}

/// Rows of later symbols filled the columns of the matrix, so the decoder refused every repair of the lowest
/// gap for ever.
#[test]
fn issue_13_a_stream_at_forty_percent_loss_never_stands_still() {
    let case = Case { link: ("50mbit", "200ms"), loss: "40%", record: 64, rate: 300_000 };
    all_records_arrive(&case, seeds(3), 10);
}

#[test]
fn issue_13_nor_where_losses_come_in_bursts_of_eight() {
    let case = Case { link: ("50mbit", "200ms"), loss: "gilbert:40%,8", record: 64, rate: 300_000 };
    all_records_arrive(&case, seeds(3), 10);
}

#[test]
fn issue_13_nor_at_a_hundred_megabits() {
    let case = Case { link: ("100mbit", "100ms"), loss: "35%", record: 200, rate: 1_000_000 };
    all_records_arrive(&case, seeds(3), 10);
}

/// There were more gaps than a stream kept, and the receiver closed the connection to an honest sender with
/// `Fault(Protocol)`.
#[test]
fn issue_13_many_small_gaps_are_no_fault() {
    let case = Case { link: ("10mbit", "600ms"), loss: "gilbert:5%,8", record: 10, rate: 100_000 };
    all_records_arrive(&case, seeds(3), 15);
    let case = Case { link: ("50mbit", "60ms"), loss: "40%", record: 10, rate: 100_000 };
    all_records_arrive(&case, seeds(3), 10);
}
