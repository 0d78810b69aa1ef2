//! The Tidewire protocol as a pure state machine.
#![forbid(unsafe_code)]
#![warn(clippy::exhaustive_enums)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod close;
pub mod config;
pub mod connection;
mod counts;
pub mod crypto;
mod custom;
pub mod endpoint;
mod event;
pub mod handshake;
#[cfg(test)]
mod hex;
mod ids;
mod lane;
pub mod model;
mod nearest;
pub mod path;
pub mod profile;
pub mod rate;
pub mod redundancy;
pub mod stats;
mod time;
pub mod wire;

pub use custom::Custom;
pub use nearest::{nearest, nearest_name};
pub use time::Time;
