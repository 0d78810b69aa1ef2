//! The driver: one task per socket. It moves datagrams between the socket and the protocol, and wakes waiting
//! tasks.
//!
//! It follows the protocol's contract: after each change it sends what is due, hands out jobs and events, and
//! reads the next timer. Only then it waits for the socket, the timer, a worker or a handle. Each turn does a
//! bounded amount of work and then lets other tasks run.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidewire_proto::Time;
use tidewire_proto::connection::{CloseReason, Received, WakeReason};

use crate::clock::Timer;
use crate::mail::Mail;
use crate::port::Port;
use crate::shared::{Shared, State};
use crate::socket::Socket;
use crate::workers::Workers;

/// Rounds of receiving and sending before other tasks get a turn.
pub(crate) const ROUNDS: usize = 4;
/// Maximum number of batches sent in a round. A batch is at most 0.5 ms of the pacing rate.
pub(crate) const BATCHES: usize = 32;
/// Timers never wake the driver more often than this: a hundredth of the time that the pacer lets a late
/// driver catch up.
pub(crate) const LEAST_SLEEP: Duration = Duration::from_micros(20);

/// The driver of one socket; see the module.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    port: Port,
    timer: Timer,
    /// Set if there are other shards.
    mail: Option<Mail>,
    workers: Workers,
    wake: Vec<Waker>,
}

/// Result of a round.
enum Round {
    /// There is more to do.
    More,
    /// Nothing to do before this time. If it is exact, the task shall wake neither later nor much earlier.
    Until { at: Time, is_exact: bool },
    /// Nothing will ever be left to do.
    Over,
}

impl Driver {
    /// `largest` is the length of our longest datagram, `workers` the number of threads for coding jobs.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub fn new(
        shared: Arc<Shared>,
        socket: Box<dyn Socket>,
        timer: Timer,
        mail: Option<Mail>,
        largest: u16,
        workers: u16,
    ) -> io::Result<Self> {
        let workers = Workers::start(workers, &shared)?;
        let port = Port::new(socket, &shared.clock, largest);
        Ok(Self { shared, port, timer, mail, workers, wake: Vec::new() })
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs until the endpoint was dropped and its connections have ended.
    pub async fn run(mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS {
            let received = self.receive(cx);
            let round = self.send(cx);
            self.wake.drain(..).for_each(Waker::wake);
            match round {
                Round::Over => return Poll::Ready(()),
                Round::Until { at, is_exact } if !received => {
                    let waited = if is_exact { self.timer.poll_exactly(cx, at) } else { self.timer.poll(cx, at) };
                    if waited.is_pending() {
                        return Poll::Pending;
                    }
                }
                Round::Until { .. } | Round::More => {}
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Receives what one system call returns, and what other shards passed on. Returns whether there may be
    /// more.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let mail = self.mail.as_mut().is_some_and(|mail| mail.take(cx, &self.shared));
        let (shared, sorter) = (&self.shared, &mut self.mail);
        let due = shared.lock().due();
        let received = self.port.receive(cx, &shared.clock, due, |at, train| {
            let mut state = shared.lock();
            if train.dropped > 0 {
                state.endpoint.handle_host_drops(at, train.dropped.into());
            }
            let (from, to, ecn) = (train.from, train.to, train.ecn);
            let datagrams = train.datagrams.map(|datagram| Received { at, from, to, ecn, datagram });
            match sorter.as_mut() {
                None => state.endpoint.handle_train(datagrams),
                Some(mail) => datagrams.for_each(|received| mail.sort(&mut state, received)),
            }
        });
        received || mail
    }

    /// Handles timers and sends everything that is due, then settles.
    fn send(&mut self, cx: &mut Context<'_>) -> Round {
        for batch in 0..BATCHES {
            let Poll::Ready(refused) = self.port.flush(cx) else { return self.wait_for_room(cx) };
            if let Some((transmit, failure)) = refused {
                self.shared.refused(&transmit, failure);
            }
            let shared = Arc::clone(&self.shared);
            let mut state = shared.lock();
            let now = shared.clock.now();
            if let Some(socket) = state.next_socket.take() {
                self.port.replace(socket);
                state.endpoint.handle_address_change(now);
                // The new socket is read in the next round.
                return Round::More;
            }
            state.endpoint.handle_read(self.port.read());
            // Once per round is enough, because `due` does not move before everything is sent.
            if batch == 0 && state.due() <= now {
                state.endpoint.handle_timeout(now);
            }
            // Received datagrams, and symbols closed by the last batch, may have made jobs.
            self.workers.feed(|| state.endpoint.poll_job());
            if !self.port.fill(now, &mut state.endpoint) {
                return self.settle(&mut state, now, cx);
            }
        }
        // Without this, no application would read while there is always something to send.
        self.shared.lock().hand_out(&self.shared, self.shared.clock.now(), &mut self.wake);
        Round::More
    }

    /// Called when nothing is left to send. Hands out events and finds out when to look again.
    fn settle(&mut self, state: &mut State, now: Time, cx: &mut Context<'_>) -> Round {
        if state.hand_out(&self.shared, now, &mut self.wake) {
            return Round::More;
        }
        self.workers.feed(|| state.endpoint.poll_job());
        if state.ended.is_some() && state.endpoint.connections().next().is_none() {
            self.shared.changed.notify_waiters();
            if state.abandoned {
                return Round::Over;
            }
        }
        self.mail.iter_mut().for_each(|mail| mail.tell(state));
        let timeout = state.endpoint.poll_timeout();
        let due = timeout.map_or(Time::NEVER, |(at, _)| at);
        state.sleep(cx.waker(), due);
        let receive_from = self.port.receive_from();
        let due = if receive_from > now { due.min(receive_from) } else { due };
        let is_exact = timeout.is_some_and(|(at, reason)| at == due && reason == WakeReason::Train);
        Round::Until { at: due.max(now + LEAST_SLEEP), is_exact }
    }

    /// Called when the socket is full. The task is woken when it has room. Timers can wait until then,
    /// readers need not.
    fn wait_for_room(&mut self, cx: &mut Context<'_>) -> Round {
        let mut state = self.shared.lock();
        self.workers.feed(|| state.endpoint.poll_job());
        state.hand_out(&self.shared, self.shared.clock.now(), &mut self.wake);
        state.sleep(cx.waker(), Time::ZERO);
        Round::Until { at: Time::NEVER, is_exact: false }
    }
}

impl Drop for Driver {
    /// Also runs when the runtime ends or something panicked, so that no task waits for ever.
    fn drop(&mut self) {
        let wake = self.shared.lock().stop(&CloseReason::Local);
        self.shared.changed.notify_waiters();
        wake.into_iter().for_each(Waker::wake);
    }
}
