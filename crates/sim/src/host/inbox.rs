//! The receive buffer of a socket, as the kernel keeps it.
//!
//! The owner of the links puts datagrams in when they arrive, and [`super::Process`] takes them out when it
//! runs. Invariant: the datagrams in it take at most the memory that the host gives.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use tidewire_proto::Time;
use tidewire_proto::path::Ecn;

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub ecn: Option<Ecn>,
    pub bytes: Vec<u8>,
}

/// A datagram in a socket.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// When it entered the socket.
    pub at: Time,
    /// Datagrams that were dropped since the one before it entered.
    pub dropped: u64,
    pub parcel: Parcel,
}

/// Datagrams at the socket of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketStats {
    /// Datagrams that the process read.
    pub read: u64,
    /// Datagrams dropped because the socket was full.
    pub dropped: u64,
    /// Longest time that a datagram waited to be read.
    pub longest: Duration,
}

/// The unread datagrams of a socket.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    limit: Option<usize>,
    memory: usize,
    /// Dropped since a datagram entered.
    dropped: u64,
    waiting: VecDeque<Waiting>,
    pub stats: SocketStats,
}

impl Inbox {
    pub fn new(limit: Option<usize>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Takes a datagram that arrives now, or drops it.
    pub fn push(&mut self, at: Time, parcel: Parcel) {
        // Linux compares what is taken before the datagram with the limit.
        if self.limit.is_some_and(|limit| self.memory > limit) {
            self.stats.dropped += 1;
            self.dropped += 1;
            return;
        }
        self.memory += memory(parcel.bytes.len());
        self.waiting.push_back(Waiting { at, dropped: core::mem::take(&mut self.dropped), parcel });
    }

    /// The oldest unread datagram.
    pub fn pop(&mut self, now: Time) -> Option<Waiting> {
        let next = self.waiting.pop_front()?;
        self.memory -= memory(next.parcel.bytes.len());
        self.stats.read += 1;
        self.stats.longest = self.stats.longest.max(now.since(next.at));
        Some(next)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Kernel memory of a datagram of `len` bytes: Linux takes a power of two for the bytes, the headers and the
/// shared information (`SKB_TRUESIZE`), and 256 bytes for the buffer's own description. That is 2,304 bytes
/// for a full datagram and 768 for a short one.
fn memory(len: usize) -> usize {
    const HEADERS: usize = 64;
    const SHARED: usize = 320;
    (len + HEADERS + SHARED).next_power_of_two() + 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_socket_drops_and_a_read_makes_room() {
        assert_eq!([60, 1_200, 1_472].map(memory), [768, 2_304, 2_304]);
        let mut inbox = Inbox::new(Some(4_608));
        let address = SocketAddr::from(([10, 0, 0, 1], 1));
        let push = |inbox: &mut Inbox, ms| {
            let parcel = Parcel { from: address, to: address, ecn: None, bytes: vec![0; 1_200] };
            inbox.push(Time::from_millis(ms), parcel);
        };
        (1..=4).for_each(|ms| push(&mut inbox, ms));
        assert_eq!(inbox.stats.dropped, 1);
        assert_eq!(inbox.pop(Time::from_millis(9)).map(|next| next.at), Some(Time::from_millis(1)));
        push(&mut inbox, 5);
        let left: Vec<_> = core::iter::from_fn(|| inbox.pop(Time::from_millis(9))).map(|next| next.at).collect();
        assert_eq!(left, [2, 3, 5].map(Time::from_millis));
        assert_eq!(inbox.stats, SocketStats { read: 4, dropped: 1, longest: Duration::from_millis(8) });
        assert!(inbox.is_empty() && inbox.memory == 0);
    }
}
