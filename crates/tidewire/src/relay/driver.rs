//! The driver of a relay: one task that moves datagrams between two sockets and the two endpoints of a relay.
//!
//! It follows the contract of [`crate::driver`]: after each change it lets the relay pass rows on, sends what
//! is due, and reads the next timer. Invariant: the lock is never held across a system call.

use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_proto::Time;
use tidewire_proto::connection::{CloseCode, Received};
use tidewire_proto::endpoint::Endpoint;

use super::{Joined, MAX_UNAUTHORIZED, State};
use crate::clock::Timer;
use crate::connection::EndpointEnded;
use crate::driver::{BATCHES, LEAST_SLEEP, ROUNDS};
use crate::port::Port;

/// The driver of a relay; see the module.
pub(super) struct Driver {
    joined: Arc<Joined>,
    /// The socket that listens, and the one that connects.
    ports: [Port; 2],
    timer: Timer,
}

/// Result of a round.
enum Round {
    More,
    Until(Time),
    Over,
}

impl Driver {
    pub fn new(joined: Arc<Joined>, ports: [Port; 2], timer: Timer) -> Self {
        Self { joined, ports, timer }
    }

    /// Runs until the relay was closed or dropped and all hops have ended.
    pub async fn run(mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS {
            let received = self.receive(cx);
            match self.send(cx) {
                Round::Over => return Poll::Ready(()),
                Round::Until(at) if !received && self.timer.poll(cx, at).is_pending() => return Poll::Pending,
                Round::Until(_) | Round::More => {}
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Receives what one system call of each socket returns. Returns whether there may be more.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let joined = &self.joined;
        let mut more = false;
        for (index, port) in self.ports.iter_mut().enumerate() {
            more |= port.receive(cx, &joined.clock, Time::ZERO, |at, train| {
                let mut state = joined.lock();
                let now = joined.clock.now();
                if train.dropped > 0 {
                    state.side(index).handle_host_drops(at, train.dropped.into());
                }
                for datagram in train.datagrams {
                    let received = Received { at, from: train.from, to: train.to, ecn: train.ecn, datagram };
                    state.side(index).handle_datagram(received);
                }
                // Few rows may wait in a hop, so each train is passed on before the next.
                state.turn(now);
            });
        }
        more
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Round {
        for batch in 0..BATCHES {
            let mut is_full = [false; 2];
            for (index, port) in self.ports.iter_mut().enumerate() {
                match port.flush(cx) {
                    Poll::Pending => is_full[index] = true,
                    Poll::Ready(None) => {}
                    Poll::Ready(Some((transmit, failure))) => {
                        let now = self.joined.clock.now();
                        self.joined.lock().side(index).handle_send_failure(now, &transmit, failure);
                    }
                }
            }
            let joined = Arc::clone(&self.joined);
            let mut state = joined.lock();
            let now = joined.clock.now();
            if batch == 0 {
                for (index, port) in self.ports.iter().enumerate() {
                    state.side(index).handle_read(port.read());
                }
                state.near.handle_timeout(now);
                state.far.handle_timeout(now);
            }
            state.turn(now);
            let mut is_idle = true;
            for (index, port) in self.ports.iter_mut().enumerate() {
                is_idle &= is_full[index] || !port.fill(now, state.side(index));
            }
            if is_idle {
                return self.settle(&mut state, now, is_full, cx);
            }
        }
        Round::More
    }

    /// Called when nothing is left to send, or a socket is full: its task is woken when it has room.
    fn settle(&mut self, state: &mut State, now: Time, is_full: [bool; 2], cx: &Context<'_>) -> Round {
        if !state.reports.is_empty() || !state.unauthorized.is_empty() {
            self.joined.changed.notify_waiters();
        }
        if state.is_over() {
            return Round::Over;
        }
        let mut due = Time::NEVER;
        for (index, is_full) in is_full.into_iter().enumerate() {
            let receive_from = self.ports[index].receive_from();
            if receive_from > now {
                due = due.min(receive_from);
            }
            // What is due there waits for the socket, not for a timer.
            if !is_full {
                due = due.min(state.side(index).poll_timeout().map_or(Time::NEVER, |(at, _)| at));
            }
        }
        state.driver = Some(cx.waker().clone());
        Round::Until(due.max(now + LEAST_SLEEP))
    }
}

impl Drop for Driver {
    /// Also runs when the runtime ends or something panicked, so that no task waits for ever.
    fn drop(&mut self) {
        self.joined.lock().ended = Some(EndpointEnded::DriverStopped);
        self.joined.changed.notify_waiters();
    }
}

impl State {
    fn side(&mut self, index: usize) -> &mut Endpoint {
        if index == 0 { &mut self.near } else { &mut self.far }
    }

    /// Passes rows on, and keeps what happened for the handle.
    fn turn(&mut self, now: Time) {
        if self.ended.is_some() {
            self.close_all(now);
        }
        self.relay.drive(now, &mut self.near, &mut self.far);
        while let Some(report) = self.relay.poll_report() {
            if self.reports.len() >= MAX_UNAUTHORIZED {
                self.reports.pop_front();
            }
            self.reports.push_back(report);
        }
        while let Some(refused) = self.near.poll_unauthorized() {
            self.unauthorized.truncate(MAX_UNAUTHORIZED - 1);
            self.unauthorized.push_back(refused);
        }
    }

    fn close_all(&mut self, now: Time) {
        for endpoint in [&mut self.near, &mut self.far] {
            let handles: Vec<_> = endpoint.connections().map(|(handle, _)| handle).collect();
            for hop in handles {
                if let Some(hop) = endpoint.connection_mut(hop) {
                    hop.close(now, CloseCode::Done, "the relay was stopped");
                }
            }
        }
    }
}
