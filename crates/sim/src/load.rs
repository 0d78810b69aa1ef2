//! Traffic for a pair: streams in both directions whose bytes both ends can compute. A lost, changed,
//! repeated or moved byte is therefore found at its exact place.
//!
//! A flow is a stream with data in one direction. Its sender writes as fast as possible, at a rate, or the
//! frames of a video. Its reader reads at once or at a rate of its own, and plays a video. [`Load`] is the
//! [`Application`] that runs the flows, and the oracle that checks them.

use core::time::Duration;

use tidewire_codec::SplitMix64;
use tidewire_proto::Time;
use tidewire_proto::connection::{CloseReason, Connection, Event, ReadError, StreamId, WriteError};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};
use tidewire_proto::stats::Stats;

use crate::clock::Clock;
use crate::pair::{Application, End};
use crate::video::{Pace, Playback, Video, Viewing};

/// A stream with data in one direction.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The end that sends.
    pub from: End,
    /// Number of bytes.
    pub bytes: u64,
    /// Bytes per second that the sender produces, in records of `record` bytes. Without a rate, it writes as
    /// fast as possible.
    pub rate: Option<u64>,
    /// Length of a record in bytes.
    pub record: u64,
    /// Bytes per second that the reader takes. Without a rate, it reads everything at once.
    pub reads: Option<u64>,
    /// The reader reads nothing for this long after the start.
    pub deaf: Duration,
    /// When the flow starts, after the connection was made.
    pub start: Duration,
    /// The video that the flow carries. Its frames and its pace replace `rate` and `record`, and `bytes` is
    /// the sum of its frames.
    pub video: Option<Video>,
}

impl Flow {
    /// A flow of `bytes` bytes, as fast as the path takes them.
    pub fn bulk(from: End, bytes: u64) -> Self {
        let (deaf, start) = (Duration::ZERO, Duration::ZERO);
        Self { from, bytes, rate: None, record: 1_200, reads: None, deaf, start, video: None }
    }

    /// Records of 1,200 bytes at `rate` bytes per second.
    pub fn paced(from: End, bytes: u64, rate: u64) -> Self {
        Self { rate: Some(rate), ..Self::bulk(from, bytes) }
    }

    /// The frames of a video, which the reader plays.
    pub fn video(from: End, video: Video) -> Self {
        let bytes = video.trace.bytes();
        Self { video: Some(video), ..Self::bulk(from, bytes) }
    }
}

/// The state of a flow.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The flow.
    pub flow: Flow,
    /// Bytes that its sender has written.
    pub written: u64,
    /// Bytes that its reader has read.
    pub read: u64,
}

/// A record of a flow with a rate, or a frame of a live video, completely read. Times count from the time
/// when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The number of its flow, from 0.
    pub flow: usize,
    /// When its sender produced it, whether or not there was room to write it.
    pub made: Duration,
    /// When its last byte was read, in order.
    pub read: Duration,
}

impl Arrival {
    /// Time from production to reading, the one-way time included.
    pub fn delay(&self) -> Duration {
        self.read.saturating_sub(self.made)
    }
}

/// Interval at which a slow reader reads.
const SIP: Duration = Duration::from_millis(10);

#[derive(Debug)]
struct Running {
    flow: Flow,
    stream: Option<StreamId>,
    written: u64,
    finished: bool,
    read: u64,
    ended: bool,
    blocked: bool,
    /// The reader's buffer, if the flow carries a video.
    playback: Option<Playback>,
}

impl Running {
    fn new(mut flow: Flow) -> Self {
        if let Some(video) = &flow.video {
            flow.bytes = video.trace.bytes();
        }
        let playback = flow.video.as_ref().map(Video::playback);
        Self { flow, stream: None, written: 0, finished: false, read: 0, ended: false, blocked: false, playback }
    }

    /// Bytes that the application has produced after `since`.
    fn produced(&self, since: Duration) -> u64 {
        let Some(running) = since.checked_sub(self.flow.start) else { return 0 };
        if let Some(video) = &self.flow.video {
            return video.bytes_until(running).min(self.flow.bytes);
        }
        let Some(rate) = self.flow.rate else { return self.flow.bytes };
        let bytes = u128::from(rate) * running.as_nanos() / 1_000_000_000;
        let records = (bytes as u64) / self.flow.record + 1;
        (records * self.flow.record).min(self.flow.bytes)
    }

    /// Whether the reader has to run although nothing arrived.
    fn is_slow(&self) -> bool {
        self.flow.reads.is_some() || !self.flow.deaf.is_zero()
    }

