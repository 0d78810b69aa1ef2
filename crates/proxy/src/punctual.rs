//! Asks the system to wake a thread on time. A thread that carries or times packets must not wait for other
//! programs.
//!
//! The links of this crate, the ends of a crossing or a trial, the alarm of `tidewire bench`, and inputs and
//! output of `tidewire live` call it when their threads start. Invariant: all of it is best effort. If the
//! system refuses, the thread stays as it was.

#[cfg(target_os = "linux")]
use std::process::{Command, Stdio};

/// Real-time priority, of 1 to 99 (sched(7)). Chosen: any value goes before all programs without one.
#[cfg(target_os = "linux")]
const PRIORITY: &str = "10";

/// Priority over other programs, of -20 to 19. A thread that was started with more keeps it. Chosen.
#[cfg(target_os = "linux")]
const NICE: i32 = -10;

/// Asks for no timer slack on this thread (the default is 50 us), and for priority over other programs if
/// that is allowed. Has no effect except on Linux.
pub fn be_punctual() {
    #[cfg(target_os = "linux")]
    {
        // Both are best effort. The second needs a privilege.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        if rustix::process::getpriority_process(None).is_ok_and(|nice| nice > NICE) {
            let _ = rustix::process::setpriority_process(None, NICE);
        }
    }
}

/// Gives this thread a real-time priority by `chrt` of util-linux, if the system has it. On a busy machine of
/// two cores the lab then added 0.26 ms to the delay instead of 7 ms at the 95th percentile. Has no effect
/// except on Linux.
pub fn be_prompt() {
    be_punctual();
    #[cfg(target_os = "linux")]
    ask_for_real_time();
}

#[cfg(target_os = "linux")]
fn ask_for_real_time() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut chrt = Command::new("chrt");
    chrt.args(["--fifo", "--pid", PRIORITY, &thread]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Best effort.
    let _ = chrt.status();
}
