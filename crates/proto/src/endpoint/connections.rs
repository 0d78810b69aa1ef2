//! The connections of an endpoint, with queues of those that have something to do.
//!
//! Only the endpoint uses it. [`Connections::touch`] returns a connection for changes, and puts it into three
//! queues: it may have datagrams to send, events to report and a new timer. The endpoint visits only
//! connections in the queues and those whose timer has expired. So the number of visits for a datagram does
//! not depend on the number of connections. The time does: with 10,000 connections, the state of most is not
//! in the processor's caches (example `endpoint_cost many` of `tidewire`).
//!
//! Invariants: a connection is in each queue at most once. A connection in no queue has nothing to send and
//! nothing to report, and its timer, if it has one, is in `timers` exactly once. A connection with jobs is in
//! `working` after its timer was read. Handles and times determine every order, so a run can be repeated.

use std::collections::{BTreeMap, VecDeque};

use super::ConnectionHandle;
use crate::Time;
use crate::connection::{Connection, Event, Job, Transmit, WakeReason};

/// A connection and the queues it is in.
struct Entry {
    /// Boxed, because a map node has room for eleven values, and some of them are always empty.
    connection: Box<Connection>,
    /// Its key in `timers`.
    timer: Option<Time>,
    /// Each flag tells whether the connection is in the queue of that name.
    ready: bool,
    telling: bool,
    stale: bool,
    working: bool,
    ended: bool,
    /// Its memory in bytes at the last measurement.
    memory: usize,
}

/// The connections and their queues; see the module.
pub(super) struct Connections {
    table: BTreeMap<ConnectionHandle, Entry>,
    /// Connections that may have datagrams to send, in the order of their turns.
    ready: VecDeque<ConnectionHandle>,
    /// Connections that may have events to report.
    telling: VecDeque<ConnectionHandle>,
    /// Connections whose timers may have changed.
    stale: VecDeque<ConnectionHandle>,
    /// Connections that may have jobs.
    working: VecDeque<ConnectionHandle>,
    timers: BTreeMap<(Time, ConnectionHandle), WakeReason>,
    /// Connections that have finished closing.
    ended: VecDeque<ConnectionHandle>,
    next_handle: u64,
    /// How often a connection was visited.
    visits: u64,
    /// Memory of all connections together, in bytes.
    memory: usize,
    /// Half of the memory limit. When more than this is in use, no connection may grow beyond its equal part
    /// of the other half.
    shared: usize,
}

impl Connections {
    /// All connections together may use `memory` bytes. Half of it is divided equally; connections share the
    /// other half in the order in which they grow.
    pub(super) fn new(memory: usize) -> Self {
        Self {
            table: BTreeMap::new(),
            ready: VecDeque::new(),
            telling: VecDeque::new(),
            stale: VecDeque::new(),
            working: VecDeque::new(),
            timers: BTreeMap::new(),
            ended: VecDeque::new(),
            next_handle: 0,
            visits: 0,
            memory: 0,
            shared: memory / 2,
        }
    }

    /// Whether more than half of the memory is in use, so that no connection may grow beyond its part.
    pub(super) fn is_short(&self) -> bool {
        self.memory > self.shared
    }

    /// Bytes that each connection may always use.
    fn part(&self) -> usize {
        self.shared / self.len().max(1)
    }

    /// Measures the memory of a connection. Returns whether it grew beyond its part while more than half of
    /// the memory is in use.
    pub(super) fn measure(&mut self, handle: ConnectionHandle) -> bool {
        let part = self.part();
        let Some(entry) = self.table.get_mut(&handle) else { return false };
        let now = entry.connection.granted();
        let before = core::mem::replace(&mut entry.memory, now);
        self.memory = self.memory - before + now;
        now > before && now > part && self.is_short()
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn visits(&self) -> u64 {
        self.visits
    }

    pub(super) fn get(&self, handle: ConnectionHandle) -> Option<&Connection> {
        self.table.get(&handle).map(|entry| &*entry.connection)
    }

    /// A connection that is still in the queues, because it was touched and not visited since.
    pub(super) fn get_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        self.table.get_mut(&handle).map(|entry| &mut *entry.connection)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionHandle, &Connection)> {
        self.table.iter().map(|(&handle, entry)| (handle, &*entry.connection))
    }

    pub(super) fn insert(&mut self, connection: Connection) -> ConnectionHandle {
        let handle = self.next_handle();
        self.next_handle += 1;
        let connection = Box::new(connection);
        let [ready, telling, stale, working, ended] = [false; 5];
        self.table.insert(handle, Entry { connection, timer: None, ready, telling, stale, working, ended, memory: 0 });
        self.measure(handle);
        self.touch(handle);
        handle
    }

    /// The handle of the connection that is inserted next.
    pub(super) fn next_handle(&self) -> ConnectionHandle {
        ConnectionHandle(self.next_handle)
    }

    /// Returns a connection for changes.
    pub(super) fn touch(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        self.visits += 1;
        let (free, part) = (self.shared.saturating_sub(self.memory), self.part());
        let entry = self.table.get_mut(&handle)?;
        entry.connection.allow_memory(free.max(part.saturating_sub(entry.memory)));
        enqueue(&mut self.ready, &mut entry.ready, handle);
        enqueue(&mut self.telling, &mut entry.telling, handle);
        enqueue(&mut self.stale, &mut entry.stale, handle);
        Some(&mut entry.connection)
    }

