//! What the driver of a shard and the handles share: the protocol's endpoint, and who waits for what.
//!
//! One mutex guards all of it and is held for one call into the protocol, never across a system call or an
//! `await`. Handles call in, then wake the driver if the protocol now wants something sooner than the driver
//! would look; the driver hands out events.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker};

use tidewire_proto::Time;
use tidewire_proto::connection::{
    CloseCode, CloseReason, Connection, Event, JobDone, StreamId, WakeReason, WriteError,
};
use tidewire_proto::crypto::PublicKey;
use tidewire_proto::endpoint::{ConnectionHandle, Endpoint};
use tidewire_proto::handshake::{PeerKeyError, Unauthorized};

use crate::clock::Clock;
use crate::connection::{ConnectionLost, EndpointEnded};
use crate::socket::Socket;
use crate::sync::{Mutex, MutexGuard, Notify};

/// Connections that wait to be accepted, at most; more are refused. Linux's default for a listening TCP
/// socket.
const MAX_WAITING: usize = 4_096;

/// Refused peers that wait to be told of, at most.
const MAX_UNAUTHORIZED: usize = 16;

/// See the module.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// A connection came, or the last one ended, or the driver did; of all shards.
    pub changed: Arc<Notify>,
    pub clock: Clock,
}

/// Behind the mutex.
pub(crate) struct State {
    pub endpoint: Endpoint,
    /// Datagrams of our socket that other shards got, or did not get since their mailboxes were full.
    pub passed_on: u64,
    pub overrun: u64,
    /// The socket's address, and the socket that the driver is to go over to.
    pub local: SocketAddr,
    pub next_socket: Option<Socket>,
    slots: BTreeMap<ConnectionHandle, Slot>,
    /// Connected and not yet accepted.
    waiting: VecDeque<ConnectionHandle>,
    /// Refused for their keys, and not yet told of.
    pub unauthorized: VecDeque<Unauthorized>,
    /// Why no more connections are made, if so.
    pub ended: Option<EndpointEnded>,
    /// Nobody drives any more.
    pub stopped: bool,
    /// The endpoint's handle is gone: the driver ends with the last connection.
    pub abandoned: bool,
    /// The driver's task while it sleeps, and when it would look at the protocol without being woken.
    driver: Option<Waker>,
    due: Time,
}

/// What a handle or a waiting task knows of a connection.
pub(crate) struct Slot {
    pub connected: bool,
    pub closed: Option<CloseReason>,
    /// The protocol's part, once it has finished ending: what it received can still be read.
    pub ended: Option<Box<Connection>>,
    /// Streams that the peer opened and nobody accepted.
    pub incoming: VecDeque<StreamId>,
    streams: BTreeMap<StreamId, Waiting>,
    /// Any of the above but `streams` changed.
    pub changed: Arc<Notify>,
}

