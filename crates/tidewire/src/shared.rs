//! State that the driver of a shard and the handles share: the protocol's endpoint, and the tasks that wait.
//!
//! One mutex guards all of it. It is held for one call into the protocol, and never across a system call or
//! an `await`. A handle calls the protocol and then wakes the driver if the protocol wants to be called
//! sooner than the driver would. The driver hands out events.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker};

use tidewire_proto::Time;
use tidewire_proto::connection::{
    CloseCode, CloseReason, Connection, Event, JobDone, SendFailure, StreamId, Transmit, WakeReason, WriteError,
};
use tidewire_proto::crypto::PublicKey;
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};
use tidewire_proto::handshake::{PeerKeyError, Unauthorized};

use crate::clock::Clock;
use crate::connection::{ConnectionLost, EndpointEnded};
use crate::socket::Socket;
use crate::sync::{Mutex, MutexGuard, Notify};

/// Maximum number of connections that wait to be accepted; more are refused. It is Linux's default for a
/// listening TCP socket.
const MAX_WAITING: usize = 4_096;

/// Maximum number of refused peers that wait to be reported.
pub(crate) const MAX_UNAUTHORIZED: usize = 16;

/// The shared state of one shard; see the module.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Notified when a connection arrived, the last one ended or the driver ended. Shared by all shards.
    pub changed: Arc<Notify>,
    pub clock: Clock,
}

/// The state behind the mutex.
pub(crate) struct State {
    pub endpoint: Endpoint,
    /// Datagrams of our socket that were passed to other shards, or dropped because their mailboxes were
    /// full.
    pub passed_on: u64,
    pub overrun: u64,
    /// Address of the socket, and the socket that the driver should use from now on.
    pub local: SocketAddr,
    pub next_socket: Option<Box<dyn Socket>>,
    slots: BTreeMap<ConnectionHandle, Slot>,
    /// Connected, and not accepted yet.
    waiting: VecDeque<ConnectionHandle>,
    /// Refused because of their keys, and not reported yet.
    pub unauthorized: VecDeque<Unauthorized>,
    /// Why no more connections are made; `None` while they are.
    pub ended: Option<EndpointEnded>,
    /// True if no driver runs any more.
    pub stopped: bool,
    /// True if the endpoint's handle was dropped. The driver then ends with the last connection.
    pub abandoned: bool,
    /// Why this machine does not send at all, since it refused a datagram for that reason.
    pub refusal: Option<SendFailure>,
    /// The driver's task while it sleeps, and when it will look at the protocol without being woken.
    driver: Option<Waker>,
    due: Time,
}

/// The slot of a connection that was just made, for its handle.
pub(crate) struct NewSlot {
    pub handle: ConnectionHandle,
    pub changed: Arc<Notify>,
}

/// What handles and waiting tasks know about a connection.
pub(crate) struct Slot {
    pub connected: bool,
    pub closed: Option<CloseReason>,
    /// The protocol's connection after it has ended. Received data can still be read from it.
    pub ended: Option<Box<Connection>>,
    /// Streams that the peer opened and that are not accepted yet.
    pub incoming: VecDeque<StreamId>,
    streams: BTreeMap<StreamId, Waiting>,
    /// Notified when a field changes, except `streams`.
    pub changed: Arc<Notify>,
}

/// The tasks that wait for a stream.
#[derive(Default)]
pub(crate) struct Waiting {
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    /// The half was dropped, so arriving data is discarded.
    reader_gone: bool,
    /// The half was dropped, so the end is sent as soon as there is room.
    writer_gone: bool,
}

impl Shared {
    pub fn new(endpoint: Endpoint, local: SocketAddr, clock: Clock, changed: Arc<Notify>) -> Self {
        let state = State {
            endpoint,
            passed_on: 0,
            overrun: 0,
            local,
            next_socket: None,
            slots: BTreeMap::new(),
            waiting: VecDeque::new(),
            unauthorized: VecDeque::new(),
            ended: None,
            stopped: false,
            abandoned: false,
            refusal: None,
            driver: None,
            due: Time::ZERO,
        };
        Self { state: Mutex::new(state), changed, clock }
    }

