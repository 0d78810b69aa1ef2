//! What a change of address or a narrower path costs bulk data: after a roam the goodput of a fresh
//! connection on that path, after a narrowing the rate of the path.
//!
//! Each row is a clean link of a rate and a round trip, with one stream and the default profile. `mtu.rs`
//! tests that nothing is lost.

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::rebinding::Rebound;
use tidewire_sim::report::{Run, Trial};
use tidewire_sim::settings::Direction;
use tidewire_testing::few_seeds;

use super::{link, whole};

/// The part of the goodput to compare with that must be reached.
const PART: f64 = 0.9;
/// Round trips by which a roam may be later than a fresh connection, and round trips from the moment at which
/// a narrower size is known until the rate must be whole.
const LATER: u32 = 2;
const NARROWED: u32 = 5;
/// Part of a packet of 1,228 bytes with its IP header that is data of the stream.
const DATA: f64 = 0.93;
/// How long the goodput is compared after a change, and from which age on after a roam. Sooner, what was read
/// depends on whether start-up has just overrun the queue: in two rows of the table the roamed connection
/// has, and the fresh one hardly, and the bytes behind the gap wait for a repair, at 0.79 and 0.84 of the
/// fresh one.
const COMPARED: Duration = Duration::from_secs(4);
const COMPARED_FROM: Duration = Duration::from_millis(300);

/// One row of the table.
#[derive(Clone, Copy, Debug)]
struct Row {
    mbit: u64,
    rtt: Duration,
    from: End,
}

impl Row {
    fn start(self) -> Run {
        self.trial().start()
    }

    fn trial(self) -> Trial {
        let (rate, rtt) = (format!("{}mbit", self.mbit), format!("{}ms", self.rtt.as_millis()));
        let link = link(&[(Direction::Both, "rate", &rate), (Direction::Both, "rtt", &rtt)]);
        Trial::new(link, vec![Flow::bulk(self.from, u64::MAX / 4)], 7)
    }

    /// When the path changes: start-up is over.
    fn change(self) -> Duration {
        (self.rtt * 20).max(Duration::from_secs(2))
    }

    fn bytes_per_second(self) -> f64 {
        self.mbit as f64 * 1e6 / 8.0
    }
}

/// Runs until `until` in steps of a millisecond or `done`. Returns when it stopped.
fn watch(run: &mut Run, until: Time, mut done: impl FnMut(&mut Run) -> bool) -> Time {
    while run.pair.now() < until && !done(run) {
        let at = run.pair.now() + Duration::from_millis(1);
        run.until(at);
    }
    run.pair.now()
}

/// Bytes read between now and each of these times.
fn reads(run: &mut Run, times: impl Iterator<Item = Time>) -> Vec<u64> {
    let before = run.load.read();
    times
        .map(|at| {
            run.until(at);
            run.load.read() - before
        })
        .collect()
}

/// The bytes that a fresh connection has delivered at each age, and those of a connection that roamed, which
/// is `LATER` round trips older.
fn roam(row: Row, what: Rebound) -> Vec<(Duration, u64, u64)> {
    let ages = || (1..).map(move |n| row.rtt.max(Duration::from_millis(50)) * 2 * n).take_while(|&age| age <= COMPARED);
    let mut run = row.start();
    let began = run.began() + row.rtt;
    let fresh = reads(&mut run, ages().map(|age| began + age));
    run.until(began + row.change().max(COMPARED));
    run.pair.rebind(what);
    let limit = run.pair.now() + Duration::from_secs(5);
    let moved = watch(&mut run, limit, |run| run.stats(End::Far).moves > 0);
    let roamed = reads(&mut run, ages().map(|age| moved + age + row.rtt * LATER));
    assert!(run.load.errors.is_empty() && run.load.closed == [None, None], "{row:?}: {:?}", run.load.closed);
    ages().zip(fresh).zip(roamed).map(|((age, fresh), roamed)| (age, fresh, roamed)).collect()
}

/// From now on IP packets of more than 1,260 bytes are lost.
fn narrow(run: &mut Run) {
    let links = run.pair.link_mut();
    links.forward.set_mtu(Some(1_260));
    links.back.set_mtu(Some(1_260));
}

/// Part of the rate, without headers, that arrives in each quarter of a second or round trip after the sender
/// knows that the path is narrower, from `NARROWED` round trips on.
fn narrowing(row: Row, mut run: Run) -> Vec<f64> {
    let began = run.began();
    run.until(began + row.change());
    assert_eq!(run.stats(row.from).datagram_size, 1_472, "{row:?}");
    narrow(&mut run);
    let limit = run.pair.now() + Duration::from_secs(20);
    let known = watch(&mut run, limit, |run| run.stats(row.from).datagram_size < 1_472);
    assert!(known < limit, "{row:?}: the size is not known");
    let each = row.rtt.max(Duration::from_millis(250));
    let from = known + row.rtt * NARROWED;
    run.until(from);
    let read = reads(&mut run, (1..).map(|n| from + each * n).take_while(|&at| at <= from + COMPARED));
    let whole = row.bytes_per_second() * DATA * each.as_secs_f64();
    assert!(run.load.errors.is_empty() && run.load.closed == [None, None], "{row:?}: {:?}", run.load.closed);
    let before = [0].into_iter().chain(read.iter().copied());
    read.iter().zip(before).map(|(now, before)| (now - before) as f64 / whole).collect()
}

