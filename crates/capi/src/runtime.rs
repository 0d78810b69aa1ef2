//! The runtime of the process, and what goes on in it after a handle was closed.
//!
//! The first socket starts it, and it runs until the process ends. Invariant: no function waits for it in a
//! child of `fork`, which has none of its threads.

use std::io;
use std::process;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use crate::code::{Failure, Outcome, TW_EFORKED};
use crate::signal::lock;

/// The runtime and the process that started it.
struct Started {
    runtime: Runtime,
    process: u32,
}

static STARTED: OnceLock<Started> = OnceLock::new();
/// Threads that drive sockets. Measured: with one, the echo carries 9 % more than with one for each of two
/// cores (example `throughput`, medians of 15 runs in turns), since a wake-up need not find its thread.
const DRIVERS: usize = 1;
/// Held while the runtime is started.
static STARTING: Mutex<()> = Mutex::new(());
/// Number of closed sockets whose data is still under way.
static CLOSING: Mutex<usize> = Mutex::new(0);
static CLOSED: Condvar = Condvar::new();

/// Fails in a child of `fork`. Every function calls this before it takes a lock.
pub(crate) fn check_process() -> Outcome<()> {
    match STARTED.get() {
        Some(started) if started.process != process::id() => Err(Failure::new(
            TW_EFORKED,
            "this process was forked after the library had started: make the first socket after fork, or call exec",
        )),
        _ => Ok(()),
    }
}

/// The runtime, started if it is not.
pub(crate) fn runtime() -> Outcome<&'static Runtime> {
    if let Some(started) = STARTED.get() {
        return Ok(&started.runtime);
    }
    let _only = lock(&STARTING);
    if let Some(started) = STARTED.get() {
        return Ok(&started.runtime);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(DRIVERS)
        .enable_all()
        .thread_name("tidewire")
        .build()
        .map_err(no_threads)?;
    Ok(&STARTED.get_or_init(|| Started { runtime, process: process::id() }).runtime)
}

fn no_threads(error: io::Error) -> Failure {
    Failure::new(crate::code::TW_EIO, format_args!("the library cannot start its threads: {error}"))
}

/// Counts a closed socket while its data is under way.
pub(crate) struct Closing(());

impl Closing {
    pub fn begin() -> Self {
        *lock(&CLOSING) += 1;
        Self(())
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        *lock(&CLOSING) -= 1;
        CLOSED.notify_all();
    }
}

/// Waits until the data of all closed sockets has arrived or was given up. Returns false after `timeout`.
pub(crate) fn wait_for_closing(timeout: Option<Duration>) -> bool {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let mut count = lock(&CLOSING);
    while *count > 0 {
        count = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            None => CLOSED.wait(count).unwrap_or_else(PoisonError::into_inner),
            Some(Duration::ZERO) => return false,
            Some(left) => CLOSED.wait_timeout(count, left).unwrap_or_else(PoisonError::into_inner).0,
        };
    }
    true
}
