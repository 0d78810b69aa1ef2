//! The tokio runtime of the process, and what a child of `fork` may do with it: nothing.
//!
//! The first listener or connection starts it, and it runs until the process ends. Invariant: every call
//! checks the process before it takes a lock, because a thread that does not exist in the child may hold it.

use std::ops::{Deref, DerefMut};
use std::process;
use std::sync::OnceLock;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::error::{FORK, TRANSPORT};

/// The runtime and the process that started it.
struct Started {
    runtime: Runtime,
    process: u32,
}

static STARTED: OnceLock<Started> = OnceLock::new();
/// Threads that drive sockets. One, as for the C API, which measured that more only cost wake-ups
/// (`crates/capi/src/runtime.rs`).
const DRIVERS: usize = 1;

/// The runtime, started if it is not.
///
/// # Errors
/// `ForkError` in a child of the process that started it; `TransportError` if threads are refused.
pub fn runtime(py: Python<'_>) -> PyResult<&'static Runtime> {
    let started = match STARTED.get() {
        Some(started) => started,
        // Two threads that start it at once: one of the two is dropped unused.
        None => {
            let built =
                Builder::new_multi_thread().worker_threads(DRIVERS).enable_all().thread_name("tidewire").build();
            let runtime = built.map_err(|error| TRANSPORT.raise(py, format!("the transport cannot start: {error}")))?;
            STARTED.get_or_init(|| Started { runtime, process: process::id() })
        }
    };
    match started.process == process::id() {
        true => Ok(&started.runtime),
        false => Err(FORK.raise(
            py,
            "this process was forked after the transport had started: use it in one of the two only, or start the other by spawn",
        )),
    }
}

fn is_forked() -> bool {
    STARTED.get().is_some_and(|started| started.process != process::id())
}

/// A part of the transport. In a child of `fork` it is not dropped, because dropping takes locks.
pub struct Owned<T>(Option<T>);

impl<T> Owned<T> {
    pub fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T> From<Option<T>> for Owned<T> {
    fn from(value: Option<T>) -> Self {
        Self(value)
    }
}

impl<T> Deref for Owned<T> {
    type Target = Option<T>;

    fn deref(&self) -> &Option<T> {
        &self.0
    }
}

impl<T> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut Option<T> {
        &mut self.0
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if is_forked() {
            std::mem::forget(self.0.take());
        }
    }
}
