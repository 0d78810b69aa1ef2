//! Records: made at a rate or as fast as possible, and measured where they arrive.
//!
//! A record has the length of the order and begins with the time at which it was made, in nanoseconds of the
//! maker's clock, big-endian. A record that could not be written at its time, because the one before still
//! waited, was still made at its time: waiting for the path is delay.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidewire::Stream;
use tidewire_command::records::{Records, Tally};
use tidewire_figures::{Delay, Delays};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;

use super::alarm::Alarm;
use super::{Interval, LEAST_RECORD, Order, now_ns};

/// Bytes of the time at the beginning of a record.
const TIME: usize = 8;
/// Records due within this time are made together, so that a high rate does not need one wake-up each. It is
/// about what a wake-up costs. At 50 Mbit/s, records of 1,200 bytes are 0.19 ms apart.
const LEAST_SLEEP: Duration = Duration::from_micros(150);
/// Bytes per read.
const BUFFER: usize = 64 << 10;

const _: () = assert!(TIME <= LEAST_RECORD as usize);

/// Makes records for one stream of the order, then ends the stream.
async fn make(mut to: impl AsyncWrite + Unpin, plan: &Order, stream: u16) -> io::Result<()> {
    // The content does not matter, because nothing on the way looks at it.
    let mut record = vec![0x5a; plan.record_bytes as usize];
    let start = Instant::now();
    let length = Duration::from_secs_f64(plan.seconds);
    match plan.rate_bps {
        None => {
            while start.elapsed() < length {
                write(&mut to, &mut record, now_ns()).await?;
            }
        }
        Some(rate) => {
            let gap = f64::from(plan.parallel) * 8.0 * f64::from(plan.record_bytes) / rate as f64;
            // The streams take turns.
            let first = gap * f64::from(stream) / f64::from(plan.parallel);
            let alarm = Alarm::new()?;
            let mut awake = start;
            for n in 0_u64.. {
                let due = Duration::from_secs_f64(first + gap * n as f64);
                if due >= length {
                    break;
                }
                let due = start + due;
                if Instant::now() < due {
                    alarm.wait(due.max(awake + LEAST_SLEEP)).await;
                    awake = Instant::now();
                }
                // A task that wakes late makes its record late. A task that waits for a write is late with
                // the next record.
                let late = due.max(awake).elapsed();
                write(&mut to, &mut record, now_ns().saturating_sub(late.as_nanos() as u64)).await?;
            }
        }
    }
    to.shutdown().await
}

async fn write(to: &mut (impl AsyncWrite + Unpin), record: &mut [u8], made: u64) -> io::Result<()> {
    record[..TIME].copy_from_slice(&made.to_be_bytes());
    to.write_all(record).await
}

/// Records that have arrived, on all streams.
#[derive(Debug)]
struct Meter {
    record_bytes: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the first and the last byte arrived.
    first: Option<Instant>,
    last: Option<Instant>,
    tally: Tally,
    /// Records since the last report, and when that was.
    recent: Delays,
    reported: Option<Instant>,
}

