//! The connections of an endpoint, and which of them have something to do.
//!
//! Only the endpoint uses it. Whoever changes a connection takes it by [`Connections::touch`], which puts it into three queues: it may have datagrams
//! to send, events to tell, and another timer than before. The endpoint looks at the connections in the queues and at those whose timer has
//! expired, and at no others, so that a datagram costs the same beside ten connections and beside ten thousand.
//!
//! Invariants: a connection stands in each queue at most once; one that is in no queue has nothing to send and nothing to tell, and its timer, if it
//! has one, is in `timers` exactly once. All orders follow from handles and times, so that a run can be repeated.

use std::collections::{BTreeMap, VecDeque};

use super::ConnectionHandle;
use crate::Time;
use crate::connection::{Connection, Event, Transmit, WakeReason};

/// A connection, and where it stands.
struct Entry {
    /// Boxed: a node of the map has room for eleven, some of it always empty.
    connection: Box<Connection>,
    /// Its place in `timers`.
    timer: Option<Time>,
    /// Whether it stands in the queue of this name.
    ready: bool,
    telling: bool,
    stale: bool,
    ended: bool,
    /// What it took when that was last asked.
    memory: usize,
}

/// See the module.
pub(super) struct Connections {
    table: BTreeMap<ConnectionHandle, Entry>,
    /// Connections that may have datagrams to send, in the order of their turns.
    ready: VecDeque<ConnectionHandle>,
    /// Connections that may have events to tell.
    telling: VecDeque<ConnectionHandle>,
    /// Connections whose timers may have changed.
    stale: VecDeque<ConnectionHandle>,
    timers: BTreeMap<(Time, ConnectionHandle), WakeReason>,
    /// Connections that have finished ending.
    ended: VecDeque<ConnectionHandle>,
    next_handle: u64,
    /// How often a connection was looked at.
    visits: u64,
    /// Bytes that all connections take, and that those may take together which have more than their part.
    memory: usize,
    shared: usize,
}

impl Connections {
    /// All connections together may take `memory` bytes: half of it is divided evenly, the other half goes to who wants more first.
    pub fn new(memory: usize) -> Self {
        Self {
            table: BTreeMap::new(),
            ready: VecDeque::new(),
            telling: VecDeque::new(),
            stale: VecDeque::new(),
            timers: BTreeMap::new(),
            ended: VecDeque::new(),
            next_handle: 0,
            visits: 0,
            memory: 0,
            shared: memory / 2,
        }
    }

    /// Whether the memory is taken that is for more than each one's part.
    pub fn is_short(&self) -> bool {
        self.memory > self.shared
    }

    /// What each connection may have, whatever the others take.
    fn part(&self) -> usize {
        self.shared / self.len().max(1)
    }

    /// Takes note of what a connection takes now. Returns whether it took more than its part though the memory is short.
    pub fn measure(&mut self, handle: ConnectionHandle) -> bool {
        let part = self.part();
        let Some(entry) = self.table.get_mut(&handle) else { return false };
        let now = entry.connection.granted();
        let before = core::mem::replace(&mut entry.memory, now);
        self.memory = self.memory - before + now;
        now > before && now > part && self.is_short()
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn visits(&self) -> u64 {
        self.visits
    }

    pub fn get(&self, handle: ConnectionHandle) -> Option<&Connection> {
        self.table.get(&handle).map(|entry| &*entry.connection)
    }

    pub fn iter(&self) -> impl Iterator<Item = (ConnectionHandle, &Connection)> {
        self.table.iter().map(|(&handle, entry)| (handle, &*entry.connection))
    }

    pub fn insert(&mut self, connection: Connection) -> ConnectionHandle {
        let handle = ConnectionHandle(self.next_handle);
        self.next_handle += 1;
        let connection = Box::new(connection);
        let (ready, telling, stale, ended) = (false, false, false, false);
        self.table.insert(handle, Entry { connection, timer: None, ready, telling, stale, ended, memory: 0 });
        self.measure(handle);
        self.touch(handle);
        handle
    }

    /// A connection that the caller may change.
    pub fn touch(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        self.visits += 1;
        let (free, part) = (self.shared.saturating_sub(self.memory), self.part());
        let entry = self.table.get_mut(&handle)?;
        entry.connection.allow_memory(free.max(part.saturating_sub(entry.memory)));
        enqueue(&mut self.ready, &mut entry.ready, handle);
        enqueue(&mut self.telling, &mut entry.telling, handle);
        enqueue(&mut self.stale, &mut entry.stale, handle);
        Some(&mut entry.connection)
    }

    /// Touches all of them.
    pub fn touch_all(&mut self, mut act: impl FnMut(&mut Connection)) {
        let handles: Vec<_> = self.table.keys().copied().collect();
        handles.into_iter().filter_map(|handle| self.touch(handle).map(&mut act)).for_each(drop);
    }

    /// Datagrams of the connection whose turn it is.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        out: &mut [u8],
    ) -> Option<(ConnectionHandle, Transmit)> {
        if self.ready.is_empty() {
            self.read_timers();
        }
        // What the pace or a policy held back may leave now.
        while self.poll_expired(now).is_some() {}
        while let Some(handle) = self.ready.pop_front() {
            let Some(entry) = self.table.get_mut(&handle) else { continue };
            self.visits += 1;
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

    /// The next connection whose timer, as it was last read, has expired. The timer is forgotten until it is read again.
    pub fn poll_expired(&mut self, now: Time) -> Option<(ConnectionHandle, &mut Connection)> {
        let first = self.timers.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, handle), _) = first.remove_entry();
        self.table.get_mut(&handle)?.timer = None;
        self.touch(handle).map(|connection| (handle, connection))
    }

    /// A connection may have finished ending: then [`Self::poll_ended`] gives it.
    pub fn on_end(&mut self, handle: ConnectionHandle) {
        if let Some(entry) = self.table.get_mut(&handle)
            && entry.connection.is_closed()
        {
            enqueue(&mut self.ended, &mut entry.ended, handle);
        }
    }

    /// Takes a connection that has finished ending.
    pub fn poll_ended(&mut self) -> Option<(ConnectionHandle, Connection)> {
        let handle = self.ended.pop_front()?;
        let entry = self.table.remove(&handle)?;
        self.memory -= entry.memory;
        entry.timer.and_then(|at| self.timers.remove(&(at, handle)));
        Some((handle, *entry.connection))
    }

    /// The next event of a connection that was touched.
    pub fn poll_event(&mut self) -> Option<(ConnectionHandle, Event)> {
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

    /// The first timer of all.
    pub fn poll_timeout(&mut self) -> Option<(Time, WakeReason)> {
        self.read_timers();
        self.timers.first_key_value().map(|(&(at, _), &reason)| (at, reason))
    }

    /// Reads the timers of the connections that were touched.
    pub fn read_timers(&mut self) {
        while let Some(handle) = self.stale.pop_front() {
            self.visits += 1;
            self.measure(handle);
            let Some(entry) = self.table.get_mut(&handle) else { continue };
            entry.stale = false;
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

/// Puts a connection at the end of a queue in which it does not stand.
fn enqueue(queue: &mut VecDeque<ConnectionHandle>, queued: &mut bool, handle: ConnectionHandle) {
    if !core::mem::replace(queued, true) {
        queue.push_back(handle);
    }
}