    /// Touches all connections.
    pub(super) fn touch_all(&mut self, mut act: impl FnMut(&mut Connection)) {
        let handles: Vec<_> = self.table.keys().copied().collect();
        handles.into_iter().filter_map(|handle| self.touch(handle).map(&mut act)).for_each(drop);
    }

    /// Writes datagrams of the first connection in the ready queue that has any. That connection then goes to
    /// the end of the queue. All that arrived before `read` was passed in.
    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        read: Time,
        max_segments: usize,
        out: &mut [u8],
    ) -> Option<(ConnectionHandle, Transmit)> {
        if self.ready.is_empty() {
            self.read_timers();
        }
        // Datagrams that the pacer or a policy held back may be sent now.
        while self.poll_expired(now).is_some() {}
        while let Some(handle) = self.ready.pop_front() {
            let Some(entry) = self.table.get_mut(&handle) else { continue };
            self.visits += 1;
            entry.connection.handle_read(read);
            let transmit = entry.connection.poll_transmit(now, max_segments, out);
            entry.ready = false;
            enqueue(&mut self.telling, &mut entry.telling, handle);
            enqueue(&mut self.stale, &mut entry.stale, handle);
            if let Some(transmit) = transmit {
                enqueue(&mut self.ready, &mut entry.ready, handle);
                return Some((handle, transmit));
            }
        }
        None
    }

    /// The next connection whose timer has expired. The timer is removed until [`Self::read_timers`] reads it
    /// again.
    pub(super) fn poll_expired(&mut self, now: Time) -> Option<(ConnectionHandle, &mut Connection)> {
        let first = self.timers.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, handle), _) = first.remove_entry();
        self.table.get_mut(&handle)?.timer = None;
        self.touch(handle).map(|connection| (handle, connection))
    }

    /// Queues a connection for [`Self::poll_ended`] if it has finished closing.
    pub(super) fn on_end(&mut self, handle: ConnectionHandle) {
        if let Some(entry) = self.table.get_mut(&handle)
            && entry.connection.is_closed()
        {
            enqueue(&mut self.ended, &mut entry.ended, handle);
        }
    }

    /// Removes and returns a connection that has finished closing.
    pub(super) fn poll_ended(&mut self) -> Option<(ConnectionHandle, Connection)> {
        let handle = self.ended.pop_front()?;
        let entry = self.table.remove(&handle)?;
        self.memory -= entry.memory;
        entry.timer.and_then(|at| self.timers.remove(&(at, handle)));
        Some((handle, *entry.connection))
    }

    /// The next event of a connection that was touched.
    pub(super) fn poll_event(&mut self) -> Option<(ConnectionHandle, Event)> {
        while let Some(&handle) = self.telling.front() {
            self.visits += 1;
            if let Some(entry) = self.table.get_mut(&handle) {
                if let Some(event) = entry.connection.poll_event() {
                    if matches!(event, Event::Closed(_)) {
                        self.on_end(handle);
                    }
                    return Some((handle, event));
                }
                entry.telling = false;
            }
            self.telling.pop_front();
        }
        None
    }

    /// The next job of a touched connection. The connection then goes to the end of the queue, so no
    /// connection waits for all jobs of another.
    pub(super) fn poll_job(&mut self) -> Option<(ConnectionHandle, Job)> {
        self.read_timers();
        while let Some(handle) = self.working.pop_front() {
            let Some(entry) = self.table.get_mut(&handle) else { continue };
            self.visits += 1;
            entry.working = false;
            let job = entry.connection.poll_job();
            if entry.connection.has_job() {
                enqueue(&mut self.working, &mut entry.working, handle);
            }
            if let Some(job) = job {
                return Some((handle, job));
            }
        }
        None
    }

    /// The earliest timer of all connections.
    pub(super) fn poll_timeout(&mut self) -> Option<(Time, WakeReason)> {
        self.read_timers();
        self.timers.first_key_value().map(|(&(at, _), &reason)| (at, reason))
    }

    /// Reads the timers of the connections that were touched.
    pub(super) fn read_timers(&mut self) {
        while let Some(handle) = self.stale.pop_front() {
            self.visits += 1;
            self.measure(handle);
            let Some(entry) = self.table.get_mut(&handle) else { continue };
            entry.stale = false;
            if entry.connection.has_job() {
                enqueue(&mut self.working, &mut entry.working, handle);
            }
            let timer = entry.connection.poll_timeout();
            let at = timer.map(|(at, _)| at);
            let before = core::mem::replace(&mut entry.timer, at);
            if before != at {
                before.and_then(|before| self.timers.remove(&(before, handle)));
            }
            if let Some((at, reason)) = timer {
                self.timers.insert((at, handle), reason);
            }
        }
    }
}

/// Puts a connection at the end of a queue unless it is in the queue already.
fn enqueue(queue: &mut VecDeque<ConnectionHandle>, queued: &mut bool, handle: ConnectionHandle) {
    if !core::mem::replace(queued, true) {
        queue.push_back(handle);
    }
}
