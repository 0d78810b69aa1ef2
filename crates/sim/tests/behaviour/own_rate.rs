//! What the bottleneck dropped at our own rate stands beside the loss of the medium, in no figure of both.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex};

use tidewire_proto::Custom;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::endpoint::ConnectionHandle;
use tidewire_proto::path::{AckSample, Budget, RateController};
use tidewire_proto::rate::RateControl;
use tidewire_proto::trace::{Trace, TraceEvent};
use tidewire_sim::report::{Report, Trial};
use tidewire_sim::settings::Direction;

use super::bulk;

/// Ten seconds of a bulk flow over 25 Mbit/s and 60 ms.
fn ten_seconds(control: RateControl, settings: &[(Direction, &str, &str)]) -> Report {
    let mut trial = bulk(1 << 40, settings);
    trial.near = Config::builder().rate_control(control).build().expect("in range");
    run(&trial)
}

fn run(trial: &Trial) -> Report {
    let mut run = trial.start();
    run.until(run.began() + Duration::from_secs(10));
    run.report()
}

fn control(name: &str) -> RateControl {
    name.parse().expect("a control")
}

#[test]
fn a_full_queue_drops_at_our_own_rate() {
    let report = ten_seconds(control("cubic"), &[(Direction::Forward, "queue", "60ms")]);
    let (packets, loss, dropped) = (report.near.packets, &report.near.loss, report.forward.queue_dropped);
    println!("{} lost, {:?}, {dropped} dropped by the queue", packets.lost, loss.at_own_rate);
    assert!(dropped > 50 && loss.at_own_rate.packets * 10 > dropped * 9, "{loss:?} of {dropped}");
    assert!(packets.lost + loss.at_own_rate.packets <= dropped + 5, "each is counted once");
    assert!(loss.at_own_rate.bytes > 1_200 * loss.at_own_rate.packets);
    let of = loss.runs.packets();
    assert!(of.1 <= packets.lost && loss.rate < 0.002, "{of:?} {loss:?}");
}

#[test]
fn what_the_medium_loses_is_not_dropped_at_our_own_rate() {
    for name in ["share", "cubic"] {
        let report = ten_seconds(control(name), &[(Direction::Forward, "loss", "5%")]);
        let (lost, own) = (report.near.packets.lost, report.near.loss.at_own_rate.packets);
        println!("{name}: {lost} lost, {own} at our own rate, {} by the link", report.forward.lost);
        assert!(own * 20 <= lost && lost > 20, "{name}: {own} beside {lost}");
        assert!((0.04..0.06).contains(&report.near.loss.rate), "{name}: {}", report.near.loss.rate);
    }
}

/// `share` knows that a policer drops, once it has seen more lost than the medium loses.
#[test]
fn share_attributes_the_drops_of_a_policer_to_its_own_rate() {
    let report = ten_seconds(control("share"), &[(Direction::Forward, "police", "10mbit:50kB")]);
    let (lost, own) = (report.near.packets.lost, report.near.loss.at_own_rate.packets);
    println!("{lost} lost, {own} at our own rate, {} policed, {:?}", report.forward.policed(), report.near.loss);
    assert!(own * 2 > lost, "{own} beside {lost}");
}

/// Records the phases, and what was told of each lost packet.
#[derive(Debug, Default)]
struct Recorder(Mutex<(Vec<String>, [u64; 2])>);

impl Trace for Recorder {
    fn record(&self, _now: Time, _connection: ConnectionHandle, event: &TraceEvent) {
        let (states, lost) = &mut *self.0.lock().unwrap();
        match event {
            TraceEvent::RateState { state } => states.push(state.as_ref().into()),
            TraceEvent::PacketLost { at_own_rate, .. } => lost[usize::from(*at_own_rate)] += 1,
            _ => {}
        }
    }
}

#[test]
fn the_phases_of_each_controller_are_told_once_when_they_change() {
    for (name, wanted) in [
        ("share", &["startup", "drain", "cruise"][..]),
        ("cubic", &["slow_start", "congestion_avoidance"]),
        ("newreno", &["slow_start", "congestion_avoidance"]),
        ("aimd", &["slow_start", "congestion_avoidance"]),
        ("train", &["startup", "cruise"]),
        ("fixed:10mbit", &[]),
    ] {
        let recorder = Arc::new(Recorder::default());
        let mut trial = bulk(1 << 40, &[(Direction::Forward, "queue", "60ms")]);
        let config = Config::builder().rate_control(control(name)).build().expect("in range");
        trial.near = config.with_trace(recorder.clone());
        let report = run(&trial);
        let (states, lost) = &*recorder.0.lock().unwrap();
        println!("{name}: {} phases, {lost:?} lost", states.len());
        assert!(wanted.iter().all(|state| states.iter().any(|seen| seen == state)), "{name}: {states:?}");
        assert!(states.windows(2).all(|pair| pair[0] != pair[1]) && wanted.is_empty() == states.is_empty(), "{name}");
        assert_eq!(states.last().map_or("", |state| state.as_str()), report.near.rate.state, "{name}");
        assert_eq!(lost[1], report.near.loss.at_own_rate.packets, "{name}: nothing arrives late here");
    }
}

/// A fixed pace that says congested or not, as the test wants.
#[derive(Debug)]
struct Late;

static CONGESTED: AtomicBool = AtomicBool::new(false);

impl RateController for Late {
    fn on_ack(&mut self, _ack: &AckSample) {}
    fn budget(&self) -> Budget {
        Budget { window: 1 << 20, pacing: 500_000 }
    }
    fn is_congested(&self) -> bool {
        CONGESTED.load(Ordering::Relaxed)
    }
}

#[test]
fn a_late_packet_is_taken_back_from_what_it_was_counted_as() {
    let build = |_: f64| Box::new(Late) as Box<dyn RateController>;
    let late = RateControl::Custom(Custom { name: "late", build, parameter: 0.0 });
    for congested in [true, false] {
        CONGESTED.store(congested, Ordering::Relaxed);
        let recorder = Arc::new(Recorder::default());
        let mut trial = bulk(1 << 40, &[(Direction::Forward, "reorder", "10%,30ms")]);
        let config = Config::builder().rate_control(late).build().expect("in range");
        trial.near = config.with_trace(recorder.clone());
        let report = run(&trial);
        let told = recorder.0.lock().unwrap().1;
        assert!(told[usize::from(congested)] > 5 && told[usize::from(!congested)] == 0, "{told:?}");
        let (lost, own) = (report.near.packets.lost, report.near.loss.at_own_rate);
        assert_eq!(report.near.rate.state, "", "a controller without phases");
        assert!(report.far.packets.reordered > 100, "{:?}", report.far.packets);
        println!("{told:?} told as lost, {lost} stay lost, {own:?}");
        assert!(lost <= 5 && own.packets <= 5 && own.bytes <= 1_500 * own.packets, "{lost} {own:?}");
    }
}
