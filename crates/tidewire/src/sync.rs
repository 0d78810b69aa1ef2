//! The synchronisation primitives that drivers, mailboxes and handles use, in one place.
//!
//! The model tests (`tests/model`) compile the same sources with shuttle's primitives in place of this
//! module. A test then decides which thread runs next at every point where threads could meet. No other file
//! of these sources names `std::sync::Mutex`, `std::thread` or `tokio::sync`.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread;

pub(crate) use tokio::sync::{Notify, mpsc};
