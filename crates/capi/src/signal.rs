//! How a thread, a call of `tw_poll` or a descriptor learns that a direction of a socket may be ready.
//!
//! Each socket has two signals, for receiving and for sending. The driver of the connection wakes a signal as
//! it would wake a task. Invariant: whoever reads [`Signal::count`], finds nothing to do and then sleeps
//! until the count changes misses no wake-up. The descriptor is readable from a wake-up on, until
//! [`Signal::show`] clears it, and that is refused if a wake-up came in between.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::time::Instant;

/// One direction of a socket; see the module.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of wake-ups.
    count: u64,
    /// Threads that sleep on `changed`: nobody is notified if there are none.
    sleepers: usize,
    waiters: Vec<Arc<Waiter>>,
    descriptor: Option<Descriptor>,
}

/// What one call of `tw_poll` sleeps on. Several signals wake it.
#[derive(Default)]
pub(crate) struct Waiter {
    count: Mutex<u64>,
    changed: Condvar,
}

/// A descriptor that a program can wait for: one end of a socket pair. It is readable while one byte is in
/// the pair.
struct Descriptor {
    shown: UnixStream,
    kept: UnixStream,
    is_set: bool,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
    }
}

impl Signal {
    /// Wakes everybody who waits.
    pub fn raise(&self) {
        let mut state = lock(&self.state);
        state.count += 1;
        if let Some(descriptor) = &mut state.descriptor {
            descriptor.set(true);
        }
        state.waiters.iter().for_each(|waiter| waiter.notify());
        let has_sleepers = state.sleepers > 0;
        drop(state);
        if has_sleepers {
            self.changed.notify_all();
        }
    }

    /// Number of wake-ups so far.
    pub fn count(&self) -> u64 {
        lock(&self.state).count
    }

    /// Sleeps until the number of wake-ups differs from `seen`. Returns false if `deadline` came first.
    pub fn sleep(&self, seen: u64, deadline: Option<Instant>) -> bool {
        let mut state = lock(&self.state);
        state.sleepers += 1;
        while state.count == seen {
            let (woken, is_over) = wait(&self.changed, state, deadline);
            state = woken;
            if is_over {
                break;
            }
        }
        state.sleepers -= 1;
        state.count != seen
    }

    /// Adds a waiter, until [`Self::remove`].
    pub fn add(&self, waiter: &Arc<Waiter>) {
        lock(&self.state).waiters.push(Arc::clone(waiter));
    }

    /// Removes a waiter.
    pub fn remove(&self, waiter: &Arc<Waiter>) {
        lock(&self.state).waiters.retain(|known| !Arc::ptr_eq(known, waiter));
    }

    /// Whether somebody has asked for the descriptor.
    pub fn has_descriptor(&self) -> bool {
        lock(&self.state).descriptor.is_some()
    }

    /// The descriptor, which is made if there is none. It begins as readable.
    pub fn descriptor(&self) -> io::Result<RawFd> {
        let mut state = lock(&self.state);
        if state.descriptor.is_none() {
            let mut made = Descriptor::new()?;
            made.set(true);
            state.descriptor = Some(made);
        }
        Ok(state.descriptor.as_ref().map_or(-1, |descriptor| descriptor.shown.as_raw_fd()))
    }

    /// Makes the descriptor show what was found after the count was `seen`. Returns false if there were
    /// wake-ups since: then look again.
    pub fn show(&self, seen: u64, is_ready: bool) -> bool {
        let mut state = lock(&self.state);
        if state.count != seen && !is_ready {
            return false;
        }
        if let Some(descriptor) = &mut state.descriptor {
            descriptor.set(is_ready);
        }
        true
    }

    /// Closes the descriptor.
    pub fn close_descriptor(&self) {
        lock(&self.state).descriptor = None;
    }
}

impl Waiter {
    fn notify(&self) {
        *lock(&self.count) += 1;
        self.changed.notify_all();
    }

    /// Number of wake-ups so far.
    pub fn count(&self) -> u64 {
        *lock(&self.count)
    }

    /// Sleeps until the number of wake-ups differs from `seen`. Returns false if `deadline` came first.
    pub fn sleep(&self, seen: u64, deadline: Option<Instant>) -> bool {
        let mut count = lock(&self.count);
        while *count == seen {
            let (woken, is_over) = wait(&self.changed, count, deadline);
            count = woken;
            if is_over {
                break;
            }
        }
        *count != seen
    }
}

impl Descriptor {
    fn new() -> io::Result<Self> {
        let (shown, kept) = UnixStream::pair()?;
        // A program that read the byte itself, against the rule, must not make us wait.
        shown.set_nonblocking(true)?;
        kept.set_nonblocking(true)?;
        Ok(Self { shown, kept, is_set: false })
    }

    fn set(&mut self, is_set: bool) {
        if self.is_set == is_set {
            return;
        }
        // One byte always fits, and one byte is there unless the program took it.
        let _ = if is_set { self.kept.write(&[1]) } else { self.shown.read(&mut [0]) };
        self.is_set = is_set;
    }
}

/// Waits once. Returns the guard, and whether the deadline has passed.
fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>, deadline: Option<Instant>) -> (MutexGuard<'a, T>, bool) {
    let Some(deadline) = deadline else {
        return (changed.wait(guard).unwrap_or_else(PoisonError::into_inner), false);
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let (guard, result) = changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
    (guard, result.timed_out())
}

/// Locks, also after a panic: each function here leaves a usable state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(signal: &Signal) -> bool {
        let state = lock(&signal.state);
        let mut byte = [0];
        // Peeking is not stable in std: the byte is taken and put back.
        let descriptor = state.descriptor.as_ref().unwrap();
        let found = (&descriptor.shown).read(&mut byte).is_ok();
        if found {
            (&descriptor.kept).write_all(&byte).unwrap();
        }
        found
    }

    #[test]
    fn a_wake_up_between_look_and_show_is_not_lost() {
        let signal = Signal::default();
        signal.descriptor().unwrap();
        assert!(is_readable(&signal), "a new descriptor asks for a look");
        let seen = signal.count();
        assert!(signal.show(seen, false));
        assert!(!is_readable(&signal));

        let seen = signal.count();
        signal.raise();
        assert!(!signal.show(seen, false), "cleared in spite of a wake-up");
        assert!(is_readable(&signal));
        // What was found ready stays so, whatever came in between.
        assert!(signal.show(seen, true));
        assert!(signal.show(signal.count(), false));
        assert!(!is_readable(&signal));
    }

    #[test]
    fn a_wake_up_before_the_sleep_is_not_lost() {
        let (signal, waiter) = (Signal::default(), Arc::<Waiter>::default());
        signal.add(&waiter);
        let seen = (signal.count(), waiter.count());
        signal.raise();
        assert!(signal.sleep(seen.0, None));
        assert!(waiter.sleep(seen.1, None));
        signal.remove(&waiter);
        let seen = (signal.count(), waiter.count());
        signal.raise();
        assert_eq!(waiter.count(), seen.1);
        let now = Some(Instant::now());
        assert!(signal.sleep(seen.0, now) && !signal.sleep(signal.count(), now) && !waiter.sleep(seen.1, now));
    }
}
