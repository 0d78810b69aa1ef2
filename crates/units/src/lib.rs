//! What people write, and what an error tells them: quantities with a unit, and names.
//!
//! The protocol, scenario files and the command line use it, so that all of them accept the same texts and
//! refuse the others with the same words. It is the lowest crate of the workspace.
#![forbid(unsafe_code)]
#![warn(clippy::exhaustive_enums)]

mod names;
mod quantity;

pub use names::{nearest, nearest_name, unknown_key};
pub use quantity::{Probability, Rate, UnitError, UnitProblem, parse_deliver, parse_duration, parse_size};
