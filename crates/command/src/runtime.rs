//! The runtime of a verb, with every thread that it cannot do without.
//!
//! tokio panics where the system refuses a thread that it needs: one of its workers at the start, and later
//! the thread that takes the place of a worker that blocks. [`crate::interrupt::block_on`] calls this.
//! Invariant: a refusal at the start is an error. A later one is none, because a spare thread is there, which
//! does the work of those that are refused.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::exit::{Exit, Failure};

/// How long the spare thread waits for work. Chosen: longer than any job.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// Starts the runtime.
///
/// # Errors
/// [`Exit::Other`] if the system gives no threads.
pub(crate) fn start() -> Result<Runtime, Failure> {
    let mut builder = Builder::new_multi_thread();
    builder.enable_all().thread_keep_alive(FOR_EVER);
    build(&mut builder).map_err(|error| {
        let wanted = format_args!(
            "the system refuses what the program needs to start: {error}; allow it more threads (ulimit -u, \
             TasksMax= of systemd, pids.max of a container), memory (ulimit -v) or open files (ulimit -n)"
        );
        Failure::message(Exit::Other, wanted)
    })
}

/// Builds the runtime and its spare thread.
fn build(builder: &mut Builder) -> io::Result<Runtime> {
    quiet(|| {
        let runtime = builder.build()?;
        runtime.spawn_blocking(|| ());
        Ok(runtime)
    })
}

/// Runs `start`, whose panic is an error with the same text. The process has no other thread that could panic
/// meanwhile and not be heard.
fn quiet<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let started = panic::catch_unwind(AssertUnwindSafe(start));
    panic::set_hook(hook);
    started.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        Err(io::Error::other(text.to_owned()))
    })
}
