//! Closed forms of the papers that policies decide by. Pure functions, no state.

pub mod streaming;
