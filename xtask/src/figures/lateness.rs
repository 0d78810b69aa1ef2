//! How late this machine wakes who sleeps, while something is measured. What a late core adds to a delay is none of the transport's: on a
//! virtual machine whose host is busy, tens of milliseconds, whatever the priority.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(1);

/// A thread that sleeps and looks at the clock.
pub struct Lateness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Lateness {
    /// Begins to look.
    pub fn watch() -> Self {
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

    /// The greatest so far, in milliseconds; no number if the thread is gone.
    pub fn end(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_or(f64::NAN, |greatest| 1e3 * greatest.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_sleeps_is_late_by_something() {
        let lateness = Lateness::watch();
        thread::sleep(2 * PERIOD);
        assert!(lateness.end() > 0.0);
    }
}
