//! Figures of measurements, and their pictures.
//!
//! The commands, the laboratory and the papers use it, so that one word, such as p99, means one thing
//! everywhere. [`rank`] has median and quantile, [`distribution`] measured delays, [`Delay`] those of their
//! quantiles that are reported, [`Delays`] counts differences of two clocks, [`spread`] has median and range
//! of a figure over several runs, [`chart`] draws them for a terminal and as SVG, [`csv`] writes lines of
//! data files. Nothing here measures or prints.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod chart;
pub mod csv;
mod delay;
mod differences;
pub mod distribution;
pub mod rank;
pub mod spread;

pub use delay::Delay;
pub use differences::Delays;
pub use distribution::{Distribution, milliseconds};
pub use rank::{ascending, median, quantile};
pub use spread::Spread;
