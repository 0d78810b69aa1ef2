//! A path that changes at half load: the sender follows loss, bursts and round trip soon and without
//! oscillation.

use core::time::Duration;

use tidewire_figures::{ascending, quantile};
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_sim::load::{Flow, Load};
use tidewire_sim::pair::{End, Pair};
use tidewire_sim::settings::Direction;

use super::{RTT, link};

/// Half of the link.
const RATE: u64 = 12_500_000 / 8;
const RECORD: u64 = 1_200;
/// When the path changes, and how long it is observed.
const STEP: f64 = 5.0;
const END: f64 = 10.0;
/// Length of a slice: 130 records.
const SLICE: f64 = 0.1;
const SLICES: usize = 49;

/// Figures over all seeds.
#[derive(Default)]
struct Outcome {
    /// When each record was made, from the step on, and its delay beyond the least, in seconds.
    delays: Vec<(f64, f64)>,
    /// Proactive repairs per source symbol, by slices from the step on, summed over seeds.
    shares: Vec<f64>,
    /// The same for the second before the step.
    share_before: f64,
    seeds: u64,
}

impl Outcome {
    fn quantile(&self, from: f64, to: f64, q: f64) -> f64 {
        let within = self.delays.iter().filter(|delay| delay.0 >= from && delay.0 < to);
        quantile(&ascending(within.map(|delay| delay.1)), q).expect("records were sent")
    }

    fn share(&self, slice: usize) -> f64 {
        self.shares[slice] / self.seeds as f64
    }
}

/// Runs records over a path toward the server whose settings change from the first to the second.
fn run(before: [(&str, &str); 2], after: [(&str, &str); 2], seeds: u64) -> Outcome {
    let mut outcome = Outcome { shares: vec![0.0; SLICES], seeds, ..Outcome::default() };
    for seed in 1..=seeds {
        let path = |settings: [(&str, &str); 2]| {
            let mut path = link(
                &settings
                    .map(|(key, text)| (if key == "rtt" { Direction::Both } else { Direction::Forward }, key, text)),
            );
            path.set_seed(seed);
            path
        };
        let mut pair = Pair::new(Config::default(), Config::default(), &path(before), seed);
        let mut load = Load::new(&[Flow::paced(End::Near, (END * RATE as f64) as u64, RATE)], seed);
        pair.connect(&mut load);
        let (mut now, mut changed, mut slice, mut counted) = (Time::ZERO, false, 0, None);
        let mut delays = Vec::new();
        loop {
            now += Duration::from_micros(500);
            let done = pair.run(&mut load, now, Load::is_done);
            let Some(began) = load.began() else { continue };
            let at = now.since(began).as_secs_f64() - STEP;
            if at >= 0.0 && !changed {
                changed = true;
                let after = path(after);
                let links = pair.link_mut();
                links.forward.set_loss(&after.forward.loss);
                links.forward.set_delay(after.forward.delay);
                links.back.set_delay(after.back.delay);
            }
            if at >= slice as f64 * SLICE - 1.0 && slice < SLICES + 11 {
                let handle = load.handle(End::Near).expect("connected");
                let packets = pair.endpoint(End::Near).connection(handle).expect("there").stats().packets;
                let (sources, repairs) = counted.replace((packets.source, packets.repair)).unwrap_or((0, 0));
                let share = (packets.repair - repairs) as f64 / (packets.source - sources).max(1) as f64;
                // The first slice is all time until a second before the step, the next ten slices are that
                // second.
                match slice {
                    0 => {}
                    1..=10 => outcome.share_before += share / 10.0 / seeds as f64,
                    _ => outcome.shares[slice - 11] += share,
                }
                slice += 1;
            }
            while (delays.len() as u64 + 1) * RECORD <= load.read() {
                let made = ((delays.len() as u64 + 1) * RECORD) as f64 / RATE as f64 - STEP;
                delays.push((made, at - made));
            }
            if done {
                break;
            }
        }
        let least = |part: &[(f64, f64)]| part.iter().map(|delay| delay.1).fold(f64::MAX, f64::min);
        // The one-way time itself may have changed.
        let split = delays.partition_point(|delay| delay.0 < 0.0);
        // The step happens within half a millisecond.
        let (old, new) = (least(&delays[..split]), least(&delays[split + 1..]));
        let beyond = |(made, delay)| (made, delay - if made < 0.0 { old } else { new });
        outcome.delays.extend(delays.into_iter().map(beyond));
    }
    outcome
}

