//! A recorded run, replayed with the same choices, gives the recorded delays; with other choices, others.

use std::sync::{Arc, Mutex};

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::profile::{ARQ, Profile};
use tidewire_proto::stats::DelayHistogram;
use tidewire_proto::trace::{Trace, TraceEvent};
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::replay::{Gather, NoReplay, Recorded};
use tidewire_sim::report::Report;
use tidewire_sim::settings::Direction;

use super::{bulk, whole};

#[derive(Debug, Default)]
struct Recorder(Mutex<Gather>);

impl Trace for Recorder {
    fn record(&self, now: Time, _: ConnectionHandle, event: &TraceEvent) {
        self.0.lock().unwrap().take(now.since(Time::ZERO), event);
    }
}

/// Runs the flow, and returns what its sender recorded.
fn run(flow: Flow, profile: Profile, link: &[(Direction, &str, &str)]) -> (Recorded, Report) {
    let recorder = Arc::<Recorder>::default();
    let mut trial = bulk(1, link);
    trial.flows = vec![flow];
    trial.near = Config::builder().profile(profile).build().unwrap().with_trace(recorder.clone());
    let report = trial.run();
    whole(&report);
    let gather = std::mem::take(&mut *recorder.0.lock().unwrap());
    (gather.finish().unwrap(), report)
}

/// Whether two distributions agree within 15 %, or half a millisecond where a delay is short.
fn agrees(name: &str, measured: &DelayHistogram, other: &DelayHistogram) -> bool {
    let rows = [0.5, 0.95, 0.99].map(|q| (q, measured.quantile(q), other.quantile(q)));
    println!("{name}: {rows:?}");
    rows.into_iter().all(|(_, a, b)| {
        let (a, b) = (a.as_secs_f64(), b.as_secs_f64());
        (a - b).abs() <= (0.15 * a).max(0.0005)
    })
}

const LINK: [(Direction, &str, &str); 3] = [
    (Direction::Both, "rate", "25mbit"),
    (Direction::Both, "rtt", "60ms"),
    (Direction::Forward, "loss", "gilbert:5%,3"),
];

#[test]
fn the_same_choices_give_the_recorded_delays() {
    let paced = Flow::paced(End::Near, 30_000_000, 1_500_000);
    for (name, flow, profile, link) in [
        ("half load", paced.clone(), Profile::default(), &LINK[..]),
        ("half load, retransmission", paced, ARQ, &LINK[..]),
        ("full load", Flow::bulk(End::Near, 40_000_000), Profile::default(), &LINK[..]),
    ] {
        let (recorded, report) = run(flow, profile, link);
        let replayed = recorded.replay(&Recorded::config(&recorded.choices).unwrap()).unwrap();
        assert!(replayed.done && replayed.app_bytes == recorded.app_bytes, "{name}");
        assert!(agrees(&format!("{name}, estimated"), report.delay(), &recorded.delay), "{name}");
        assert!(agrees(&format!("{name}, replayed"), report.delay(), &replayed.delay), "{name}");
        let overheads = (recorded.overhead(), replayed.overhead());
        assert!((overheads.0 - overheads.1).abs() < 0.03, "{name}: {overheads:?}");
    }
}

#[test]
fn other_choices_give_other_delays() {
    let (recorded, _) = run(Flow::paced(End::Near, 15_000_000, 1_500_000), ARQ, &LINK);
    let mut choices = recorded.choices;
    let same = recorded.replay(&Recorded::config(&choices).unwrap()).unwrap();
    choices.profile = Profile::default();
    let coded = recorded.replay(&Recorded::config(&choices).unwrap()).unwrap();
    assert!(coded.overhead() > same.overhead());
    assert!(coded.delay.quantile(0.99) * 2 < same.delay.quantile(0.99), "{:?}", coded.delay.quantile(0.99));
    assert_eq!(coded.symbols.delivered, coded.delay.count());
}

#[test]
fn a_recording_without_a_flow_says_why_it_cannot_be_replayed() {
    assert!(matches!(Gather::default().finish(), Err(NoReplay::NoConnection)));
    let recorder = Arc::<Recorder>::default();
    let mut trial = bulk(100_000, &LINK);
    trial.far = trial.far.with_trace(recorder.clone());
    whole(&trial.run());
    let receiver = std::mem::take(&mut *recorder.0.lock().unwrap());
    assert!(receiver.received().count() > 50 && receiver.received().quantile(0.5) < Duration::from_secs(1));
    assert!(matches!(receiver.finish(), Err(NoReplay::NothingWritten)));
}
