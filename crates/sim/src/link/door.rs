//! The open end of a link: what is sent on it is taken by the owner, and the owner hands in what arrives.
//!
//! A [`Network`](crate::network::Network) opens the links of [`Pair`](crate::pair::Pair) and
//! [`TcpPair`](crate::tcp::TcpPair), and carries their datagrams over its own links.

use std::collections::VecDeque;

use tidewire_proto::Time;

use super::Delivery;

/// A datagram that was sent on an open end.
#[derive(Clone, Debug)]
pub struct Departure<T> {
    /// Length of the payload in bytes.
    pub len: usize,
    /// Whether the sender supports congestion marks.
    pub supports_marks: bool,
    /// What was sent.
    pub payload: T,
}

/// Datagrams on their way through an open end, in both directions in their order.
#[derive(Clone, Debug)]
pub(super) struct Door<T> {
    leaving: VecDeque<Departure<T>>,
    arrived: VecDeque<Delivery<T>>,
}

impl<T> Default for Door<T> {
    fn default() -> Self {
        Self { leaving: VecDeque::new(), arrived: VecDeque::new() }
    }
}

impl<T> Door<T> {
    pub(super) fn leave(&mut self, departure: Departure<T>) {
        self.leaving.push_back(departure);
    }

    pub(super) fn poll_departure(&mut self) -> Option<Departure<T>> {
        self.leaving.pop_front()
    }

    pub(super) fn arrive(&mut self, delivery: Delivery<T>) {
        self.arrived.push_back(delivery);
    }

    pub(super) fn poll_delivery(&mut self, now: Time) -> Option<Delivery<T>> {
        self.arrived.front().filter(|delivery| delivery.at <= now)?;
        self.arrived.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<u64> {
        self.arrived.front().map(|delivery| delivery.at.0)
    }
}
