//! A socket with what its driver keeps beside it: buffers, times of arrival, and the batch that waits for
//! room.
//!
//! A driver has one port for each of its sockets, and calls it from one task. Invariant: at most one batch
//! waits, and no other is taken from the protocol before it was sent or refused.

use std::task::{Context, Poll};
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::connection::{SendFailure, Transmit};
use tidewire_proto::endpoint::Endpoint;

use crate::arrival::Arrivals;
use crate::clock::Clock;
use crate::socket::{Socket, Train};

/// Pause after the socket refused to receive, for example because the kernel has no memory.
const RECEIVE_PAUSE: Duration = Duration::from_millis(10);

/// The socket of a driver; see the module.
pub(crate) struct Port {
    socket: Box<dyn Socket>,
    arrivals: Arrivals,
    receive_from: Time,
    /// All that arrived before this time was read.
    read: Time,
    pending: Option<Transmit>,
    out: Vec<u8>,
    largest: usize,
}

impl Port {
    /// `largest` is the length of our longest datagram.
    pub fn new(socket: Box<dyn Socket>, clock: &Clock, largest: u16) -> Self {
        let largest = usize::from(largest);
        Self {
            out: vec![0; largest * socket.max_segments(largest)],
            socket,
            arrivals: Arrivals::new(clock),
            receive_from: Time::ZERO,
            read: Time::ZERO,
            pending: None,
            largest,
        }
    }

    /// Uses another socket from now on.
    pub fn replace(&mut self, socket: Box<dyn Socket>) {
        self.socket = socket;
    }

    /// Nothing is received before this time.
    pub fn receive_from(&self) -> Time {
        self.receive_from
    }

    /// Receives a batch, and passes each train with its time of arrival to `take`. Returns whether there
    /// may be more. What waits in the socket is only surely found if something was `due` before.
    pub fn receive(
        &mut self,
        cx: &mut Context<'_>,
        clock: &Clock,
        due: Time,
        mut take: impl FnMut(Time, Train<'_>),
    ) -> bool {
        let began = clock.now();
        if began < self.receive_from {
            return false;
        }
        let received = self.socket.poll_receive(cx, due <= began);
        let is_drained = self.socket.is_drained();
        if is_drained {
            // A datagram that arrived since that answer waits for some microseconds only.
            self.read = clock.now();
        }
        let Poll::Ready(received) = received else { return false };
        let now = self.arrivals.begin(clock);
        if received.is_err() {
            // No timer waits for a socket that cannot be read.
            (self.receive_from, self.read) = (now + RECEIVE_PAUSE, now + RECEIVE_PAUSE);
            return false;
        }
        let (arrivals, mut newest) = (&mut self.arrivals, self.read);
        self.socket.take(&mut |train| {
            newest = arrivals.at(train.stamp);
            take(newest, train);
        });
        if !is_drained {
            self.read = self.read.max(newest);
        }
        true
    }

    /// Up to when the socket was read: whatever arrived before was taken.
    pub fn read(&self) -> Time {
        self.read
    }

    /// Sends the batch that waits. Returns the batch if the system refused it: it is then lost.
    pub fn flush(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Transmit, SendFailure)>> {
        let Some(transmit) = &self.pending else { return Poll::Ready(None) };
        let bytes = &self.out[..transmit.len];
        let Poll::Ready(sent) = self.socket.poll_send(cx, transmit, bytes) else { return Poll::Pending };
        Poll::Ready(self.pending.take().zip(sent.err()))
    }

    /// Takes the next batch of the endpoint. Call it only after [`Self::flush`] was ready. Returns whether
    /// there was one.
    pub fn fill(&mut self, now: Time, endpoint: &mut Endpoint) -> bool {
        debug_assert!(self.pending.is_none(), "a batch waits");
        let segments = self.socket.max_segments(self.largest);
        self.pending = endpoint.poll_transmit(now, segments, &mut self.out);
        self.pending.is_some()
    }
}
