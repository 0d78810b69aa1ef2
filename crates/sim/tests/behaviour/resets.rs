//! Either side gives up streams at random times, under loss. What is read is a prefix of what was written,
//! ends are those of the writer, codes are correct, and every stream is forgotten (otherwise the next could
//! not be opened).

use core::time::Duration;
use std::collections::BTreeMap;

use tidewire_codec::SplitMix64;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::{Connection, Event, ReadError, StreamId, WriteError};
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};
use tidewire_sim::pair::{Application, End, Pair};
use tidewire_sim::settings::Direction;

use super::link;

/// Streams that each side opens. The peer allows few at a time.
const STREAMS: usize = 60;
const AT_ONCE: u64 = 12;

/// What a side still does with a stream.
struct Half {
    /// Bytes that it writes, and those already written.
    total: u64,
    written: u64,
    /// Number of bytes after which it gives up.
    resets_at: Option<u64>,
    /// Number of bytes after which it stops reading.
    stops_at: Option<u64>,
    read: u64,
    writes: bool,
    reads: bool,
}

struct Chaos {
    random: SplitMix64,
    handles: [Option<ConnectionHandle>; 2],
    halves: [BTreeMap<StreamId, Half>; 2],
    opened: [usize; 2],
    /// Lengths at which writers ended and reset, by (end, stream); `None` if the reader stopped it.
    ended: BTreeMap<(usize, StreamId), (u64, Option<u64>)>,
    resets_read: u32,
    ends_read: u32,
    over: [usize; 2],
    errors: Vec<String>,
}

impl Chaos {
    fn half(&mut self) -> Half {
        let total = self.random.below(60_000);
        let resets_at = (self.random.below(3) == 0).then(|| self.random.below(total + 1));
        let stops_at = (self.random.below(3) == 0).then(|| self.random.below(30_000));
        Half { total, written: 0, resets_at, stops_at, read: 0, writes: true, reads: true }
    }

    fn work(&mut self, now: Time, end: usize, connection: &mut Connection) {
        while self.opened[end] < STREAMS
            && let Ok(id) = connection.open_stream()
        {
            self.opened[end] += 1;
            let half = self.half();
            self.halves[end].insert(id, half);
        }
        let mut halves = core::mem::take(&mut self.halves[end]);
        for (&id, half) in &mut halves {
            if half.writes {
                self.write(end, connection, id, half);
            }
            if half.reads {
                self.read(now, end, connection, id, half);
            }
        }
        let before = halves.len();
        halves.retain(|_, half| half.writes || half.reads);
        self.over[end] += before - halves.len();
        halves.append(&mut self.halves[end]);
        self.halves[end] = halves;
    }

    fn write(&mut self, end: usize, connection: &mut Connection, id: StreamId, half: &mut Half) {
        loop {
            if half.resets_at.is_some_and(|at| half.written >= at) {
                half.writes = false;
                // The stream may have been stopped meanwhile.
                let _ = connection.reset(id, id.0 + 500);
                self.ended.insert((end, id), (half.written, Some(id.0 + 500)));
                return;
            }
            let result = if half.written == half.total {
                connection.finish(id).map(|()| half.writes = false)
            } else {
                let until = half.resets_at.unwrap_or(half.total).min(half.total).min(half.written + 700);
                let bytes: Vec<u8> = (half.written..until).map(|at| byte(end, id, at)).collect();
                connection.write(id, &bytes).map(|taken| half.written += taken as u64)
            };
            match result {
                Ok(()) if half.writes => {}
                Ok(()) => {
                    self.ended.insert((end, id), (half.total, None));
                    return;
                }
                Err(WriteError::Blocked) => return,
                Err(WriteError::Stopped(code)) => {
                    half.writes = false;
                    if code != id.0 + 900 {
                        self.errors.push(format!("{id:?} stopped with {code}"));
                    }
                    return;
                }
                Err(error) => return self.errors.push(format!("{id:?}: {error} at {}", half.written)),
            }
        }
    }