fn seeds() -> u64 {
    if tidewire_testing::few_seeds() { 4 } else { 16 }
}

/// Goal L1: the p99 at 10 % loss.
const TARGET_P99: f64 = 0.025;

#[test]
fn a_step_of_the_loss_is_made_good_within_ten_round_trips_and_not_overdone() {
    let step = run([("loss", "1%"), ("rtt", "60ms")], [("loss", "10%"), ("rtt", "60ms")], seeds());
    let rtt = RTT.as_secs_f64();
    for n in 0..10 {
        let from = 2.0 * rtt * f64::from(n);
        let p99 = step.quantile(from, from + 2.0 * rtt, 0.99) * 1e3;
        println!(
            "{} to {} round trips: p99 {p99:.1} ms, share {:.3}",
            2 * n,
            2 * n + 2,
            step.share((from / SLICE) as usize)
        );
    }
    assert!(step.quantile(10.0 * rtt, 20.0 * rtt, 0.99) <= TARGET_P99);
    let settled = step.share(45);
    let most = (0..SLICES).map(|slice| step.share(slice)).fold(0.0, f64::max);
    assert!((0.2..0.4).contains(&settled) && most <= 1.4 * settled, "{settled:.3}, at most {most:.3}");
    // Once it has settled, it stays.
    let steady = (15..SLICES).map(|slice| step.share(slice) / settled);
    assert!(steady.clone().all(|part| (0.85..1.15).contains(&part)), "{:?}", steady.collect::<Vec<_>>());
}

#[test]
fn what_is_over_is_paid_for_no_longer() {
    let step = run([("loss", "10%"), ("rtt", "60ms")], [("loss", "1%"), ("rtt", "60ms")], seeds());
    let (after_ten, settled) = (step.share(6), step.share(45));
    println!("share before {:.3}, after ten round trips {after_ten:.3}, settled {settled:.3}", step.share_before);
    assert!(after_ten <= 1.5 * settled && settled < step.share_before / 2.0);
    assert!(step.quantile(0.0, 2.0, 0.99) <= TARGET_P99, "too little for what is left of it");
}

#[test]
fn bursts_that_grow_are_followed() {
    let step = run([("loss", "5%"), ("rtt", "60ms")], [("loss", "gilbert:5%,4"), ("rtt", "60ms")], seeds());
    let (after_twenty, settled) = (step.share(12), step.share(45));
    println!("share before {:.3}, after twenty round trips {after_twenty:.3}, settled {settled:.3}", step.share_before);
    assert!(settled > 1.2 * step.share_before && after_twenty > 0.8 * settled);
    // Goal L1 with bursts of 4 at 5 %.
    assert!(step.quantile(20.0 * RTT.as_secs_f64(), 5.0, 0.99) <= 0.09);
}

#[test]
fn a_longer_round_trip_changes_the_plan_and_loses_nothing() {
    let step = run([("loss", "5%"), ("rtt", "20ms")], [("loss", "5%"), ("rtt", "80ms")], seeds());
    let p99 = [step.quantile(-1.0, 0.0, 0.99), step.quantile(20.0 * 0.08, 5.0, 0.99)];
    println!(
        "share {:.3}, then {:.3}; p99 {:.1}, then {:.1} ms",
        step.share_before,
        step.share(45),
        p99[0] * 1e3,
        p99[1] * 1e3
    );
    assert!(step.share(45) < step.share_before, "the target grew with the round trip");
    assert!(p99[1] <= 0.024, "three tenths of the longer round trip");
}

#[test]
fn a_clean_path_costs_nothing() {
    let clean = run([("loss", "0%"), ("rtt", "60ms")], [("loss", "0%"), ("rtt", "60ms")], 1);
    let all = clean.share_before + (0..SLICES).map(|slice| clean.share(slice)).sum::<f64>();
    assert!(all < 0.005, "{all}");
}
