//! Wakes a task on time. The timer of the runtime has a resolution of one millisecond. Records that are due
//! in between would be made several at a time, and the measurement would show that instead of the path.
//!
//! A thread sleeps for the task that makes records. It ends with the alarm.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Instant;

use tidewire_proxy::punctual::be_punctual;
use tokio::sync::Notify;

/// A thread that wakes a task; see the module.
#[derive(Debug)]
pub struct Alarm {
    set: Sender<Instant>,
    rung: Arc<Notify>,
}

impl Alarm {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if the system cannot start a thread.
    pub fn new() -> io::Result<Self> {
        let (set, asked) = mpsc::channel::<Instant>();
        let rung = Arc::new(Notify::new());
        let bell = Arc::clone(&rung);
        thread::Builder::new().name("alarm".into()).spawn(move || {
            be_punctual();
            for due in asked {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                bell.notify_one();
            }
        })?;
        Ok(Self { set, rung })
    }

    pub async fn wait(&self, due: Instant) {
        // The thread lives as long as `self`.
        if self.set.send(due).is_ok() {
            self.rung.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn rings_once_for_each_time_and_never_early() {
        let alarm = Alarm::new().unwrap();
        for micros in [0, 300, 100] {
            let due = Instant::now() + Duration::from_micros(micros);
            alarm.wait(due).await;
            assert!(Instant::now() >= due);
        }
    }
}
