//! A flow of the simulator's TCP in a network: a [`TcpPair`] with open ends.

use core::time::Duration;

use tidewire_proto::Time;

use super::agent::{Agent, Cargo, Sent};
use super::plan::{Content, Control};
use super::report::{Arrival, FlowReport, Latencies, viewing};
use crate::duplex::DuplexConfig;
use crate::link::{Corruption, Delivery};
use crate::pair::End;
use crate::tcp::{Cubic, HEADERS, Receiver, Reno, Sender, SenderConfig, Source, TcpPair};
use crate::video::{Pace, Playback};

/// One flow of TCP; see the module.
#[derive(Debug)]
pub(super) struct Tcp {
    pair: TcpPair,
    kind: &'static str,
    content: Content,
    start: Time,
    /// Bytes delivered, and when the last ones were.
    delivered: u64,
    last: Time,
    latencies: Latencies,
    /// The viewer's buffer, if the flow carries a video.
    playback: Option<Playback>,
}

impl Tcp {
    /// A flow with this control that begins at `start`, with or without marks, and with packets of at most
    /// `longest` bytes. Its handshake measured `round_trip`.
    pub(super) fn start(
        (control, marks, longest): (Control, bool, Option<usize>),
        content: &Content,
        start: Duration,
        round_trip: Duration,
    ) -> Self {
        let mut config = SenderConfig { handshake: Some(round_trip), marks, ..SenderConfig::default() };
        let fits = longest.and_then(|longest| u32::try_from(longest.checked_sub(HEADERS)?).ok());
        config.segment_bytes = fits.map_or(config.segment_bytes, |fits| fits.min(config.segment_bytes));
        let (receiver, start) = (Receiver::default(), Time::ZERO + start);
        let (kind, control): (_, Box<dyn crate::tcp::Control>) = match control {
            Control::NewReno => ("newreno", Box::new(Reno)),
            Control::Cubic => ("cubic", Box::new(Cubic::default())),
            Control::Bbr => panic!("the simulator has no BBR: choose newreno or cubic, or run the plan in the lab"),
        };
        let sender = Sender::with_control(config, source(content), receiver.window(), start, control);
        let mut pair = TcpPair::with(sender, receiver, &DuplexConfig::default());
        pair.link_mut().open();
        let (latencies, playback) = (Latencies::default(), content.playback());
        Self { pair, kind, content: content.clone(), start, delivered: 0, last: start, latencies, playback }
    }

    /// Notes the records that were delivered by `now`.
    fn note(&mut self, now: Time) {
        let (before, delivered) = (self.delivered, self.pair.receiver().delivered());
        if delivered > before {
            (self.delivered, self.last) = (delivered, now);
            let age = now.since(self.start);
            self.playback.iter_mut().for_each(|playback| playback.on_bytes(age, delivered - before));
            for record in self.content.completed(before, delivered) {
                let made = self.content.made(record);
                self.latencies.keep(Arrival { made, latency: now.since(self.start + made) });
            }
        }
    }
}

/// What the application above TCP does.
pub(super) fn source(content: &Content) -> Source {
    match content {
        Content::Bulk { bytes: None } => Source::Bulk,
        Content::Bulk { bytes: Some(bytes) } => Source::Bytes(*bytes),
        Content::Paced { record, .. } => Source::Records { bytes: *record, every: content.every() },
        Content::Video { video, .. } if video.pace == Pace::Live => Source::Frames(video.trace.clone()),
        Content::Video { video, .. } => Source::Bytes(video.trace.bytes()),
    }
}

impl Agent for Tcp {
    fn next_moment(&self) -> Option<Time> {
        if self.is_over() { None } else { self.pair.next_moment() }
    }

    fn run(&mut self, now: Time) {
        self.pair.run(now);
        self.note(now);
    }

    fn poll_departure(&mut self) -> Option<Sent> {
        let link = self.pair.link_mut();
        let near = link.forward.poll_departure().map(|sent| (End::Near, sent));
        let (from, sent) = near.or_else(|| link.back.poll_departure().map(|sent| (End::Far, sent)))?;
        Some(Sent { from, len: sent.len, supports_marks: sent.supports_marks, cargo: Cargo::Tcp(sent.payload) })
    }

    fn hand(&mut self, now: Time, end: End, cargo: Cargo, marked: bool, damage: &[Corruption]) {
        let Cargo::Tcp(payload) = cargo else { return };
        let link = self.pair.link_mut();
        let door = if end == End::Far { &mut link.forward } else { &mut link.back };
        door.hand(Delivery { payload, at: now, corruption: damage.first().copied(), marked });
    }

    fn is_over(&self) -> bool {
        self.pair.sender().is_done() || self.content.bytes().is_some_and(|bytes| self.delivered >= bytes)
    }

    fn outcome(&mut self, now: Time) -> FlowReport {
        let outcome = self.pair.outcome();
        let is_over = self.is_over();
        let (whole, age) = (self.content.bytes().map(|bytes| self.delivered >= bytes), now.since(self.start));
        FlowReport {
            viewing: self.playback.as_ref().map(|playback| viewing(playback, age, whole == Some(true))),
            kind: self.kind,
            bytes: self.delivered,
            whole,
            seconds: (if is_over { self.last } else { now }).since(self.start).as_secs_f64(),
            latencies: self.latencies.clone(),
            packets: outcome.sender.segments,
            repeated: outcome.sender.repeated,
            window: outcome.window.iter().map(|sample| (sample.at, f64::from(sample.window))).collect(),
            ..FlowReport::default()
        }
    }
}