    /// Bytes that the reader may have read.
    fn allowed(&self, since: Duration) -> u64 {
        let Some(reading) = since.checked_sub(self.flow.start + self.flow.deaf) else { return 0 };
        self.flow.reads.map_or(u64::MAX, |rate| (u128::from(rate) * reading.as_nanos() / 1_000_000_000) as u64)
    }

    /// When the next record or frame is produced.
    fn next_record(&self) -> Duration {
        if let Some(video) = &self.flow.video {
            return self.flow.start + video.time_of(self.written).unwrap_or_default();
        }
        if self.written == 0 { self.flow.start } else { self.made(self.written / self.flow.record) }
    }

    /// When record or frame `n` (from 0) is produced: the first time at which [`Self::produced`] counts it.
    fn made(&self, n: u64) -> Duration {
        if let Some(video) = &self.flow.video {
            let frame = usize::try_from(n).ok().and_then(|n| video.trace.frames().get(n));
            return self.flow.start + frame.map_or(Duration::ZERO, |frame| frame.at);
        }
        let Some(rate) = self.flow.rate else { return self.flow.start };
        let nanos = (u128::from(n * self.flow.record) * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
        self.flow.start + Duration::from_nanos(nanos as u64)
    }

    /// The records or live frames that became complete with the bytes from `before` to `read`.
    fn completed(&self, before: u64) -> core::ops::Range<u64> {
        if let Some(video) = self.flow.video.as_ref().filter(|video| video.pace == Pace::Live) {
            let frames = video.trace.completed(before, self.read);
            return frames.start as u64..frames.end as u64;
        }
        if self.flow.rate.is_none() { 0..0 } else { before / self.flow.record..self.read / self.flow.record }
    }
}

/// The application; see the module.
#[derive(Debug)]
pub struct Load {
    seed: u64,
    flows: Vec<Running>,
    /// The clocks of both ends.
    clocks: [Clock; 2],
    began: Option<Time>,
    next_sip: Time,
    handles: [Option<ConnectionHandle>; 2],
    /// Errors found; empty if all is well.
    pub errors: Vec<String>,
    /// Why the connection ended, as each end was told.
    pub closed: [Option<CloseReason>; 2],
    last_stats: [Option<Stats>; 2],
    buffer: Vec<u8>,
    /// Bytes read by the far end, at certain times.
    marks: Vec<(Time, u64)>,
    arrivals: Vec<Arrival>,
}

/// Maximum number of errors kept.
const MAX_ERRORS: usize = 8;

impl Load {
    /// Runs these flows over one connection. `seed` determines their bytes.
    pub fn new(flows: &[Flow], seed: u64) -> Self {
        Self {
            seed,
            flows: flows.iter().cloned().map(Running::new).collect(),
            clocks: [Clock::default(); 2],
            began: None,
            next_sip: Time::ZERO,
            handles: [None; 2],
            errors: Vec::new(),
            closed: [None, None],
            last_stats: [None, None],
            buffer: vec![0; 4_096],
            marks: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    /// The same between ends with these clocks: that of the near and that of the far end.
    pub fn with_clocks(self, clocks: [Clock; 2]) -> Self {
        Self { clocks, ..self }
    }

    /// Whether all bytes of all flows were read and correct.
    pub fn is_done(&self) -> bool {
        self.errors.is_empty() && self.flows.iter().all(|flow| flow.ended)
    }

    /// Whether nothing more will happen: all is done, an error was found, or both ends have lost the
    /// connection.
    pub fn is_over(&self) -> bool {
        self.is_done() || !self.errors.is_empty() || self.closed.iter().all(Option::is_some)
    }

    /// Statistics of a connection at the time it ended.
    pub fn last_stats(&self, end: End) -> Option<&Stats> {
        self.last_stats[end as usize].as_ref()
    }

    /// Bytes read by the time `at`.
    pub fn read_by(&self, at: Time) -> u64 {
        self.marks.iter().take_while(|&&(when, _)| when <= at).last().map_or(0, |&(_, bytes)| bytes)
    }

    /// Bytes of all flows read so far.
    pub fn read(&self) -> u64 {
        self.flows.iter().map(|flow| flow.read).sum()
    }

    /// The complete records of all flows with a rate and the frames of all live videos, in the order in which
    /// they were read.
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// What the viewer of flow `flow` (from 0) has seen by `now`, since the flow started. `None` if the flow
    /// carries no video. After the run, `now` may lie ahead: the buffer is then played further.
    pub fn viewing(&self, flow: usize, now: Time) -> Option<Viewing> {
        let running = self.flows.get(flow)?;
        let since = self.began.map_or(Duration::ZERO, |began| now.since(began));
        Some(running.playback.as_ref()?.viewing(since.saturating_sub(running.flow.start)))
    }

    /// The state of every flow.
    pub fn progress(&self) -> impl Iterator<Item = Progress> + '_ {
        self.flows.iter().map(|flow| Progress { flow: flow.flow.clone(), written: flow.written, read: flow.read })
    }

    /// The handle of the connection at `end`.
    pub fn handle(&self, end: End) -> Option<ConnectionHandle> {
        self.handles[end as usize]
    }

    /// When the connection was made.
    pub fn began(&self) -> Option<Time> {
        self.began
    }

    fn error(&mut self, text: String) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(text);
        }
    }

