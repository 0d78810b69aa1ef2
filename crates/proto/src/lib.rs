//! The Tidewire protocol as a pure state machine.
#![forbid(unsafe_code)]

pub mod crypto;
#[cfg(test)]
mod hex;
mod time;
pub mod wire;

pub use time::Time;
