//! The thread of a link emulator: started, stopped and queried the same way for every kind of link.
//!
//! [`Proxy`](crate::Proxy) and, on Linux, the emulator of the namespace lab each hold one, and share
//! its pool of buffers. Invariant: the thread has ended when the carrier is dropped.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Maximum number of buffers kept for reuse: 100 ms at 100 Mbit/s.
const SPARE_BUFFERS: usize = 1024;

/// A thread that carries packets and keeps counts of type `C`. It stops when the carrier is dropped.
#[derive(Debug)]
pub struct Carrier<C> {
    stop: Arc<AtomicBool>,
    counts: Arc<Mutex<C>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl<C: Clone + Default + Send + 'static> Carrier<C> {
    /// Starts `run`. It must return soon after its first argument is set, and keep its second argument
    /// current.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn start<F>(run: F) -> io::Result<Self>
    where
        F: FnOnce(&AtomicBool, &Mutex<C>) -> io::Result<()> + Send + 'static,
    {
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(C::default())));
        let (stopped, shared) = (stop.clone(), counts.clone());
        let thread = std::thread::Builder::new().name("link".into()).spawn(move || run(&stopped, &shared))?;
        Ok(Self { stop, counts, thread: Some(thread) })
    }

    /// The counts so far.
    pub fn counts(&self) -> C {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the thread still runs. If not, [`stop`](Self::stop) returns why.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops the thread and returns its counts.
    ///
    /// # Errors
    /// The error that ended the thread early, if there was one.
    pub fn stop(mut self) -> io::Result<C> {
        self.join()?;
        Ok(self.counts())
    }
}

impl<C> Carrier<C> {
    fn join(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(io::Error::other("the link emulator panicked")),
        }
    }
}

impl<C> Drop for Carrier<C> {
    fn drop(&mut self) {
        // A caller that wants to know how it ended calls `stop`.
        let _ = self.join();
    }
}

/// Buffers of packets that have left an emulator, for reuse.
#[derive(Debug, Default)]
pub struct Spare(Vec<Vec<u8>>);

impl Spare {
    /// `bytes` in a buffer, which is reused if possible.
    pub fn filled(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.0.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Takes a buffer back.
    pub fn keep(&mut self, buffer: Vec<u8>) {
        if self.0.len() < SPARE_BUFFERS {
            self.0.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_until_stopped_and_says_how_it_ended() {
        let counting = Carrier::<u64>::start(|stop, counts| {
            while !stop.load(Ordering::Relaxed) {
                *counts.lock().unwrap() = 7;
                std::thread::yield_now();
            }
            Ok(())
        });
        let counting = counting.unwrap();
        while counting.counts() == 0 {
            assert!(counting.is_running());
        }
        assert_eq!(counting.stop().unwrap(), 7);

        let failing = Carrier::<u64>::start(|_, _| Err(io::Error::other("no device"))).unwrap();
        while failing.is_running() {}
        assert_eq!(failing.stop().unwrap_err().to_string(), "no device");
    }
}