/// Who waits for a stream.
#[derive(Default)]
pub(crate) struct Waiting {
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    /// The half was dropped: what comes is thrown away.
    reader_gone: bool,
    /// The half was dropped: the end is sent as soon as there is room.
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
            driver: None,
            due: Time::ZERO,
        };
        Self { state: Mutex::new(state), changed, clock }
    }

    /// A panic elsewhere leaves the state as good as any: the driver's end closes everything.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or writes a stream and wakes the driver if it has to act. When `call` gives `None`, the task is
    /// to wait: `wait` says for what. The clock is read under the lock, so that it never runs backwards for
    /// the protocol.
    pub fn poll<R>(
        &self,
        (handle, id): (ConnectionHandle, StreamId),
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

    /// Has the driver look.
    pub fn wake_driver(&self) {
        let driver = self.lock().driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// The result of a job, from a worker. `None`: the job panicked, which is a bug in a code. Its connection
    /// is closed then, since without the result it would wait for ever.
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

    /// Closes a connection; does nothing to one that is over.
    pub fn close(&self, handle: ConnectionHandle, code: CloseCode, reason: &str) {
        let mut state = self.lock();
        let now = self.clock.now();
        if let Some(connection) = state.connection_mut(handle) {
            connection.close(now, code, reason);
        }
        drop(state);
        self.wake_driver();
    }

    /// Reads no more of a stream.
    pub fn stop_reader(&self, (handle, id): (ConnectionHandle, StreamId), code: u64) {
        if let Some(connection) = self.lock().connection_mut(handle) {
            // A stream that is over needs no stopping.
            let _ = connection.stop(id, code);
        }
        self.wake_driver();
    }

    /// Gives up what we send on a stream.
    pub fn reset_writer(&self, (handle, id): (ConnectionHandle, StreamId), code: u64) {
        if let Some(connection) = self.lock().connection_mut(handle) {
            // What is over cannot be given up.
            let _ = connection.reset(id, code);
        }
        self.wake_driver();
    }

    /// The reading half of a stream was dropped.
    pub fn drop_reader(&self, half: (ConnectionHandle, StreamId)) {
        self.stop_reader(half, 0);
        self.lock().drop_half(half, |waiting| (waiting.reader, waiting.reader_gone) = (None, true));
    }

    /// The writing half of a stream was dropped.
    pub fn drop_writer(&self, half: (ConnectionHandle, StreamId)) {
        self.lock().drop_half(half, |waiting| (waiting.writer, waiting.writer_gone) = (None, true));
        self.wake_driver();
    }

    /// The last handle of a connection was dropped.
    pub fn forget(&self, handle: ConnectionHandle) {
        self.close(handle, CloseCode::Done, "");
        let forgotten = self.lock().slots.remove(&handle);
        // The rings are freed without the lock.
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
    ) -> Result<(ConnectionHandle, Arc<Notify>), PeerKeyError> {
        let handle = match peer {
            Some(peer) => self.endpoint.connect_to(now, remote, peer)?,
            None => self.endpoint.connect(now, remote)?,
        };
        let slot = Slot::new(false);
        let changed = Arc::clone(&slot.changed);
        self.slots.insert(handle, slot);
        Ok((handle, changed))
    }

    /// The next connection that came.
    pub fn accept(&mut self) -> Option<((ConnectionHandle, Arc<Notify>), SocketAddr)> {
        let handle = self.waiting.pop_front()?;
        let remote = self.connection(handle)?.remote();
        let slot = self.slots.get(&handle)?;
        Some(((handle, Arc::clone(&slot.changed)), remote))
    }

    /// Shows the slot of a connection, which lives as long as a handle.
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

    /// The driver, if it sleeps and has to look at a connection sooner than it would. What was written may
    /// leave at once without any timer, unless it waits for the pace or for more bytes; all else has a timer.
    fn driver_if_needed(&mut self, handle: ConnectionHandle, wrote: bool) -> Option<Waker> {
        self.driver.as_ref()?;
        let (at, reason) = self.endpoint.connection_mut(handle)?.poll_timeout()?;
        let needed = at < self.due || (wrote && !matches!(reason, WakeReason::Pace | WakeReason::Coalesce));
        if needed { self.driver.take() } else { None }
    }

    /// The driver goes to sleep until `due`.
    pub fn sleep(&mut self, driver: &Waker, due: Time) {
        if !self.driver.as_ref().is_some_and(|known| known.will_wake(driver)) {
            self.driver = Some(driver.clone());
        }
        self.due = due;
    }

    /// When the protocol last wanted to be woken.
    pub fn due(&self) -> Time {
        self.due
    }

    /// Refuses who waits to be accepted, and everybody who comes later.
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

    /// Hands out all events; those to be woken are put into `wake`. Returns whether the protocol was called,
    /// and so may have something to send.
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
            called |= self.on_event(shared, now, (handle, event), wake);
        }
    }

    /// Keeps what ended connections received for those who may still read it.
    fn keep_ended(&mut self, shared: &Shared, now: Time, wake: &mut Vec<Waker>) -> bool {
        let mut called = false;
        while let Some((handle, mut connection)) = self.endpoint.poll_ended() {
            let late: Vec<_> = std::iter::from_fn(|| connection.poll_event()).collect();
            if let Some(slot) = self.slots.get_mut(&handle) {
                slot.ended = Some(Box::new(connection));
            }
            for event in late {
                called |= self.on_event(shared, now, (handle, event), wake);
            }
        }
        called
    }

    fn on_event(
        &mut self,
        shared: &Shared,
        now: Time,
        (handle, event): (ConnectionHandle, Event),
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
                    self.end_writer((handle, id));
                    return true;
                }
                let whom = if matches!(event, Event::Readable(_)) { &mut waiting.reader } else { &mut waiting.writer };
                wake.extend(whom.take());
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

    /// Somebody connected to us.
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

    /// Says the end of what nobody writes any more, and forgets who waited when the other half is gone too.
    fn end_writer(&mut self, (handle, id): (ConnectionHandle, StreamId)) {
        let Some(connection) = self.connection_mut(handle) else { return };
        let over = connection.finish(id) != Err(WriteError::Blocked);
        let Some(slot) = self.slots.get_mut(&handle) else { return };
        if over && slot.streams.get(&id).is_some_and(|waiting| waiting.reader_gone) {
            slot.streams.remove(&id);
        }
    }

    /// Marks halves of a stream as gone.
    fn drop_half(&mut self, (handle, id): (ConnectionHandle, StreamId), drop: impl FnOnce(&mut Waiting)) {
        if let Some(slot) = self.slots.get_mut(&handle) {
            let waiting = slot.streams.entry(id).or_default();
            drop(waiting);
            if waiting.writer_gone {
                self.end_writer((handle, id));
            }
        }
    }

    /// Nothing will happen any more: everybody who waits learns it.
    pub fn stop(&mut self) -> Vec<Waker> {
        self.stopped = true;
        self.ended.get_or_insert(EndpointEnded::DriverStopped);
        self.waiting.clear();
        let mut wake = Vec::new();
        for slot in self.slots.values_mut() {
            slot.closed.get_or_insert(CloseReason::Local);
            wake.extend(slot.wakers());
            slot.changed.notify_waiters();
        }
        wake
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

    /// Everybody who waits for a stream.
    fn wakers(&mut self) -> impl Iterator<Item = Waker> {
        self.streams.values_mut().flat_map(|waiting| [waiting.reader.take(), waiting.writer.take()]).flatten()
    }
}
