//! Whose turn it is to write: the streams that wait for room in the lane, in the order in which they get it.
//!
//! Fair queueing (Demers, Keshav and Shenker 1989) with equal weights. A common clock advances by the bytes written over the streams
//! that want to; what a stream wants to write begins where its own bytes or the clock stand, whichever is later, and the lowest end is served
//! first. Streams that always want to write get equal bytes; one that writes little now and then is next whatever the others want,
//! and nobody is owed for the time in which it wanted nothing.

use core::time::Duration;
use std::collections::VecDeque;

use crate::Time;
use crate::ids::StreamId;

/// Who was told that there is room and does not write for this long has no claim on it any more: as long as what waits in the
/// lane lasts (DESIGN section 4).
const PATIENCE: Duration = Duration::from_millis(2);

#[derive(Debug)]
struct Turn {
    /// Where it begins and ends, in bytes of the common clock.
    start: u64,
    end: u64,
    stream: StreamId,
    /// When the stream was told that there is room, if it has not written since.
    woken: Option<Time>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Ascending by `(end, stream)`.
    waiting: VecDeque<Turn>,
    clock: u64,
}

impl Turns {
    /// Symbols that `stream`, served up to `served`, may fill when it wants `bytes`, at most a symbol, and `free` symbols are: none when
    /// others come first for all of them.
    pub fn share(&self, stream: StreamId, served: u64, bytes: usize, free: usize) -> usize {
        let mine = self.turn(stream).map_or(served.max(self.clock) + bytes as u64, |turn| turn.end);
        let (mut before, mut others) = (0, 0);
        for turn in self.waiting.iter().filter(|turn| turn.stream != stream).take(free) {
            others += 1;
            before += usize::from((turn.end, turn.stream) < (mine, stream));
        }
        if before >= free { 0 } else { (free / (others + 1)).max(1) }
    }

    /// `stream`, served up to `served`, writes `bytes`; returns up to where it is served now.
    pub fn take(&mut self, stream: StreamId, served: u64, bytes: usize) -> u64 {
        let start = self.turn(stream).map_or(served.max(self.clock), |turn| turn.start);
        self.leave(stream);
        self.clock += bytes as u64 / (self.waiting.len() as u64 + 1);
        start + bytes as u64
    }

    /// `stream`, served up to `served`, wants to write `bytes`, at most a symbol, and there is no room.
    pub fn wait(&mut self, stream: StreamId, served: u64, bytes: usize) {
        if let Some(turn) = self.waiting.iter_mut().find(|turn| turn.stream == stream) {
            turn.woken = None;
            return;
        }
        let start = served.max(self.clock);
        let end = start + bytes as u64;
        let at = self.waiting.partition_point(|turn| (turn.end, turn.stream) < (end, stream));
        self.waiting.insert(at, Turn { start, end, stream, woken: None });
    }

    fn turn(&self, stream: StreamId) -> Option<&Turn> {
        self.waiting.iter().find(|turn| turn.stream == stream)
    }

    /// `stream` wants nothing any more.
    pub fn leave(&mut self, stream: StreamId) {
        if let Some(at) = self.waiting.iter().position(|turn| turn.stream == stream) {
            self.waiting.remove(at);
        }
    }

    /// `free` symbols have room: tells those whose turn it is, each once.
    pub fn wake(&mut self, now: Time, free: usize, mut tell: impl FnMut(StreamId)) {
        self.waiting.retain(|turn| turn.woken.is_none_or(|at| now < at + PATIENCE));
        for turn in self.waiting.iter_mut().take(free).filter(|turn| turn.woken.is_none()) {
            turn.woken = Some(now);
            tell(turn.stream);
        }
    }

    /// Whether a stream waits.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const SYMBOL: usize = 1_400;

    /// Streams that want to write `wants` bytes each turn share a lane with two free symbols; returns what each wrote.
    fn serve(wants: &[usize], rounds: usize) -> Vec<usize> {
        let mut turns = Turns::default();
        let mut served = vec![0; wants.len()];
        let mut wrote = vec![0; wants.len()];
        for id in 0..wants.len() as u64 {
            turns.wait(StreamId(id), 0, wants[id as usize].min(SYMBOL));
        }
        for round in 0..rounds {
            let mut free = 2;
            let mut awake = Vec::new();
            turns.wake(Time::from_millis(10 * round as u64), free, |stream| awake.push(stream));
            // The greedy ones ask first, and again and again.
            awake.sort();
            for stream in awake.repeat(2) {
                let id = stream.0 as usize;
                let share = turns.share(stream, served[id], wants[id].min(SYMBOL), free);
                let bytes = wants[id].min(share * SYMBOL);
                if share > 0 {
                    served[id] = turns.take(stream, served[id], bytes);
                    wrote[id] += bytes;
                    free -= bytes.div_ceil(SYMBOL);
                }
                turns.wait(stream, served[id], wants[id].min(SYMBOL));
            }
        }
        wrote
    }

    #[test]
    fn those_who_always_write_get_the_same() {
        let wrote = serve(&[100_000; 50], 5_000);
        let (least, most) = (wrote.iter().min().unwrap(), wrote.iter().max().unwrap());
        assert!(*least >= 190 * SYMBOL && most - least <= 2 * SYMBOL, "{least} to {most}");
    }

    #[test]
    fn who_wants_little_is_served_whenever_it_asks() {
        let mut wants = vec![100_000; 20];
        wants.push(10);
        let wrote = serve(&wants, 1_000);
        // Ten bytes of two symbols a round: never behind the twenty.
        assert!(wrote[20] >= 10 * 900, "{}", wrote[20]);
    }

    #[test]
    fn one_alone_may_fill_all_and_one_that_sleeps_blocks_nobody_for_long() {
        let (mut turns, bulk, asleep) = (Turns::default(), StreamId(0), StreamId(2));
        assert_eq!(turns.share(bulk, 0, SYMBOL, 7), 7);
        let served = turns.take(bulk, 0, 5_000);
        turns.wait(asleep, 0, 10);
        let mut told: BTreeMap<StreamId, u32> = BTreeMap::new();
        for ms in 0..4 {
            turns.wake(Time::from_millis(ms), 1, |stream| *told.entry(stream).or_default() += 1);
            assert_eq!(turns.share(bulk, served, SYMBOL, 1), usize::from(ms >= 2), "after {ms} ms");
        }
        assert_eq!(told.get(&asleep), Some(&1));
    }
}
