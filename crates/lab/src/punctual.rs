//! Asks the system to wake a thread on time: what carries or times packets must not wait for other programs.
//!
//! The links of this crate, the ends of a crossing or a trial, and the alarm of `tidewire bench` call it at
//! the start of their threads. Invariant: all of it is best effort; a system that refuses leaves the thread
//! as it was.

#[cfg(target_os = "linux")]
use std::process::{Command, Stdio};

/// Real-time priority, of 1 to 99 (sched(7)); chosen: any is before all programs that have none.
#[cfg(target_os = "linux")]
const PRIORITY: &str = "10";

/// Asks for no timer slack (50 us by default) on this thread, and for a turn before other programs where that
/// is allowed. Does nothing but on Linux.
pub fn be_punctual() {
    #[cfg(target_os = "linux")]
    {
        // Both are best effort; the second needs a privilege.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let _ = rustix::process::setpriority_process(None, -10);
    }
}

/// Has the system run this thread before all that is not of real time, where it has `chrt` of util-linux: on
/// a busy machine of two cores the lab added 0.26 ms to the delay instead of 7 ms at the 95th percentile.
#[cfg(target_os = "linux")]
pub(crate) fn be_prompt() {
    be_punctual();
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut chrt = Command::new("chrt");
    chrt.args(["--fifo", "--pid", PRIORITY, &thread]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Best effort.
    let _ = chrt.status();
}
