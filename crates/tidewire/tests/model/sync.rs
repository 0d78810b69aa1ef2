//! The model's `sync`: shuttle's mutex and threads, at which shuttle decides who runs next.
//!
//! Tokio's `Notify` and `mpsc` are used as they are. They never wait while another task runs, so that each
//! call is one step of the model, and they wake tasks by their wakers, which are shuttle's.

pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use shuttle::thread;
pub(crate) use tokio::sync::Notify;

pub(crate) mod mpsc {
    pub(crate) use tokio::sync::mpsc::{Receiver, Sender};

    /// So small that a test fills it.
    pub(crate) fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        tokio::sync::mpsc::channel(capacity.min(super::super::MAILBOX))
    }
}
