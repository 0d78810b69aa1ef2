//! What Ctrl-C, a request to terminate and a hang-up end: the job, so that it can tell its peer.

use std::future::Future;
use std::sync::OnceLock;

use tokio::sync::watch;

use crate::exit::{Exit, Failure};
use crate::runtime;

/// Runs an asynchronous verb on a runtime of its own. Each verb decides what Ctrl-C ends.
///
/// # Errors
/// The failure of the verb; [`Exit::Other`] if the system gives no threads.
pub fn block_on(verb: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    runtime::start()?.block_on(verb)
}

/// Runs `job` until it ends, or until Ctrl-C or a request to terminate, which drops it. A request that came
/// after the first call of this function, or of [`heed`], counts for all later ones, so none is lost between
/// two jobs.
///
/// # Errors
/// The failure of the job, or [`Exit::Sigint`].
pub async fn unless_interrupted<T>(job: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut interrupted = heeded().clone();
    let interrupted = async move {
        if interrupted.wait_for(|interrupted| *interrupted).await.is_err() {
            // Without handlers, the signals end the process anyway.
            std::future::pending().await
        }
    };
    tokio::select! {
        ended = job => ended,
        () = interrupted => Err(Failure::message(Exit::Sigint, "interrupted")),
    }
}

/// From now on, a write beyond the limit of a file's size (`ulimit -f`) is an error of that write, EFBIG. The
/// system's own reaction to SIGXFSZ would end the process. A program calls this before it writes anything.
pub fn outlive_size_limit() {
    #[cfg(unix)]
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() {
        let _entered = runtime.enter();
        // The handler stays when the stream of signals is dropped. If there is none, nothing changes.
        let signal = rustix::process::Signal::XFSZ.as_raw();
        drop(tokio::signal::unix::signal(tokio::signal::unix::SignalKind::from_raw(signal)));
    }
}

/// From now on, a request to end waits for the next [`unless_interrupted`]. A verb calls this before it
/// prints that it waits, because who reads that may end it at once, and before it makes what it has to
/// remove.
pub fn heed() {
    heeded();
}

/// Whether this process was asked to end, since the first call.
fn heeded() -> &'static watch::Receiver<bool> {
    static INTERRUPTED: OnceLock<watch::Receiver<bool>> = OnceLock::new();
    INTERRUPTED.get_or_init(|| {
        let (tell, told) = watch::channel(false);
        let requested = requested_to_end();
        tokio::spawn(async move {
            if requested.await.is_some() {
                tell.send_replace(true);
            }
        });
        told
    })
}

/// The same for a job that a hang-up ends too. The system's own reaction to it would leave the peer without
/// a CLOSE.
///
/// # Errors
/// The failure of the job, or [`Exit::Sigint`].
pub async fn unless_hung_up<T>(job: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        ended = unless_interrupted(job) => ended,
        () = hung_up() => Err(Failure::message(Exit::Sigint, "interrupted by a hang-up")),
    }
}

/// For a job that only Ctrl-C ends: Ctrl-C then needs no message, since the exit code tells it.
///
/// # Errors
/// The failure of `ended`; [`Exit::Sigint`] without a message.
pub fn quietly<T>(ended: Result<T, Failure>) -> Result<T, Failure> {
    ended.map_err(|failure| if failure.exit == Exit::Sigint { Failure::reported(Exit::Sigint) } else { failure })
}

/// Registers for Ctrl-C and requests to terminate, and waits for one. `None` if the system refuses.
#[cfg(unix)]
fn requested_to_end() -> impl Future<Output = Option<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return None };
        tokio::select! {
            received = interrupt.recv() => received,
            received = terminate.recv() => received,
        }
    }
}

#[cfg(not(unix))]
async fn requested_to_end() -> Option<()> {
    tokio::signal::ctrl_c().await.ok()
}

/// Waits for a hang-up of the terminal, or of the program that reads this one.
async fn hung_up() {
    #[cfg(unix)]
    if !ignores_hang_ups()
        && let Ok(mut hang_up) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())
    {
        hang_up.recv().await;
        return;
    }
    std::future::pending().await
}

/// Whether this process was started to ignore hang-ups, as nohup(1) does. Only Linux tells.
#[cfg(unix)]
fn ignores_hang_ups() -> bool {
    // A mask in hexadecimal digits, with signal 1, SIGHUP, as its lowest bit (proc_pid_status(5)).
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
