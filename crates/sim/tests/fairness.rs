//! What rate control leaves to others on a drop-tail bottleneck without random loss: ours beside CUBIC and NewReno, one link, one queue.

use core::time::Duration;
use std::path::Path;
use std::thread;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::{Run, Trial, together};
use tidewire_sim::settings::Direction;

/// Bits per second of the bottleneck.
const RATE: f64 = 25e6;
/// More than the bottleneck carries in any of these runs.
const ENDLESS: u64 = 1 << 30;

/// One bottleneck with its flows: the rate control of each.
#[derive(Clone, Debug)]
struct Contest {
    rtt: &'static str,
    queue: &'static str,
    flows: Vec<&'static str>,
}

/// When shares are counted from, and until when.
const SETTLED: Duration = Duration::from_secs(10);
const OVER: Duration = Duration::from_secs(40);

impl Contest {
    /// Share of the bottleneck's rate that each flow delivers, mean queueing, and share of packets that the queue dropped.
    fn run(&self, seed: u64) -> (Vec<f64>, f64, f64) {
        let mut link = DuplexConfig::default();
        let mut set = |direction, key, text| link.set(direction, key, text, Path::new("")).unwrap();
        set(Direction::Both, "rate", "25mbit");
        set(Direction::Both, "rtt", self.rtt);
        set(Direction::Forward, "queue", self.queue);
        link.set_seed(seed);
        let mut runs: Vec<Run> = Vec::new();
        for (n, control) in self.flows.iter().enumerate() {
            let mut flow = Flow::bulk(End::Near, ENDLESS);
            // The seed moves the beginnings, so that start-ups meet in different states.
            flow.start = Duration::from_millis((n as u64 * 937 + seed * 211) % 2_000);
            let mut trial = Trial::new(link.clone(), vec![flow], seed * 16 + n as u64);
            let mut config = Config::default();
            config.rate_control = control.parse().unwrap();
            if *control != "bbr" {
                // As TCP: nothing is repaired before it is asked for.
                config.redundancy = "none".parse().unwrap();
            }
            (trial.near, trial.far) = (config.clone(), config);
            runs.push(trial.start_beside(runs.first()).unwrap());
        }
        let at = |after: Duration| Time::from_millis(1) + after;
        together(&mut runs, at(SETTLED));
        let before: Vec<u64> = runs.iter().map(|run| run.load.read()).collect();
        together(&mut runs, at(OVER));
        let bits = (OVER - SETTLED).as_secs_f64() * RATE;
        let shares =
            runs.iter().zip(before).map(|(run, before)| (run.load.read() - before) as f64 * 8.0 / bits).collect();
        let reports: Vec<_> = runs.iter_mut().map(|run| run.report().forward).collect();
        let offered: u64 = reports.iter().map(|link| link.offered).sum();
        let dropped: u64 = reports.iter().map(|link| link.queue_dropped).sum();
        let queueing =
            reports.iter().map(|link| link.mean_queueing().as_secs_f64() * 1e3 * link.offered as f64).sum::<f64>();
        assert!(runs.iter().all(|run| run.load.errors.is_empty()));
        (shares, queueing / offered as f64, dropped as f64 / offered as f64)
    }
}

/// Every contest, two at a time, in order.
fn run_all(contests: &[Contest]) -> Vec<(Vec<f64>, f64, f64)> {
    let (even, odd): (Vec<_>, Vec<_>) = contests.iter().enumerate().partition(|(n, _)| n % 2 == 0);
    let part =
        |part: Vec<(usize, &Contest)>| part.into_iter().map(|(n, contest)| (n, contest.run(1))).collect::<Vec<_>>();
    let mut results = thread::scope(|scope| {
        let odd = scope.spawn(|| part(odd));
        let mut results = part(even);
        results.extend(odd.join().unwrap());
        results
    });
    results.sort_by_key(|&(n, _)| n);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Queues of a quarter, a half, one and two round trips.
const QUEUES: [&str; 4] = ["15ms", "30ms", "60ms", "120ms"];

fn contests(flows: &[&[&'static str]]) -> Vec<Contest> {
    let cross =
        flows.iter().flat_map(|flows| QUEUES.map(|queue| Contest { rtt: "60ms", queue, flows: flows.to_vec() }));
    cross.collect()
}

fn print(contest: &Contest, (shares, queueing, dropped): &(Vec<f64>, f64, f64)) {
    println!(
        "{:?}, queue {}: {shares:.3?}, {queueing:.1} ms queueing, {:.2} % dropped",
        contest.flows,
        contest.queue,
        dropped * 100.0
    );
}

#[test]
fn a_shallow_queue_is_filled_and_not_overrun() {
    let contests = contests(&[&["bbr"]]);
    for (contest, result) in contests.iter().zip(run_all(&contests)) {
        print(contest, &result);
        let (shares, queueing, dropped) = result;
        assert!(shares[0] >= 0.9 && queueing <= 6.0 && dropped <= 0.01, "{contest:?}");
    }
}

#[test]
fn s18_another_controller_keeps_forty_percent() {
    let contests = contests(&[&["bbr", "cubic"], &["bbr", "newreno"]]);
    for (contest, result) in contests.iter().zip(run_all(&contests)) {
        print(contest, &result);
        let (ours, other) = (result.0[0], result.0[1]);
        // NewReno halves its window for each drop, so that a queue of a quarter of a round trip leaves a part of the link free, which ours takes.
        let kept = if contest.flows[1] == "newreno" { 0.35 } else { 0.4 };
        // Ours is no good at holding its own beside them yet: what it gets is bounded from below, not praised.
        assert!(other >= kept && ours >= 0.08 && ours + other >= 0.85, "{contest:?}");
    }
}

/// One of ours among up to three others takes no more than two of them would.
#[test]
fn s18_more_flows_share_the_queue() {
    let contests = contests(&[&["bbr", "cubic", "cubic"], &["bbr", "cubic", "cubic", "cubic"]]);
    for (contest, result) in contests.iter().zip(run_all(&contests)) {
        print(contest, &result);
        let fair = 0.94 / contest.flows.len() as f64;
        assert!(result.0[0] <= 2.0 * fair && result.0.iter().sum::<f64>() >= 0.85, "{contest:?}");
    }
}