    /// Locks the state. After a panic elsewhere the state is still usable: when the driver ends, it closes
    /// everything.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or writes a stream, and wakes the driver if it has to act. If `call` returns `None`, the task
    /// has to wait, and `wait` registers it. The clock is read under the lock, so time never goes backwards
    /// for the protocol.
    pub fn poll<R>(
        &self,
        handle: ConnectionHandle,
        id: StreamId,
        call: impl FnOnce(&mut Connection, Time) -> Option<R>,
        wait: impl FnOnce(&mut Waiting),
        writes: bool,
    ) -> Poll<Result<R, ConnectionLost>> {
        let mut state = self.lock();
        let now = self.clock.now();
        let result = state.connection_mut(handle).and_then(|connection| call(connection, now));
        if result.is_none() {
            let Some(slot) = state.slots.get_mut(&handle) else {
                return Poll::Ready(Err(ConnectionLost(CloseReason::Local)));
            };
            if let Some(reason) = &slot.closed {
                return Poll::Ready(Err(ConnectionLost(reason.clone())));
            }
            wait(slot.streams.entry(id).or_default());
        }
        let driver = state.driver_if_needed(handle, writes);
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        result.map_or(Poll::Pending, |result| Poll::Ready(Ok(result)))
    }

    /// Makes the driver look at the protocol.
    pub fn wake_driver(&self) {
        let driver = self.lock().driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Takes the result of a job from a worker. `None` means that the job panicked, which is a bug in a code.
    /// Its connection is then closed, because it would wait for the result for ever.
    pub fn handle_job(&self, handle: ConnectionHandle, done: Option<JobDone>) {
        let mut state = self.lock();
        let now = self.clock.now();
        if let Some(done) = done {
            state.endpoint.handle_job(now, handle, done);
        } else if let Some(connection) = state.connection_mut(handle) {
            connection.close(now, CloseCode::Internal, "a coding job panicked");
        }
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }

    /// Closes a connection. Does nothing if it is over.
    pub fn close(&self, handle: ConnectionHandle, code: CloseCode, reason: &str) {
        let mut state = self.lock();
        let now = self.clock.now();
        if let Some(connection) = state.connection_mut(handle) {
            connection.close(now, code, reason);
        }
        drop(state);
        self.wake_driver();
    }

    /// Stops reading a stream.
    pub fn stop_reader(&self, handle: ConnectionHandle, id: StreamId, code: u64) {
        if let Some(connection) = self.lock().connection_mut(handle) {
            // A stream that is over need not be stopped.
            let _ = connection.stop(id, code);
        }
        self.wake_driver();
    }

    /// Gives up what we send on a stream.
    pub fn reset_writer(&self, handle: ConnectionHandle, id: StreamId, code: u64) {
        if let Some(connection) = self.lock().connection_mut(handle) {
            // A stream that is over cannot be given up.
            let _ = connection.reset(id, code);
        }
        self.wake_driver();
    }

    /// Called when the reading half of a stream was dropped.
    pub fn drop_reader(&self, handle: ConnectionHandle, id: StreamId) {
        self.stop_reader(handle, id, 0);
        self.lock().drop_half(handle, id, |waiting| (waiting.reader, waiting.reader_gone) = (None, true));
    }

    /// Called when the writing half of a stream was dropped.
    pub fn drop_writer(&self, handle: ConnectionHandle, id: StreamId) {
        self.lock().drop_half(handle, id, |waiting| (waiting.writer, waiting.writer_gone) = (None, true));
        self.wake_driver();
    }

    /// Called when the system refused a batch.
    pub fn refused(&self, transmit: &Transmit, failure: SendFailure) {
        let mut state = self.lock();
        state.endpoint.handle_send_failure(self.clock.now(), transmit, failure);
        let is_local = matches!(failure, SendFailure::NoRoute | SendFailure::NotPermitted);
        if is_local && state.refusal.replace(failure) != Some(failure) {
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// Called when the last handle of a connection was dropped.
    pub fn forget(&self, handle: ConnectionHandle) {
        self.close(handle, CloseCode::Done, "");
        let forgotten = self.lock().slots.remove(&handle);
        // The rings are freed after the lock is released.
        drop(forgotten);
    }
}

impl State {
    /// Starts to connect.
    pub fn connect(
        &mut self,
        now: Time,
        remote: SocketAddr,
        peer: Option<&PublicKey>,
    ) -> Result<NewSlot, PeerKeyError> {
        let handle = match peer {
            Some(peer) => self.endpoint.connect_to(now, remote, peer)?,
            None => self.endpoint.connect(now, remote)?,
        };
        let slot = Slot::new(false);
        let changed = Arc::clone(&slot.changed);
        self.slots.insert(handle, slot);
        Ok(NewSlot { handle, changed })
    }

    /// The next connection of a peer.
    pub fn accept(&mut self) -> Option<(NewSlot, SocketAddr)> {
        let handle = self.waiting.pop_front()?;
        let remote = self.connection(handle)?.remote();
        let slot = self.slots.get(&handle)?;
        Some((NewSlot { handle, changed: Arc::clone(&slot.changed) }, remote))
    }

    /// Passes the slot of a connection to `show`. The slot exists as long as a handle does.
    pub fn with_slot<R>(
        &mut self,
        handle: ConnectionHandle,
        show: impl FnOnce(&mut Endpoint, &mut Slot) -> Option<R>,
    ) -> Option<R> {
        show(&mut self.endpoint, self.slots.get_mut(&handle)?)
    }

    fn connection_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        let ended = self.slots.get_mut(&handle).and_then(|slot| slot.ended.as_deref_mut());
        ended.or(self.endpoint.connection_mut(handle))
    }

    /// A connection, even if it has ended.
    pub fn connection(&self, handle: ConnectionHandle) -> Option<&Connection> {
        let ended = self.slots.get(&handle).and_then(|slot| slot.ended.as_deref());
        ended.or(self.endpoint.connection(handle))
    }

    /// The driver's task, if it sleeps and has to look at a connection sooner than it would. Written data may
    /// be sent at once without any timer, unless it waits for the pacer or for more bytes. Everything else
    /// has a timer.
    pub fn driver_if_needed(&mut self, handle: ConnectionHandle, wrote: bool) -> Option<Waker> {
        self.driver.as_ref()?;
        let (at, reason) = self.endpoint.connection_mut(handle)?.poll_timeout()?;
        let needed =
            at < self.due || (wrote && !matches!(reason, WakeReason::Pace | WakeReason::Train | WakeReason::Coalesce));
        if needed { self.driver.take() } else { None }
    }

    /// Records that the driver sleeps until `due`.
    pub fn sleep(&mut self, driver: &Waker, due: Time) {
        if !self.driver.as_ref().is_some_and(|known| known.will_wake(driver)) {
            self.driver = Some(driver.clone());
        }
        self.due = due;
    }

    /// When the protocol wanted to be called, at the last look.
    pub fn due(&self) -> Time {
        self.due
    }

    /// Refuses the connections that wait to be accepted, and all later ones.
    pub fn shut(&mut self, now: Time) {
        self.ended.get_or_insert(EndpointEnded::Closed);
        for handle in std::mem::take(&mut self.waiting) {
            self.refuse(now, handle);
        }
    }

    fn refuse(&mut self, now: Time, handle: ConnectionHandle) {
        self.slots.remove(&handle);
        if let Some(connection) = self.endpoint.connection_mut(handle) {
            connection.close(now, CloseCode::Refused, "");
        }
    }

    /// Closes every connection.
    pub fn close_all(&mut self, now: Time) {
        let handles: Vec<_> = self.endpoint.connections().map(|(handle, _)| handle).collect();
        for handle in handles {
            if let Some(connection) = self.endpoint.connection_mut(handle) {
                connection.close(now, CloseCode::Done, "");
            }
        }
    }

    /// Hands out all events, and adds the tasks to be woken to `wake`. Returns whether the protocol was
    /// called, so that it may have something to send.
    pub fn hand_out(&mut self, shared: &Shared, now: Time, wake: &mut Vec<Waker>) -> bool {
        while let Some(refused) = self.endpoint.poll_unauthorized() {
            self.unauthorized.truncate(MAX_UNAUTHORIZED - 1);
            self.unauthorized.push_back(refused);
            shared.changed.notify_waiters();
        }
        let mut called = false;
        loop {
            called |= self.keep_ended(shared, now, wake);
            let Some((handle, event)) = self.endpoint.poll_event() else { return called };
            called |= self.on_event(shared, now, handle, event, wake);
        }
    }

    /// Keeps connections that have ended, so that their received data can still be read.
    fn keep_ended(&mut self, shared: &Shared, now: Time, wake: &mut Vec<Waker>) -> bool {
        let mut called = false;
        while let Some((handle, mut connection)) = self.endpoint.poll_ended() {
            let late: Vec<_> = std::iter::from_fn(|| connection.poll_event()).collect();
            if let Some(slot) = self.slots.get_mut(&handle) {
                slot.ended = Some(Box::new(connection));
            }
            for event in late {
                called |= self.on_event(shared, now, handle, event, wake);
            }
        }
        called
    }

    fn on_event(
        &mut self,
        shared: &Shared,
        now: Time,
        handle: ConnectionHandle,
        event: Event,
        wake: &mut Vec<Waker>,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(&handle) else {
            return event == Event::Connected && self.on_incoming(shared, now, handle);
        };
        match event {
            Event::Connected => slot.connected = true,
            Event::StreamOpened(id) => slot.incoming.push_back(id),
            Event::Readable(id) | Event::Writable(id) => {
                let Some(waiting) = slot.streams.get_mut(&id) else { return false };
                if waiting.writer_gone && matches!(event, Event::Writable(_)) {
                    self.end_writer(handle, id);
                    return true;
                }
                let whom = if matches!(event, Event::Readable(_)) { &mut waiting.reader } else { &mut waiting.writer };
                wake.extend(whom.take());
                return false;
            }
            Event::Overrun => {
                tracing::warn!(connection = handle.0, "the fixed rate is too fast for this path: most of it is lost");
                return false;
            }
            Event::Closed(reason) => {
                slot.closed.get_or_insert(reason);
                wake.extend(slot.wakers());
            }
            _ => {}
        }
        slot.changed.notify_waiters();
        false
    }

    /// Called when a peer has connected.
    fn on_incoming(&mut self, shared: &Shared, now: Time, handle: ConnectionHandle) -> bool {
        if self.ended.is_some() || self.waiting.len() >= MAX_WAITING {
            self.refuse(now, handle);
            return true;
        }
        self.slots.insert(handle, Slot::new(true));
        self.waiting.push_back(handle);
        shared.changed.notify_waiters();
        false
    }

    /// Ends a stream whose writing half was dropped. Forgets its waiting tasks if the other half was dropped
    /// too.
    fn end_writer(&mut self, handle: ConnectionHandle, id: StreamId) {
        let Some(connection) = self.connection_mut(handle) else { return };
        let over = connection.finish(id) != Err(WriteError::Blocked);
        let Some(slot) = self.slots.get_mut(&handle) else { return };
        if over && slot.streams.get(&id).is_some_and(|waiting| waiting.reader_gone) {
            slot.streams.remove(&id);
        }
    }

    /// Marks halves of a stream as dropped.
    fn drop_half(&mut self, handle: ConnectionHandle, id: StreamId, drop: impl FnOnce(&mut Waiting)) {
        if let Some(slot) = self.slots.get_mut(&handle) {
            let waiting = slot.streams.entry(id).or_default();
            drop(waiting);
            if waiting.writer_gone {
                self.end_writer(handle, id);
            }
        }
    }

    /// Called when nothing will happen any more, for this reason. Returns all waiting tasks, so that they
    /// learn it.
    pub fn stop(&mut self, reason: &CloseReason) -> Vec<Waker> {
        self.stopped = true;
        self.ended.get_or_insert(EndpointEnded::DriverStopped);
        self.waiting.clear();
        self.lose(reason);
        self.slots.values_mut().flat_map(Slot::wakers).collect()
    }

    /// Names the reason why all connections will end, before they do.
    pub fn lose(&mut self, reason: &CloseReason) {
        for slot in self.slots.values_mut() {
            slot.closed.get_or_insert_with(|| reason.clone());
            slot.changed.notify_waiters();
        }
    }
}

impl Slot {
    fn new(connected: bool) -> Self {
        Self {
            connected,
            closed: None,
            ended: None,
            incoming: VecDeque::new(),
            streams: BTreeMap::new(),
            changed: Arc::default(),
        }
    }

    /// All tasks that wait for a stream.
    fn wakers(&mut self) -> impl Iterator<Item = Waker> {
        self.streams.values_mut().flat_map(|waiting| [waiting.reader.take(), waiting.writer.take()]).flatten()
    }
}
