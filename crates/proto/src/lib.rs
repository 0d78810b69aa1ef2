//! The Tidewire protocol as a pure state machine.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod crypto;
#[cfg(test)]
mod hex;
mod time;
pub mod wire;

pub use time::Time;
