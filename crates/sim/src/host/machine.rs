//! The processors of a machine and the processes that wait for one, and the sleep of a process.
//!
//! [`crate::crowd::Crowd`] asks which process runs next. Invariant: a process waits at most once, and no more
//! processes run than there are processors.

use core::time::Duration;
use std::collections::VecDeque;

use tidewire_codec::SplitMix64;
use tidewire_proto::Time;

use super::{Host, Pauses};

/// How long a process may run while others wait. Origin: the base slice of Linux's scheduler (EEVDF) from
/// eight processors on; with two it is half of this.
const SLICE: Duration = Duration::from_millis(3);

/// Processors; see the module.
#[derive(Debug)]
pub(crate) struct Machine {
    pub host: Host,
    free: usize,
    waiting: VecDeque<usize>,
}

impl Machine {
    pub fn new(host: Host) -> Self {
        Self { host, free: host.processors, waiting: VecDeque::new() }
    }

    /// Process `process` wants to run.
    pub fn enqueue(&mut self, process: usize) {
        self.waiting.push_back(process);
    }

    /// The process that gets a processor, if one is free.
    pub fn dispatch(&mut self) -> Option<usize> {
        let next = if self.free > 0 { self.waiting.pop_front() } else { None };
        self.free -= usize::from(next.is_some());
        next
    }

    /// A process leaves its processor.
    pub fn release(&mut self) {
        self.free += 1;
    }

    /// Whether a process that ran for `ran` has to let another one run.
    pub fn is_over(&self, ran: Duration) -> bool {
        ran >= SLICE && !self.waiting.is_empty()
    }
}

/// The pauses of a process, one after the other.
#[derive(Debug)]
pub(crate) struct Nap {
    pauses: Pauses,
    random: SplitMix64,
    start: Time,
    end: Time,
}

impl Nap {
    /// The pauses of a process that starts at `now`.
    pub fn new(pauses: Pauses, seed: u64, now: Time) -> Self {
        let mut nap = Self { pauses, random: SplitMix64::new(seed), start: now, end: now };
        nap.draw(now);
        nap
    }

    fn draw(&mut self, from: Time) {
        self.start = from + self.pauses.every.mul_f64(2.0 * self.random.unit());
        let [least, most] = self.pauses.length.map(|length| length.as_secs_f64());
        self.end = self.start + Duration::from_secs_f64(least * (most / least).powf(self.random.unit()));
    }

    /// When the process may run if it wants to at `now`: now, or at the end of the pause. Times of calls do
    /// not decrease.
    pub fn until(&mut self, now: Time) -> Time {
        while self.end <= now {
            self.draw(self.end);
        }
        if self.start <= now { self.end } else { now }
    }
}
