//! The Tidewire protocol as a pure state machine.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod config;
pub mod connection;
pub mod crypto;
pub mod endpoint;
pub mod handshake;
#[cfg(test)]
mod hex;
mod lane;
pub mod model;
pub mod path;
pub mod rate;
pub mod redundancy;
pub mod stats;
mod time;
pub mod wire;

pub use time::Time;
