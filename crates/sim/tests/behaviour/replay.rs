//! A recorded run, replayed with the same choices, gives the recorded delays; with other choices, others.

use std::sync::{Arc, Mutex};

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::profile::{ARQ, Profile, STREAM};
use tidewire_proto::rate::RateControl;
use tidewire_proto::stats::DelayHistogram;
use tidewire_proto::trace::{Trace, TraceEvent};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::replay::{Gather, NoReplay, Recorded};
use tidewire_sim::report::Report;
use tidewire_sim::settings::Direction;

use super::{bulk, whole};

/// A setting of a link: its direction, its name and its value.
type Setting = (Direction, &'static str, &'static str);

#[derive(Debug, Default)]
struct Recorder(Mutex<Gather>);

impl Trace for Recorder {
    fn record(&self, now: Time, _: ConnectionHandle, event: &TraceEvent) {
        self.0.lock().unwrap().take(now.since(Time::ZERO), event);
    }
}

/// Runs the flow, and returns what its sender recorded.
fn run(flow: Flow, profile: Profile, link: &[Setting], seed: u64) -> (Recorded, Report) {
    let recorder = Arc::<Recorder>::default();
    let mut trial = bulk(1, link);
    trial.flows = vec![flow];
    trial.seed = seed;
    trial.link.set_seed(seed);
    trial.near = Config::builder().profile(profile).build().unwrap().with_trace(recorder.clone());
    let report = trial.run();
    whole(&report);
    let gather = std::mem::take(&mut *recorder.0.lock().unwrap());
    (gather.finish().unwrap(), report)
}

/// Where two distributions differ by more than this part of a delay, and by more than `floor`.
fn differ(
    measured: &DelayHistogram,
    other: &DelayHistogram,
    (part, floor): (f64, Duration),
) -> Vec<(f64, Duration, Duration)> {
    let rows = [0.5, 0.95, 0.99].map(|q| (q, measured.quantile(q), other.quantile(q)));
    let differ = |(_, a, b): &(f64, Duration, Duration)| a.abs_diff(*b) > a.mul_f64(part).max(floor);
    rows.into_iter().filter(differ).collect()
}

const BURSTS: Setting = (Direction::Forward, "loss", "gilbert:5%,3");
const SINGLE: Setting = (Direction::Forward, "loss", "5%");
const BACK: Setting = (Direction::Back, "loss", "5%");
const QUEUE: Setting = (Direction::Forward, "queue", "60ms");
const JITTER: Setting = (Direction::Forward, "jitter", "5ms");

