//! The simulator: links without clock or I/O, and the scenarios that describe them.

pub mod duplex;
pub mod link;
pub mod units;
