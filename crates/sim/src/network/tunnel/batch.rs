//! Packets that wait for each other before they enter a tunnel, as those of batch coding do.
//!
//! A [`Tunnel`](super::Tunnel) has one at its near end if its plan asks for batches. Batch coding codes over
//! a batch when it is whole, and pipeline coding from its first packet on: with the same code behind it, this
//! makes the difference. Invariant: packets leave in the order in which they came, all of them.

use std::collections::VecDeque;

use tidewire_proto::Time;

use super::super::plan::Batch;
use super::Inner;

/// The packets that wait.
#[derive(Debug)]
pub(super) struct Waiting {
    batch: Batch,
    packets: VecDeque<Inner>,
    /// When the newest of them came.
    newest: Time,
}

impl Waiting {
    pub fn new(batch: Batch) -> Self {
        Self { batch, packets: VecDeque::new(), newest: Time::ZERO }
    }

    /// Takes a packet.
    pub fn push(&mut self, now: Time, packet: Inner) {
        self.packets.push_back(packet);
        self.newest = now;
    }

    /// When packets leave though their batch is not whole.
    pub fn next_moment(&self) -> Option<Time> {
        (!self.packets.is_empty()).then(|| self.newest + self.batch.pause)
    }

    /// The packets whose batch is whole or has ended.
    pub fn ready(&mut self, now: Time) -> Vec<Inner> {
        let ended = self.next_moment().is_some_and(|end| end <= now);
        let whole = self.packets.len() - self.packets.len() % self.batch.packets;
        self.packets.drain(..if ended { self.packets.len() } else { whole }).collect()
    }
}
