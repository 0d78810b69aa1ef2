//! Times at which numbered things are due, the earliest first.
//!
//! [`crate::crowd`] keeps its links, processes and applications in it, so that a step looks at those only
//! that have something to do. Invariant: each number has at most one time; equal times go by number.

use std::collections::BTreeSet;

use tidewire_proto::Time;

/// Numbers with their times.
#[derive(Debug)]
pub(crate) struct Agenda {
    times: Vec<Option<Time>>,
    order: BTreeSet<(Time, usize)>,
}

impl Agenda {
    /// Numbers from 0 to `count`, without times.
    pub fn new(count: usize) -> Self {
        Self { times: vec![None; count], order: BTreeSet::new() }
    }

    /// `number` is due at this time, or never.
    pub fn set(&mut self, number: usize, at: Option<Time>) {
        let before = core::mem::replace(&mut self.times[number], at);
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, number));
        }
        self.order.extend(at.map(|at| (at, number)));
    }

    /// The earliest time and its number.
    pub fn next(&self) -> Option<(Time, usize)> {
        self.order.first().copied()
    }
}
