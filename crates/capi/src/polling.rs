//! Waiting for several sockets at once.
//!
//! `tw_poll` calls [`poll`]. Invariant: a socket that becomes ready after it was looked at wakes the call.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::code::*;
use crate::edge::Handle;
use crate::signal::{Waiter, lock};
use crate::socket::{Socket, State};
use crate::table::TABLE;

/// `tw_recv` or `tw_accept` would not wait.
pub const TW_POLLIN: i16 = 1;
/// `tw_send` would not wait.
pub const TW_POLLOUT: i16 = 4;
/// The attempt to connect has failed. It is reported whether it was asked for or not.
pub const TW_POLLERR: i16 = 8;

/// What `tw_poll` waits for at one handle.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PollEntry {
    /// The handle.
    pub handle: Handle,
    /// Any of `TW_POLLIN` and `TW_POLLOUT`.
    pub events: i16,
    /// What was found.
    pub revents: i16,
}

/// Waits until an entry is ready or `timeout_ms` have passed (negative: for ever), and returns how many are.
pub(crate) fn poll(entries: &mut [PollEntry], timeout_ms: c_int) -> Outcome<usize> {
    let deadline = u64::try_from(timeout_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
    let sockets = entries.iter().zip(0..).map(|(entry, index)| socket(entry, index)).collect::<Outcome<Vec<_>>>()?;
    let waiter = Arc::<Waiter>::default();
    let registration = Registration { sockets: &sockets, waiter: &waiter };
    registration.begin();
    loop {
        let seen = waiter.count();
        let mut found = Vec::with_capacity(entries.len());
        for (socket, entry) in sockets.iter().zip(&*entries) {
            // A handle that was closed meanwhile.
            TABLE.find(entry.handle)?;
            found.push(ready(socket, entry.events));
        }
        let count = found.iter().filter(|events| **events != 0).count();
        if count > 0 || !waiter.sleep(seen, deadline) {
            entries.iter_mut().zip(found).for_each(|(entry, events)| entry.revents = events);
            return Ok(count);
        }
    }
}

/// The socket of an entry that can be waited for.
fn socket(entry: &PollEntry, index: usize) -> Outcome<Arc<Socket>> {
    let wrong = |failure: Failure| Failure::new(failure.code, format_args!("entry {index}: {}", failure.text));
    let known = TW_POLLIN | TW_POLLOUT;
    if entry.events & !known != 0 {
        let events = entry.events;
        return Err(wrong(Failure::new(
            TW_EINVAL,
            format_args!("events is {events}: only TW_POLLIN and TW_POLLOUT can be waited for"),
        )));
    }
    let socket = TABLE.find(entry.handle).map_err(wrong)?;
    check(&socket, entry.events).map_err(wrong)?;
    Ok(socket)
}

/// Fails if a socket can never be ready for `events`.
pub(crate) fn check(socket: &Socket, events: i16) -> Outcome<()> {
    match &*lock(&socket.state) {
        State::New(_) => {
            Err(Failure::new(TW_ENOTCONN, "the socket neither listens nor connects: there is nothing to wait for"))
        }
        State::Listening(_) if events & TW_POLLOUT != 0 => {
            Err(Failure::new(TW_EOPNOTSUPP, "a listener never sends: wait for TW_POLLIN"))
        }
        _ => Ok(()),
    }
}

fn ready(socket: &Socket, events: i16) -> i16 {
    let mut found = 0;
    if matches!(*lock(&socket.state), State::Failed(_)) {
        found |= TW_POLLERR;
    }
    if events & TW_POLLIN != 0 && socket.is_readable() {
        found |= TW_POLLIN;
    }
    if events & TW_POLLOUT != 0 && socket.is_writable() {
        found |= TW_POLLOUT;
    }
    found
}

/// Keeps a waiter at the signals of the sockets until it is dropped.
struct Registration<'a> {
    sockets: &'a [Arc<Socket>],
    waiter: &'a Arc<Waiter>,
}

impl Registration<'_> {
    fn begin(&self) {
        for socket in self.sockets {
            socket.input.signal.add(self.waiter);
            socket.output.signal.add(self.waiter);
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        for socket in self.sockets {
            socket.input.signal.remove(self.waiter);
            socket.output.signal.remove(self.waiter);
        }
    }
}
