//! Measures how late the machine wakes a sleeping thread during a run.
//!
//! A late wake-up adds to measured delays and has nothing to do with the transport. On a virtual machine with
//! a busy host it takes tens of milliseconds, at any priority.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the thread sleeps each time.
const PERIOD: Duration = Duration::from_millis(1);

/// A thread that sleeps and looks at the clock.
pub struct Lateness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Lateness {
    /// Starts the thread.
    pub fn begin() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut greatest = Duration::ZERO;
            loop {
                let asleep = Instant::now();
                thread::sleep(PERIOD);
                greatest = greatest.max(asleep.elapsed().saturating_sub(PERIOD));
                if stopped.load(Ordering::Relaxed) {
                    return greatest;
                }
            }
        });
        Self { stop, thread }
    }

    /// Stops the thread and returns the greatest lateness, in milliseconds; NaN if the thread panicked.
    pub fn end(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_or(f64::NAN, |greatest| 1e3 * greatest.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeping_thread_wakes_a_little_late() {
        let lateness = Lateness::begin();
        thread::sleep(2 * PERIOD);
        assert!(lateness.end() > 0.0);
    }
}
