//! The C API of Tidewire: streams over an interface like sockets. `docs/c-api.md` is its page and
//! `include/tidewire.h` its header; Rust programs use the crate `tidewire` instead.
//!
//! A C program calls the functions of `edge.rs`. Each looks a handle up in the table (`table.rs`) and calls
//! its socket (`socket.rs`). Sends and receives call the connection directly, on the thread of the caller:
//! no task and no channel lies between, and the only copy is the one between the caller's memory and the ring
//! of the connection. A call that has to wait sleeps on the socket's signal (`signal.rs`), which the driver
//! of the connection wakes.
//!
//! `unsafe` is in `edge.rs` only: the pointers of the caller. Invariants: no panic leaves a function, no
//! handle is a pointer, and a call that fails changes nothing.
#![deny(unsafe_code)]
#![cfg(unix)]

mod code;
mod connecting;
#[allow(unsafe_code)]
mod edge;
mod listener;
mod modes;
mod polling;
mod runtime;
mod settings;
mod signal;
mod socket;
mod table;

pub use code::*;
pub use edge::*;
pub use polling::{PollEntry, TW_POLLERR, TW_POLLIN, TW_POLLOUT};