impl Meter {
    /// Nothing yet.
    fn new(plan: &Order) -> Self {
        Self { record_bytes: plan.record_bytes, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the records of a stream until its end.
    async fn take(&self, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut parser = Parser { length: self.record_bytes as usize, at: 0, time: [0; TIME] };
        let mut buffer = vec![0; BUFFER];
        loop {
            let length = from.read(&mut buffer).await?;
            let (arrived, at) = (now_ns(), Instant::now());
            if length == 0 {
                return Ok(());
            }
            let mut state = self.state();
            state.first.get_or_insert(at);
            state.last = Some(at);
            parser.feed(&buffer[..length], |made| {
                let difference = state.tally.record(made, arrived);
                state.recent.record(difference);
            });
        }
    }

    /// Data that arrived since the last report; `None` before the first byte.
    fn interval(&self) -> Option<Interval> {
        let mut state = self.state();
        let (first, now) = (state.first?, Instant::now());
        let since = state.reported.replace(now).unwrap_or(first);
        let recent = std::mem::take(&mut state.recent);
        let bytes = recent.count() * u64::from(self.record_bytes);
        let seconds = now.duration_since(since).as_secs_f64();
        Some(Interval {
            from_seconds: since.duration_since(first).as_secs_f64(),
            to_seconds: now.duration_since(first).as_secs_f64(),
            bytes,
            goodput_bps: if seconds > 0.0 { 8.0 * bytes as f64 / seconds } else { 0.0 },
            record_delay_ms: Delay::from(&recent.beyond(state.tally.least())),
            rate_control: None,
        })
    }

    /// Duration from the first byte to the last, and the records. `same_clock` tells whether the makers'
    /// clock is ours.
    fn end(&self, same_clock: bool) -> (Duration, Records) {
        let state = self.state();
        let length = state.first.zip(state.last).map_or(Duration::ZERO, |(first, last)| last.duration_since(first));
        (length, state.tally.records(self.record_bytes, same_clock))
    }
}

/// Takes records of several streams at once.
pub struct Taking {
    meter: Arc<Meter>,
    streams: JoinSet<io::Result<()>>,
    ticks: tokio::time::Interval,
}

impl Taking {
    /// Starts to read.
    pub fn begin(streams: Vec<Stream>, plan: &Order) -> Self {
        let meter = Arc::new(Meter::new(plan));
        let mut tasks = JoinSet::new();
        for stream in streams {
            let meter = Arc::clone(&meter);
            tasks.spawn(async move { meter.take(stream).await });
        }
        let period = Duration::from_secs_f64(plan.interval_seconds);
        let ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
        Self { meter, streams: tasks, ticks }
    }

    /// The next report; `None` when all streams have ended and everything was reported.
    ///
    /// # Errors
    /// Fails if a stream fails.
    pub async fn next(&mut self) -> io::Result<Option<Interval>> {
        loop {
            tokio::select! {
                ended = self.streams.join_next() => match ended {
                    Some(ended) => ended.map_err(io::Error::other)??,
                    None => return Ok(self.meter.interval().filter(|last| last.bytes > 0)),
                },
                _ = self.ticks.tick() => {
                    if let Some(interval) = self.meter.interval() {
                        return Ok(Some(interval));
                    }
                }
            }
        }
    }

    /// Duration from the first byte to the last, and the records. `same_clock` tells whether the makers'
    /// clock is ours.
    pub fn end(&self, same_clock: bool) -> (Duration, Records) {
        self.meter.end(same_clock)
    }
}

/// Makes records on all streams of the order until its end.
///
/// # Errors
/// Fails if a stream fails.
pub async fn make_all(streams: Vec<Stream>, plan: &Order) -> io::Result<()> {
    let mut tasks = JoinSet::new();
    for (stream, number) in streams.into_iter().zip(0..) {
        let plan = plan.clone();
        tasks.spawn(async move { make(stream, &plan, number).await });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    Ok(())
}

/// Finds the records in the bytes of a stream.
struct Parser {
    length: usize,
    /// Bytes of the current record that have arrived.
    at: usize,
    time: [u8; TIME],
}

impl Parser {
    /// Calls `record` with the time of each record whose last byte is in `bytes`.
    fn feed(&mut self, mut bytes: &[u8], mut record: impl FnMut(u64)) {
        while !bytes.is_empty() {
            let wanted = if self.at < TIME { TIME } else { self.length } - self.at;
            let (part, rest) = bytes.split_at(wanted.min(bytes.len()));
            if self.at < TIME {
                self.time[self.at..self.at + part.len()].copy_from_slice(part);
            }
            self.at += part.len();
            bytes = rest;
            if self.at == self.length {
                self.at = 0;
                record(u64::from_be_bytes(self.time));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_however_the_bytes_come() {
        let records: Vec<u8> = (1..=5_u64).flat_map(|time| [&time.to_be_bytes()[..], &[0xff; 12]].concat()).collect();
        for step in 1..=records.len() {
            let mut parser = Parser { length: 20, at: 0, time: [0; TIME] };
            let mut times = Vec::new();
            // The last record lacks its last byte.
            records[..99].chunks(step).for_each(|chunk| parser.feed(chunk, |time| times.push(time)));
            assert_eq!(times, [1, 2, 3, 4], "in steps of {step}");
        }
    }
}
