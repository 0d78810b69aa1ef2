//! Figures of measurements, and their pictures.
//!
//! The commands, the laboratory and the papers use it, so that one word, such as p99, means one thing
//! everywhere. [`rank`] has median and quantile, [`distribution`] measured delays, [`spread`] median and
//! range of a figure over several runs, [`chart`] draws them for a terminal and as SVG. Nothing here measures
//! or prints.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod chart;
pub mod distribution;
pub mod rank;
pub mod spread;

pub use distribution::{Distribution, milliseconds};
pub use rank::{ascending, median, quantile};
pub use spread::Spread;
