//! Places of the TCP connections that one end carries at once, [`MAX_CONNECTIONS`] of them.
//!
//! The acceptors of the near end and the ports of the far end take one before they accept. Without a place,
//! TCP connections wait in the queue of the kernel. Invariant: the user is told that they wait, once in
//! [`QUIET`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::MAX_CONNECTIONS;
use crate::news::{News, Report};

/// Least time between two reports. Chosen: a user who looks now and then sees the latest.
const QUIET: Duration = Duration::from_secs(60);

/// The places of one end. Clones share them.
#[derive(Clone)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    told: Arc<Mutex<Option<Instant>>>,
}

impl Places {
    pub(crate) fn new() -> Self {
        Self { free: Arc::new(Semaphore::new(MAX_CONNECTIONS)), told: Arc::default() }
    }

    /// Waits for a place.
    pub(crate) async fn take(&self, report: &Report) -> Option<OwnedSemaphorePermit> {
        if self.free.available_permits() == 0 {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.is_none_or(|at| at.elapsed() >= QUIET) {
                *told = Some(Instant::now());
                report(&News::Full { most: MAX_CONNECTIONS });
            }
        }
        Arc::clone(&self.free).acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_place_is_told_once_a_minute_and_gets_the_next() {
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        let report: Report = Arc::new(move |news| {
            assert!(matches!(news, News::Full { most: MAX_CONNECTIONS }));
            count.fetch_add(1, Ordering::Relaxed);
        });
        let places = Places::new();
        let mut taken = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            taken.push(places.take(&report).await);
        }
        assert_eq!(told.load(Ordering::Relaxed), 0);
        let wait = Duration::from_secs(1);
        for (second, times) in (0..100).zip([1; 60].into_iter().chain([2; 40])) {
            assert!(tokio::time::timeout(wait, places.take(&report)).await.is_err(), "second {second}");
            assert_eq!(told.load(Ordering::Relaxed), times, "second {second}");
        }
        taken.pop();
        assert!(tokio::time::timeout(wait, places.take(&report)).await.is_ok());
    }
}
