//! The synchronisation that drivers, mailboxes and handles are built on, in one place.
//!
//! The model tests (`tests/model`) compile the same sources with shuttle's primitives in place of this
//! module, so that a test decides who runs next wherever threads could meet. No other file of those sources
//! names `std::sync::Mutex`, `std::thread` or `tokio::sync`.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread;

pub(crate) use tokio::sync::{Notify, mpsc};