fn rows(table: &[(u64, &[u64])]) -> Vec<Row> {
    let each = table.iter().flat_map(|&(mbit, rtts)| rtts.iter().map(move |&rtt| (mbit, rtt)));
    each.flat_map(|(mbit, rtt)| [End::Near, End::Far].map(|from| Row { mbit, rtt: Duration::from_millis(rtt), from }))
        .collect()
}

fn check_roams(table: &[(u64, &[u64])]) {
    let mut failed = Vec::new();
    for row in rows(table) {
        for what in [Rebound::Roams, Rebound::Host] {
            let ages = roam(row, what);
            let least_from = |from| {
                let compared = ages.iter().filter(|of| of.0 >= from);
                let least = compared.map(|&(age, fresh, roamed)| (roamed as f64 / fresh as f64, age));
                least.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are ages")
            };
            let (ever, (least, age)) = (least_from(Duration::ZERO), least_from(COMPARED_FROM));
            println!("{row:?} {what:?}: at least {least:.2} of a fresh connection, at {age:?}; ever {ever:.2?}");
            if least < PART {
                failed.push((row, what, least));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn check_narrowings(table: &[(u64, &[u64])]) {
    let mut failed = Vec::new();
    for row in rows(table) {
        let parts = narrowing(row, row.start());
        let least = parts.iter().copied().fold(f64::MAX, f64::min);
        let mean = parts.iter().sum::<f64>() / parts.len() as f64;
        println!("{row:?}: {mean:.2} of the rate, at least {least:.2}");
        if mean < PART {
            failed.push((row, mean, parts));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_roam_costs_two_round_trips() {
    check_roams(&[(50, &[100]), (100, &[50])]);
}

#[test]
fn a_narrower_path_is_filled_five_round_trips_after_its_size_is_known() {
    check_narrowings(&[(50, &[100]), (100, &[50])]);
}

/// A receiver with little memory allows fewer symbols in parts than a round trip has. What arrives meanwhile
/// is not the rate of the path.
#[test]
fn what_the_bound_of_parts_limits_is_no_rate_of_the_path() {
    for (mbit, rtt) in [(50, 100), (100, 50), (50, 50)] {
        let row = Row { mbit, rtt: Duration::from_millis(rtt), from: End::Near };
        let mut trial = row.trial();
        trial.far = Config::builder().ring_memory(1 << 20).build().unwrap();
        let parts = narrowing(row, trial.start());
        println!("{row:?}: {parts:.2?}");
        assert!(parts.iter().skip(1).all(|&part| part > 0.85), "{row:?}: {parts:.2?}");
    }
}

/// Combinations of symbols that were made for the wider path fit no more. All of the symbols leave in parts,
/// not those of one span in a round trip, however short the peer's spans are.
#[test]
fn a_lane_of_combinations_fills_a_narrower_path() {
    for span in [256, 16, 2, 1] {
        let link = link(&[(Direction::Both, "rate", "20mbit"), (Direction::Both, "rtt", "100ms")]);
        let mut trial = Trial::new(link, vec![Flow::bulk(End::Near, 10_000_000)], 7);
        trial.near = Config::builder().profile("pipeline:16,1.25".parse().unwrap()).build().unwrap();
        trial.far = Config::builder().max_span(span).build().unwrap();
        let mut run = trial.start();
        run.until(run.began() + Duration::from_secs(2));
        narrow(&mut run);
        run.until(run.began() + Duration::from_secs(100));
        let report = run.report();
        whole(&report);
        println!("spans of {span}: {:.1} s, {:?}", report.seconds, report.far.symbols);
        // 1.25 packets for each symbol, and a second until the size is known.
        assert!(report.seconds < 7.5, "spans of {span}: {} s", report.seconds);
    }
}

/// Rates in Mbit/s, and round trips in ms: all of them at night.
fn table() -> &'static [(u64, &'static [u64])] {
    const ROUND_TRIPS: &[u64] = &[20, 50, 100, 200];
    const ALL: &[(u64, &[u64])] = &[
        (25, ROUND_TRIPS),
        (50, ROUND_TRIPS),
        (100, ROUND_TRIPS),
        (200, ROUND_TRIPS),
        (500, ROUND_TRIPS),
        (1_000, ROUND_TRIPS),
    ];
    if few_seeds() { &[(25, &[200]), (200, &[100]), (500, &[50])] } else { ALL }
}

#[test]
#[ignore = "slow: seconds of processor time, all rows minutes"]
fn roams_from_25_to_1000_mbit() {
    check_roams(table());
}

#[test]
#[ignore = "slow: seconds of processor time, all rows minutes"]
fn narrowings_from_25_to_1000_mbit() {
    check_narrowings(table());
}
