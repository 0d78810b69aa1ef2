//! The Tidewire protocol as a pure state machine.
#![forbid(unsafe_code)]

mod time;
pub mod wire;

pub use time::Time;
