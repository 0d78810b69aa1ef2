//! A connection of ours in a network: a [`Run`] with open ends.

use core::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::config::Config;

use super::agent::{Agent, Cargo, Sent};
use super::report::{FlowReport, Latencies};
use crate::duplex::DuplexConfig;
use crate::link::{Corruption, Delivery};
use crate::load::{Flow, Load};
use crate::pair::End;
use crate::report::{Run, Trial};
use crate::series::Series;

/// One connection with its streams.
#[derive(Debug)]
pub(super) struct Ours {
    run: Run,
    streams: Vec<Flow>,
    window: Series<(Time, f64)>,
}

/// Least time between two samples of the window. Chosen: below any round trip that is simulated.
const SAMPLE: Duration = Duration::from_millis(10);
/// Bytes of a packet, in which the window is counted.
const PACKET: f64 = 1_500.0;

impl Ours {
    /// Connects.
    pub(super) fn start([near, far]: &[Config; 2], streams: &[Flow], limit: Duration, seed: u64) -> Self {
        let trial = Trial::new(DuplexConfig::default(), streams.to_vec(), seed);
        let trial = Trial { near: near.clone(), far: far.clone(), limit, ..trial };
        Self { run: trial.start_open(), streams: streams.to_vec(), window: Series::new(SAMPLE) }
    }
}

impl Agent for Ours {
    fn next_moment(&self) -> Option<Time> {
        if self.is_over() { None } else { self.run.pair.next_moment() }
    }

    fn run(&mut self, now: Time) {
        self.run.until(now);
        let run = &mut self.run;
        self.window.note(now, || (now, run.stats(End::Near).window as f64 / PACKET));
    }

    fn poll_departure(&mut self) -> Option<Sent> {
        let link = self.run.pair.link_mut();
        let near = link.forward.poll_departure().map(|sent| (End::Near, sent));
        let (from, sent) = near.or_else(|| link.back.poll_departure().map(|sent| (End::Far, sent)))?;
        Some(Sent { from, len: sent.len, supports_marks: sent.supports_marks, cargo: Cargo::Ours(sent.payload) })
    }

    fn hand(&mut self, now: Time, end: End, cargo: Cargo, marked: bool, damage: &[Corruption]) {
        let Cargo::Ours(mut payload) = cargo else { return };
        damage.iter().for_each(|damage| damage.apply(payload.bytes_mut()));
        let link = self.run.pair.link_mut();
        let door = if end == End::Far { &mut link.forward } else { &mut link.back };
        door.hand(Delivery { payload, at: now, corruption: None, marked });
    }

    fn is_over(&self) -> bool {
        self.run.load.is_over()
    }

    fn outcome(&mut self, now: Time) -> FlowReport {
        let stats = self.run.stats(End::Near);
        let ended = if self.run.load.is_done() { self.run.pair.now() } else { now };
        FlowReport {
            packets: stats.packets.sent,
            repeated: stats.packets.repair,
            window: self.window.samples().to_vec(),
            ..outcome(&self.run.load, &self.streams, ended)
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
    let watched = load.watched(0, ended).map(|seen| {
        let left = if whole == Some(true) { seen.buffered() } else { Duration::ZERO };
        load.watched(0, ended + left).unwrap_or(seen)
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
        watched,
        errors,
        ..FlowReport::default()
    }
}