    fn on_event(&mut self, now: Time, end: End, handle: ConnectionHandle, endpoint: &mut Endpoint, event: &Event) {
        match event {
            Event::Connected => {
                self.handles[end as usize] = Some(handle);
                self.began.get_or_insert(now);
                self.next_sip = now;
            }
            Event::StreamOpened(stream) => {
                // An end opens its streams in the order of its flows.
                let nth = usize::try_from(stream.0 / 2).unwrap_or(usize::MAX);
                let opened = self.flows.iter().position(|flow| flow.stream == Some(*stream) && flow.flow.from != end);
                if opened.is_none() {
                    self.error(format!("{end:?} was offered stream {nth} that nobody opened"));
                }
                if let Some(connection) = endpoint.connection_mut(handle) {
                    // A flow has one direction, so our half ends at once.
                    let _ = connection.finish(*stream);
                }
            }
            Event::Writable(stream) => {
                let ours = self.flows.iter_mut().find(|flow| flow.stream == Some(*stream));
                match ours {
                    Some(flow) if flow.flow.from == end => flow.blocked = false,
                    _ => {
                        if let Some(connection) = endpoint.connection_mut(handle) {
                            let _ = connection.finish(*stream);
                        }
                    }
                }
            }
            Event::StreamsAvailable => {
                let waiting = self.flows.iter_mut().filter(|flow| flow.flow.from == end && flow.stream.is_none());
                waiting.for_each(|flow| flow.blocked = false);
            }
            Event::Closed(reason) => {
                self.closed[end as usize] = Some(reason.clone());
                self.last_stats[end as usize] = endpoint.connection(handle).map(Connection::stats);
            }
            _ => {}
        }
    }

    fn write(&mut self, now: Time, end: End, connection: &mut Connection) {
        let Some(since) = self.began.map(|began| now.since(began)) else { return };
        for index in 0..self.flows.len() {
            let running = &mut self.flows[index];
            if running.flow.from != end || running.finished || running.blocked || since < running.flow.start {
                continue;
            }
            if running.stream.is_none() {
                running.stream = connection.open_stream().ok();
            }
            let Some(stream) = running.stream else {
                running.blocked = true;
                continue;
            };
            let produced = running.produced(since);
            while running.written < produced {
                let n = usize::try_from(produced - running.written).unwrap_or(usize::MAX).min(self.buffer.len());
                fill(self.seed, index, running.written, &mut self.buffer[..n]);
                match connection.write(stream, &self.buffer[..n]) {
                    Ok(taken) => running.written += taken as u64,
                    Err(WriteError::Blocked) => {
                        running.blocked = true;
                        break;
                    }
                    Err(_) => break,
                }
            }
            if running.written == running.flow.bytes && !running.blocked {
                match connection.finish(stream) {
                    Ok(()) => running.finished = true,
                    Err(WriteError::Blocked) => running.blocked = true,
                    Err(_) => {}
                }
            }
        }
    }