/// Replays with the same choices, over several seeds, and returns what differs.
fn replay_all(links: &[(&str, &[Setting])], flows: &[(&str, Flow)], profiles: &[(&str, Profile)]) {
    let few = tidewire_testing::few_seeds();
    let mut wrong = Vec::new();
    let mut count = 0;
    for seed in 1..=if few { 1 } else { 3 } {
        for ((link_name, link), (flow_name, flow), (profile_name, profile)) in links.iter().flat_map(|link| {
            flows.iter().flat_map(move |flow| profiles.iter().map(move |profile| (*link, flow.clone(), *profile)))
        }) {
            let name = format!("seed {seed}, {link_name}, {flow_name}, {profile_name}");
            let (recorded, report) = run(flow, profile, link, seed);
            let replayed = recorded.replay(&Recorded::config(&recorded.choices).unwrap()).unwrap();
            assert!(replayed.done && replayed.app_bytes == recorded.app_bytes, "{name}");
            // The sender's estimate needs FEEDBACK, which does not leave at once.
            let estimated = (0.2, Duration::from_millis(4));
            let compared = [("estimated", &recorded.delay, estimated), ("replayed", &replayed.delay, SAME)];
            for (what, delay, allowed) in compared {
                let rows = differ(report.delay(), delay, allowed);
                if !rows.is_empty() {
                    wrong.push(format!("{name}, {what}: {rows:?}"));
                }
            }
            let overheads = (recorded.overhead(), replayed.overhead());
            if (overheads.0 - overheads.1).abs() > 0.03 {
                wrong.push(format!("{name}, overhead: {overheads:?}"));
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{} differences in {count} runs:\n{}", wrong.len(), wrong.join("\n"));
}

/// What the same choices may differ by.
const SAME: (f64, Duration) = (0.15, Duration::from_millis(2));

const PROFILES: [(&str, Profile); 2] = [("default", STREAM), ("arq", ARQ)];

#[test]
#[ignore = "slow: seconds of processor time"]
fn the_same_choices_give_the_recorded_delays_at_half_load() {
    let links: [(&str, &[_]); 4] = [
        ("bursts", &[BURSTS]),
        ("single losses", &[SINGLE]),
        ("losses both ways", &[SINGLE, BACK]),
        ("bursts and jitter", &[BURSTS, JITTER]),
    ];
    replay_all(&links, &[("half load", Flow::paced(End::Near, 36_000_000, 1_500_000))], &PROFILES);
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn the_same_choices_give_the_recorded_delays_at_full_load() {
    let flows = [("full load", Flow::bulk(End::Near, 60_000_000))];
    replay_all(&[("bursts", &[BURSTS]), ("single losses", &[SINGLE])], &flows, &PROFILES);
    // The default with CUBIC is left out: its p99 of 172 ms becomes 213 ms (docs/recording.md).
    let cubic = Profile { rate_control: RateControl::Cubic, ..ARQ };
    let profiles = [("default", STREAM), ("arq, cubic", cubic)];
    replay_all(&[("queue", &[QUEUE])], &flows, &profiles);
}

#[test]
fn other_choices_give_other_delays() {
    let (recorded, _) = run(Flow::paced(End::Near, 15_000_000, 1_500_000), ARQ, &[BURSTS], 7);
    let mut choices = recorded.choices;
    let same = recorded.replay(&Recorded::config(&choices).unwrap()).unwrap();
    choices.profile = Profile::default();
    let coded = recorded.replay(&Recorded::config(&choices).unwrap()).unwrap();
    assert!(coded.overhead() > same.overhead());
    assert!(coded.delay.quantile(0.99) * 2 < same.delay.quantile(0.99), "{:?}", coded.delay.quantile(0.99));
    assert_eq!(coded.symbols.delivered, coded.delay.count());
}

#[test]
fn a_replay_tells_how_far_it_is_and_can_be_stopped() {
    let (recorded, _) = run(Flow::paced(End::Near, 3_000_000, 1_500_000), ARQ, &[BURSTS], 7);
    let config = Recorded::config(&recorded.choices).unwrap();
    let mut shares = Vec::new();
    let mut tell = |share| {
        shares.push(share);
        true
    };
    assert!(recorded.replay_while(&config, &mut tell).unwrap().unwrap().done);
    // Two seconds of writes, and what follows.
    assert!((15..40).contains(&shares.len()) && shares.is_sorted(), "{shares:?}");
    assert!(shares[0] < 0.2 && *shares.last().unwrap() <= 1.0, "{shares:?}");
    let mut left = 3;
    let mut stop = |_| {
        left -= 1;
        left > 0
    };
    assert!(recorded.replay_while(&config, &mut stop).unwrap().is_none());
    assert_eq!(left, 0);
}

#[test]
fn a_recording_without_a_flow_says_why_it_cannot_be_replayed() {
    assert!(matches!(Gather::default().finish(), Err(NoReplay::NoConnection)));
    let recorder = Arc::<Recorder>::default();
    let mut trial = bulk(100_000, &[BURSTS]);
    trial.far = trial.far.with_trace(recorder.clone());
    whole(&trial.run());
    let receiver = std::mem::take(&mut *recorder.0.lock().unwrap());
    assert!(receiver.received().count() > 50 && receiver.received().quantile(0.5) < Duration::from_secs(1));
    assert!(matches!(receiver.finish(), Err(NoReplay::NothingWritten)));
}
