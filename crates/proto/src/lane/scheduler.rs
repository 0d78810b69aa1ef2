//! Decides which stream may write next when several wait for room in the lane.
//!
//! Fair queueing (Demers, Keshav and Shenker 1989) with equal weights. A common clock advances by the bytes
//! written, divided by the number of waiting streams. A request of a stream begins at the end of its previous
//! one or at the clock, whichever is later. The request with the lowest end is served first. Streams that
//! always want to write get equal bytes. A stream that writes little, and rarely, is served next whatever the
//! others want. A stream gets no credit for time in which it wanted nothing.

use core::time::Duration;
use std::collections::VecDeque;

use crate::Time;
use crate::ids::StreamId;

/// A stream that was told of room and does not write within this time loses its turn. Chosen: as long as the
/// data queued in the lane lasts.
const PATIENCE: Duration = Duration::from_millis(2);

#[derive(Debug)]
struct Turn {
    /// Begin and end of the request, in bytes of the common clock.
    start: u64,
    end: u64,
    stream: StreamId,
    /// When the stream was told of room, if it has not written since.
    woken: Option<Time>,
}

/// The waiting streams of a lane; see the module.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    /// Sorted by `(end, stream)`, ascending.
    waiting: VecDeque<Turn>,
    clock: u64,
}

impl Scheduler {
    /// The number of symbols that `stream` may fill, when it wants `bytes` (at most a symbol) and `free`
    /// symbols are free. `served` is the end of its previous request. Returns 0 if other streams come first
    /// for all of them.
    pub(crate) fn share(&self, stream: StreamId, served: u64, bytes: usize, free: usize) -> usize {
        let mine = self.turn(stream).map_or(served.max(self.clock) + bytes as u64, |turn| turn.end);
        let (mut before, mut others) = (0, 0);
        for turn in self.waiting.iter().filter(|turn| turn.stream != stream).take(free) {
            others += 1;
            before += usize::from((turn.end, turn.stream) < (mine, stream));
        }
        if before >= free { 0 } else { (free / (others + 1)).max(1) }
    }

    /// Records that `stream` writes `bytes`. `served` is the end of its previous request; returns the end of
    /// this one.
    pub(crate) fn take(&mut self, stream: StreamId, served: u64, bytes: usize) -> u64 {
        let start = self.turn(stream).map_or(served.max(self.clock), |turn| turn.start);
        self.leave(stream);
        self.clock += bytes as u64 / (self.waiting.len() as u64 + 1);
        start + bytes as u64
    }

    /// Records that `stream` wants to write `bytes` (at most a symbol) and there is no room. `served` is the
    /// end of its previous request.
    pub(crate) fn wait(&mut self, stream: StreamId, served: u64, bytes: usize) {
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

    /// Removes `stream` from the waiting streams.
    pub(crate) fn leave(&mut self, stream: StreamId) {
        if let Some(at) = self.waiting.iter().position(|turn| turn.stream == stream) {
            self.waiting.remove(at);
        }
    }

    /// Tells the streams whose turn it is that `free` symbols are free, each stream once.
    pub(crate) fn wake(&mut self, now: Time, free: usize, mut tell: impl FnMut(StreamId)) {
        self.waiting.retain(|turn| turn.woken.is_none_or(|at| now < at + PATIENCE));
        for turn in self.waiting.iter_mut().take(free).filter(|turn| turn.woken.is_none()) {
            turn.woken = Some(now);
            tell(turn.stream);
        }
    }

    /// Whether a stream is waiting.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const SYMBOL: usize = 1_400;

    /// Streams that want to write `wants` bytes each turn share a lane with two free symbols. Returns the
    /// bytes that each stream wrote.
    fn serve(wants: &[usize], rounds: usize) -> Vec<usize> {
        let mut scheduler = Scheduler::default();
        let mut served = vec![0; wants.len()];
        let mut wrote = vec![0; wants.len()];
        for id in 0..wants.len() as u64 {
            scheduler.wait(StreamId(id), 0, wants[id as usize].min(SYMBOL));
        }
        for round in 0..rounds {
            let mut free = 2;
            let mut awake = Vec::new();
            scheduler.wake(Time::from_millis(10 * round as u64), free, |stream| awake.push(stream));
            // The greedy streams ask first, and repeatedly.
            awake.sort();
            for stream in awake.repeat(2) {
                let id = stream.0 as usize;
                let share = scheduler.share(stream, served[id], wants[id].min(SYMBOL), free);
                let bytes = wants[id].min(share * SYMBOL);
                if share > 0 {
                    served[id] = scheduler.take(stream, served[id], bytes);
                    wrote[id] += bytes;
                    free -= bytes.div_ceil(SYMBOL);
                }
                scheduler.wait(stream, served[id], wants[id].min(SYMBOL));
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
        // The last stream writes ten bytes each round, however much the other twenty want.
        assert!(wrote[20] >= 10 * 900, "{}", wrote[20]);
    }

    #[test]
    fn one_alone_may_fill_all_and_one_that_sleeps_blocks_nobody_for_long() {
        let (mut scheduler, bulk, asleep) = (Scheduler::default(), StreamId(0), StreamId(2));
        assert_eq!(scheduler.share(bulk, 0, SYMBOL, 7), 7);
        let served = scheduler.take(bulk, 0, 5_000);
        scheduler.wait(asleep, 0, 10);
        let mut told: BTreeMap<StreamId, u32> = BTreeMap::new();
        for ms in 0..4 {
            scheduler.wake(Time::from_millis(ms), 1, |stream| *told.entry(stream).or_default() += 1);
            assert_eq!(scheduler.share(bulk, served, SYMBOL, 1), usize::from(ms >= 2), "after {ms} ms");
        }
        assert_eq!(told.get(&asleep), Some(&1));
    }
}