    fn read(&mut self, now: Time, end: usize, connection: &mut Connection, id: StreamId, half: &mut Half) {
        loop {
            if half.stops_at.is_some_and(|at| half.read >= at) {
                let _ = connection.stop(id, id.0 + 900);
                half.reads = false;
                return;
            }
            let theirs = self.ended.get(&(1 - end, id)).copied();
            let read = match connection.chunk(id) {
                Ok(chunk) => {
                    if !chunk.iter().zip(half.read..).all(|(&got, at)| got == byte(1 - end, id, at)) {
                        return self.errors.push(format!("{id:?} differs after {}", half.read));
                    }
                    chunk.len()
                }
                Err(ReadError::Reset(code)) => {
                    half.reads = false;
                    self.resets_read += 1;
                    if !theirs.is_some_and(|(last, reset)| reset == Some(code) && half.read <= last) {
                        self.errors.push(format!("{id:?} reset with {code}: {theirs:?}"));
                    }
                    return;
                }
                Err(ReadError::Blocked) => return,
                Err(error) => return self.errors.push(format!("{id:?}: {error}")),
            };
            connection.consume(now, id, read);
            half.read += read as u64;
            if read == 0 {
                half.reads = false;
                self.ends_read += 1;
                if theirs != Some((half.read, None)) {
                    self.errors.push(format!("{id:?} ended at {}: {theirs:?}", half.read));
                }
                return;
            }
        }
    }
}

impl Application for Chaos {
    fn run(&mut self, now: Time, end: End, endpoint: &mut Endpoint, event: Option<(ConnectionHandle, Event)>) {
        let end = end as usize;
        match event {
            Some((handle, Event::Connected)) => self.handles[end] = Some(handle),
            Some((_, Event::StreamOpened(id))) => {
                let half = self.half();
                self.halves[end].insert(id, half);
            }
            Some((_, Event::Closed(reason))) => self.errors.push(format!("closed: {reason}")),
            _ => {}
        }
        if let Some(connection) = self.handles[end].and_then(|handle| endpoint.connection_mut(handle)) {
            self.work(now, end, connection);
        }
    }

    fn poll_timeout(&self, _: End) -> Option<Time> {
        None
    }
}

fn byte(end: usize, id: StreamId, at: u64) -> u8 {
    ((at ^ (id.0 << 9) ^ end as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

#[test]
#[ignore = "slow: seconds of processor time"]
fn streams_given_up_at_random_leave_nothing_wrong_and_nothing_behind() {
    let (mut resets, mut ends) = (0, 0);
    for seed in 0..24 {
        let loss = ["0%", "5%", "20%"][seed as usize % 3];
        let link = link(&[(Direction::Both, "loss", loss), (Direction::Both, "reorder", "5%,10ms")]);
        let config = Config::builder().max_streams(AT_ONCE).build().expect("in range");
        let mut link = link;
        link.set_seed(seed);
        let mut pair = Pair::new(config.clone(), config, &link, seed);
        let mut chaos = Chaos {
            random: SplitMix64::new(seed),
            handles: [None; 2],
            halves: Default::default(),
            opened: [0; 2],
            ended: BTreeMap::new(),
            resets_read: 0,
            ends_read: 0,
            over: [0; 2],
            errors: Vec::new(),
        };
        pair.connect(&mut chaos);
        let limit = pair.now() + Duration::from_secs(600);
        let done = |chaos: &Chaos| !chaos.errors.is_empty() || chaos.over == [2 * STREAMS; 2];
        assert!(pair.run(&mut chaos, limit, done), "seed {seed}: {:?} over", chaos.over);
        assert!(chaos.errors.is_empty(), "seed {seed}: {:?}", chaos.errors);
        resets += chaos.resets_read;
        ends += chaos.ends_read;
    }
    assert!(resets > 500 && ends > 500, "{resets} resets, {ends} ends");
}