    fn read_all(&mut self, now: Time, end: End, connection: &mut Connection) {
        let Some(since) = self.began.map(|began| now.since(began)) else { return };
        let local = self.clocks[end as usize].local(now);
        for index in 0..self.flows.len() {
            let running = &mut self.flows[index];
            let Some(stream) = running.stream.filter(|_| running.flow.from != end && !running.ended) else { continue };
            let allowed = running.allowed(since);
            let mut wrong = None;
            loop {
                let running = &mut self.flows[index];
                let left = usize::try_from(allowed.saturating_sub(running.read)).unwrap_or(usize::MAX);
                match connection.chunk(stream) {
                    Ok([]) => {
                        if running.read != running.flow.bytes {
                            wrong =
                                Some(format!("flow {index} ended at {} of {} bytes", running.read, running.flow.bytes));
                        }
                        running.ended = true;
                        let at = since.saturating_sub(running.flow.start);
                        running.playback.iter_mut().for_each(|playback| playback.finish(at));
                        connection.consume(local, stream, 0);
                        break;
                    }
                    Ok(_) if left == 0 => break,
                    Ok(chunk) => {
                        let n = chunk.len().min(left).min(self.buffer.len());
                        fill(self.seed, index, running.read, &mut self.buffer[..n]);
                        if chunk[..n] != self.buffer[..n] {
                            let at = chunk.iter().zip(&self.buffer).position(|(got, want)| got != want).unwrap_or(0);
                            wrong = Some(format!("flow {index} differs at byte {}", running.read + at as u64));
                            break;
                        }
                        let before = running.read;
                        running.read += n as u64;
                        let at = since.saturating_sub(running.flow.start);
                        running.playback.iter_mut().for_each(|playback| playback.on_bytes(at, n as u64));
                        let running = &self.flows[index];
                        let arrival = |n| Arrival { flow: index, made: running.made(n), read: since };
                        self.arrivals.extend(running.completed(before).map(arrival));
                        connection.consume(local, stream, n);
                    }
                    Err(ReadError::Blocked | ReadError::UnknownStream) => break,
                    Err(ReadError::Reset(code)) => {
                        wrong = Some(format!("flow {index} was reset with code {code}, but no end had reset it"));
                        break;
                    }
                }
            }
            if let Some(wrong) = wrong {
                self.error(wrong);
            }
        }
        let read = self.read();
        if self.marks.last().is_none_or(|&(when, _)| now.since(when) >= Duration::from_millis(10)) {
            self.marks.push((now, read));
        }
    }
}

impl Application for Load {
    fn run(&mut self, now: Time, end: End, endpoint: &mut Endpoint, event: Option<(ConnectionHandle, Event)>) {
        if let Some((handle, event)) = &event {
            self.on_event(now, end, *handle, endpoint, event);
        }
        let Some(connection) = self.handle(end).and_then(|handle| endpoint.connection_mut(handle)) else { return };
        self.write(now, end, connection);
        self.read_all(now, end, connection);
        if now >= self.next_sip + SIP {
            self.next_sip = now;
        }
    }

    fn poll_timeout(&self, end: End) -> Option<Time> {
        let began = self.began.filter(|_| self.handle(end).is_some() && self.closed[end as usize].is_none())?;
        let records = self
            .flows
            .iter()
            .filter(|flow| flow.flow.from == end && !flow.blocked && !flow.finished && flow.written < flow.flow.bytes);
        let next_record = records.map(|flow| began + flow.next_record()).min();
        let sips = self.flows.iter().any(|flow| flow.flow.from != end && flow.is_slow() && !flow.ended);
        [next_record, sips.then(|| self.next_sip + SIP)].into_iter().flatten().min()
    }
}

/// Computes the bytes of flow `flow` from `offset` on: eight at a time, by SplitMix64 of their place.
pub fn fill(seed: u64, flow: usize, offset: u64, out: &mut [u8]) {
    let stream = seed ^ (flow as u64 + 1).wrapping_mul(SplitMix64::STEP);
    let mut at = offset;
    let mut out = out;
    while !out.is_empty() {
        let bytes = SplitMix64::mix((at / 8).wrapping_mul(SplitMix64::STEP).wrapping_add(stream)).to_le_bytes();
        let from = (at % 8) as usize;
        let n = (8 - from).min(out.len());
        out[..n].copy_from_slice(&bytes[from..from + n]);
        out = &mut out[n..];
        at += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_do_not_depend_on_how_they_are_cut() {
        let mut whole = [0; 100];
        fill(5, 1, 3, &mut whole);
        let mut parts = [0; 100];
        for (n, part) in parts.chunks_mut(7).enumerate() {
            fill(5, 1, 3 + 7 * n as u64, part);
        }
        assert_eq!(whole, parts);
    }

    #[test]
    fn a_record_is_made_when_it_is_first_produced_and_read_with_its_last_byte() {
        for rate in [1, 7, 125_000, 1_562_500] {
            let flow = Flow::paced(End::Near, 1 << 30, rate);
            let mut load = Load::new(&[flow], 1);
            let running = &mut load.flows[0];
            for n in 1..50 {
                let made = running.made(n);
                assert_eq!(running.produced(made), 1_200 * (n + 1), "{rate}");
                assert_eq!(running.produced(made - Duration::from_nanos(1)), 1_200 * n, "{rate}");
            }
            running.read = 3_599;
            assert_eq!(running.completed(1_199), 0..2);
        }
    }
}
