//! A connection of ours in a network: a [`Run`] with open ends, which connects when the flow starts.

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;

use super::agent::{Agent, Cargo, Sent};
use super::report::{FlowReport, Latencies};
use crate::duplex::DuplexConfig;
use crate::link::{Corruption, Delivery};
use crate::load::{Flow, Load};
use crate::pair::{BEGINNING, End};
use crate::report::{Run, Trial};
use crate::series::Series;

/// One connection with its streams.
#[derive(Debug)]
pub(super) struct Ours {
    state: State,
    streams: Vec<Flow>,
    window: Series<(Time, f64)>,
}

/// Whether the connection was begun.
#[derive(Debug)]
enum State {
    /// It connects at this time.
    Waits(Box<Trial>, Time),
    Runs(Box<Run>),
}

/// Least time between two samples of the window. Chosen: below any round trip that is simulated.
const SAMPLE: Duration = Duration::from_millis(10);
/// Bytes of a packet, in which the window is counted.
const PACKET: f64 = 1_500.0;

impl Ours {
    /// A connection that begins `start` after the network.
    pub(super) fn start([near, far]: &[Config; 2], streams: &[Flow], [start, limit]: [Duration; 2], seed: u64) -> Self {
        let trial = Trial::new(DuplexConfig::default(), streams.to_vec(), seed);
        let trial = Trial { near: near.clone(), far: far.clone(), limit, ..trial };
        let state = if start.is_zero() {
            State::Runs(Box::new(trial.start_open(BEGINNING)))
        } else {
            State::Waits(Box::new(trial), BEGINNING + start)
        };
        Self { state, streams: streams.to_vec(), window: Series::new(SAMPLE) }
    }

    fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.state {
            State::Waits(..) => None,
            State::Runs(run) => Some(run),
        }
    }
}

impl Agent for Ours {
    fn next_moment(&self) -> Option<Time> {
        match &self.state {
            State::Waits(_, start) => Some(*start),
            State::Runs(run) if run.load.is_over() => None,
            State::Runs(run) => run.pair.next_moment(),
        }
    }

    fn run(&mut self, now: Time) {
        match &mut self.state {
            State::Waits(trial, start) if *start <= now => self.state = State::Runs(Box::new(trial.start_open(now))),
            State::Waits(..) => {}
            State::Runs(run) => {
                run.until(now);
                self.window.note(now, || (now, run.stats(End::Near).rate.window as f64 / PACKET));
            }
        }
    }

    fn poll_departure(&mut self) -> Option<Sent> {
        let link = self.run_mut()?.pair.link_mut();
        let near = link.forward.poll_departure().map(|sent| (End::Near, sent));
        let (from, sent) = near.or_else(|| link.back.poll_departure().map(|sent| (End::Far, sent)))?;
        Some(Sent { from, len: sent.len, supports_marks: sent.supports_marks, cargo: Cargo::Ours(sent.payload) })
    }

    fn hand(&mut self, now: Time, end: End, cargo: Cargo, marked: bool, damage: &[Corruption]) {
        let Cargo::Ours(mut payload) = cargo else { return };
        damage.iter().for_each(|damage| damage.apply(payload.bytes_mut()));
        let Some(run) = self.run_mut() else { return };
        let link = run.pair.link_mut();
        let door = if end == End::Far { &mut link.forward } else { &mut link.back };
        door.hand(Delivery { payload, at: now, corruption: None, marked });
    }

    fn is_over(&self) -> bool {
        matches!(&self.state, State::Runs(run) if run.load.is_over())
    }

    fn outcome(&mut self, now: Time) -> FlowReport {
        let State::Runs(run) = &mut self.state else {
            return FlowReport { kind: "tidewire", ..FlowReport::default() };
        };
        let stats = run.stats(End::Near);
        let ended = if run.load.is_done() { run.pair.now() } else { now };
        FlowReport {
            packets: stats.packets.sent,
            repeated: stats.packets.repair,
            window: self.window.samples().to_vec(),
            ..outcome(&run.load, &self.streams, ended)
        }
    }
}

/// What came out of the streams of a connection that was over, or was looked at, at `ended`.
pub(super) fn outcome(load: &Load, streams: &[Flow], ended: Time) -> FlowReport {
    let start = streams.iter().map(|flow| flow.start).min().unwrap_or_default();
    let bytes: u64 = streams.iter().map(|flow| flow.bytes).sum();
    let mut latencies = Latencies::default();
    load.arrivals().iter().for_each(|arrival| latencies.add(arrival.delay()));
    let whole = (bytes < super::plan::ENDLESS).then_some(load.read() == bytes);
    // A network's file has one stream for each connection.
    let viewing = load.viewing(0, ended).map(|seen| {
        let left = if whole == Some(true) { seen.buffered() } else { Duration::ZERO };
        load.viewing(0, ended + left).unwrap_or(seen)
    });
    let began = load.began().unwrap_or(Time::ZERO) + start;
    let mut errors = load.errors.clone();
    errors.extend(load.closed[0].iter().filter(|_| !load.is_done()).map(|reason| format!("closed: {reason}")));
    FlowReport {
        kind: "tidewire",
        bytes: load.read(),
        whole,
        seconds: ended.since(began).as_secs_f64(),
        latencies,
        viewing,
        errors,
        ..FlowReport::default()
    }
}
