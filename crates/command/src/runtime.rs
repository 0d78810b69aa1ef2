//! The runtime of a verb, with every thread that it cannot do without.
//!
//! tokio panics where the system refuses a thread that it needs: one of its workers at the start, and later
//! the thread that takes the place of a worker that blocks. With a part of its workers it even waits for
//! ever. [`crate::interrupt::block_on`] calls this, which tries first. Invariant: a refusal at the start is
//! an error. A later one is none, because a spare thread is there, which does the work of those that are
//! refused.

use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, panic, process, thread};

use tokio::runtime::{Builder, Runtime};

use crate::exit::{Exit, Failure};

/// How long the spare thread waits for work. Chosen: longer than any job.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// Least limit of a process's memory: 64 MiB for the program and its threads, and the ring of a connection. A
/// receiver with 64,000,000 bytes ran out of memory at its first connection, and Rust then ends the process.
#[cfg(unix)]
const LEAST_MEMORY: u64 = 128 << 20;

/// Starts the runtime.
///
/// # Errors
/// [`Exit::Other`] if the system gives no threads, or too little memory.
pub(crate) fn start() -> Result<Runtime, Failure> {
    check_memory()?;
    build().map_err(|error| {
        let wanted = format_args!(
            "the system refuses what the program needs to start: {error}; allow it more threads (ulimit -u, \
             TasksMax= of systemd, pids.max of a container), memory (ulimit -v) or open files (ulimit -n)"
        );
        Failure::message(Exit::Other, wanted)
    })
}

/// Refuses a limit of memory that the first connection would exceed.
#[cfg(unix)]
fn check_memory() -> Result<(), Failure> {
    use rustix::process::{Resource, getrlimit};
    let limit = [Resource::As, Resource::Data].into_iter().filter_map(|of| getrlimit(of).current).min();
    limit.filter(|limit| *limit < LEAST_MEMORY).map_or(Ok(()), |limit| {
        let wanted = format_args!(
            "the memory of this process is limited to {limit} bytes, and it needs {LEAST_MEMORY}; allow more (ulimit -v)"
        );
        Err(Failure::message(Exit::Other, wanted))
    })
}

#[cfg(not(unix))]
fn check_memory() -> Result<(), Failure> {
    Ok(())
}

/// Builds the runtime and its spare thread.
fn build() -> io::Result<Runtime> {
    check_threads(workers() + 1)?;
    let hook = panic::take_hook();
    // Another process has taken the threads meanwhile. Without this, tokio would wait for the worker that it
    // has, and for ever.
    panic::set_hook(Box::new(move |panicked| {
        eprintln!("tidewire: the system refuses a thread: {panicked}");
        process::exit(Exit::Other.code().into());
    }));
    let runtime = Builder::new_multi_thread().enable_all().thread_keep_alive(FOR_EVER).build()?;
    runtime.spawn_blocking(|| ());
    panic::set_hook(hook);
    Ok(runtime)
}

/// Number of workers, as tokio counts them.
fn workers() -> usize {
    let wanted = std::env::var("TOKIO_WORKER_THREADS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// Makes as many threads at once, and ends them again.
fn check_threads(count: usize) -> io::Result<()> {
    let (before, gate) = (own_threads(), Arc::new(Mutex::new(())));
    let closed = gate.lock();
    let mut threads = Vec::with_capacity(count);
    let made = (0..count).try_for_each(|_| {
        let gate = Arc::clone(&gate);
        threads.push(thread::Builder::new().spawn(move || drop(gate.lock()))?);
        Ok(())
    });
    drop(closed);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    // The system counts a thread until a moment after its end.
    (0..MOST_LOOKS).take_while(|_| own_threads() > before).for_each(|_| thread::sleep(Duration::from_millis(1)));
    made
}

/// Maximum number of looks at threads that end. Chosen: a second.
const MOST_LOOKS: u32 = 1_000;

/// Number of threads of this process; 0 if the system does not tell.
fn own_threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_the_system_gives_are_enough() {
        check_threads(3).unwrap();
        build()
            .unwrap()
            .block_on(async { tokio::task::spawn(async { tokio::task::block_in_place(|| ()) }).await.unwrap() });
    }
}
