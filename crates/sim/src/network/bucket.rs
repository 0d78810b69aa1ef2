//! A flow of NewReno over buckets in a network: a [`Coder`] and a [`Decoder`].

use core::time::Duration;
use std::collections::VecDeque;

use tidewire_proto::Time;

use super::agent::{Agent, Cargo, Sent};
use super::fabric::Packet;
use super::plan::Content;
use super::report::{self, Arrival, FlowReport, Latencies, viewing};
use super::tcp::source;
use crate::link::Corruption;
use crate::pair::End;
use crate::series::Series;
use crate::tcp::bucket::{Coder, Coding, Decoder, RECEIVE_WINDOW, SEGMENT};
use crate::tcp::{Sender, SenderConfig};
use crate::video::Playback;

/// Time between the first samples of the window. Chosen: below any round trip that is simulated.
const FIRST_INTERVAL: Duration = Duration::from_millis(10);

/// One flow over buckets; see the module.
#[derive(Debug)]
pub(super) struct Buckets {
    coder: Coder,
    decoder: Decoder,
    content: Content,
    start: Time,
    leaving: VecDeque<Sent>,
    /// Bytes delivered, and when the last ones were.
    delivered: u64,
    last: Time,
    latencies: Latencies,
    window: Series<(Time, f64)>,
    empty: Series<(Time, u64)>,
    playback: Option<Playback>,
}

impl Buckets {
    /// A flow that begins at `start`. Its handshake measured `round_trip`; `seed` decides its bytes.
    pub(super) fn start(coding: Coding, content: &Content, start: Duration, round_trip: Duration, seed: u64) -> Self {
        let config = SenderConfig { segment_bytes: SEGMENT, handshake: Some(round_trip), ..SenderConfig::default() };
        let start = Time::ZERO + start;
        let sender = Sender::new(config, source(content), RECEIVE_WINDOW, start);
        Self {
            coder: Coder::new(sender, coding, seed),
            decoder: Decoder::new(coding.confirms, seed),
            content: content.clone(),
            start,
            leaving: VecDeque::new(),
            delivered: 0,
            last: start,
            latencies: Latencies::default(),
            window: Series::new(FIRST_INTERVAL),
            empty: Series::new(FIRST_INTERVAL),
            playback: content.playback(),
        }
    }

    /// Lets out what TCP and the code have to send.
    fn send(&mut self, now: Time) {
        while let Some(packet) = self.coder.poll_transmit(now) {
            let len = Packet::<()>::len_of_ip(packet.ip_bytes());
            let cargo = Cargo::Combination(packet);
            self.leaving.push_back(Sent { from: End::Near, len, supports_marks: false, cargo });
        }
        let empty = self.coder.stats().empty;
        self.empty.note(now, || (now, empty));
        let window = f64::from(self.coder.window().segments);
        self.window.note(now, || (now, window));
    }

    /// Lets out acknowledgements, and notes what was delivered.
    fn confirm(&mut self, now: Time) {
        while let Some(ack) = self.decoder.poll_transmit() {
            let len = Packet::<()>::len_of_ip(ack.ip_bytes());
            self.leaving.push_back(Sent { from: End::Far, len, supports_marks: false, cargo: Cargo::Degrees(ack) });
        }
        let (before, delivered) = (self.delivered, self.decoder.delivered());
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

impl Agent for Buckets {
    fn next_moment(&self) -> Option<Time> {
        if self.is_over() { None } else { self.coder.poll_timeout() }
    }

    fn run(&mut self, now: Time) {
        self.coder.handle_timeout(now);
        self.send(now);
    }

    fn poll_departure(&mut self) -> Option<Sent> {
        self.leaving.pop_front()
    }

    fn hand(&mut self, now: Time, _: End, cargo: Cargo, _: bool, damage: &[Corruption]) {
        // A changed packet fails TCP's checksum.
        if !damage.is_empty() {
            return;
        }
        match cargo {
            Cargo::Combination(packet) => {
                self.decoder.handle(packet);
                self.confirm(now);
            }
            Cargo::Degrees(ack) => {
                self.coder.handle_ack(now, &ack);
                self.send(now);
            }
            Cargo::Ours(_) | Cargo::Hop { .. } | Cargo::Tcp(_) | Cargo::Datagram { .. } => {}
        }
    }

    fn is_over(&self) -> bool {
        self.coder.is_done() || self.content.bytes().is_some_and(|bytes| self.delivered >= bytes)
    }

    fn outcome(&mut self, now: Time) -> FlowReport {
        let is_over = self.is_over();
        let (whole, age) = (self.content.bytes().map(|bytes| self.delivered >= bytes), now.since(self.start));
        let (sender, receiver, tcp) = (self.coder.stats().clone(), self.decoder.stats(), self.coder.tcp_stats());
        FlowReport {
            viewing: self.playback.as_ref().map(|playback| viewing(playback, age, whole == Some(true))),
            kind: "bucket",
            bytes: self.delivered,
            whole,
            seconds: (if is_over { self.last } else { now }).since(self.start).as_secs_f64(),
            latencies: self.latencies.clone(),
            packets: sender.combinations,
            repeated: sender.repeats,
            window: self.window.samples().to_vec(),
            buckets: Some(Box::new(report::Buckets { sender, receiver, tcp, empty: self.empty.samples().to_vec() })),
            errors: self.decoder.errors().to_vec(),
            ..FlowReport::default()
        }
    }
}
