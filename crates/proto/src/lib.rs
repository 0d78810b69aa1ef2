//! The Tidewire protocol as a pure state machine.
#![forbid(unsafe_code)]

mod time;

pub use time::Time;
