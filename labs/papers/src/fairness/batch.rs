//! Pipeline coding beside batch coding, which the paper names as what it improves: what the wait for a whole
//! batch costs in delay, and what it costs TCP in goodput.
//!
//! [`PAPER`](super::PAPER) lists the experiments. Invariant: both systems have the same code, redundancy and
//! generations.

use std::time::Duration;

use super::runs::{Setting, System, paced};
use super::{Point, TWO, goodputs, points, row};
use crate::row::Row;
use crate::{Case, cases};

const SYSTEMS: [(&str, System); 2] = [(" (pipeline)", System::Paper), (" (batch)", System::Batch)];
/// Symbols of a generation, as in Figure 5.
const GENERATIONS: [f64; 5] = [4.0, 8.0, 16.0, 32.0, 64.0];

fn over_generations(full: bool) -> Vec<Point> {
    points(TWO, full, &SYSTEMS, &GENERATIONS, |base, symbols| Setting { generation: symbols as u16, ..base })
}

/// Delay in milliseconds of records that a flow writes every 1.8 ms: the mean, the median and p99.
pub(super) fn delay(full: bool) -> Vec<Case> {
    cases(over_generations(full), |point| {
        let ms = |delay: Duration| delay.as_secs_f64() * 1e3;
        let delays = paced(point.setting);
        let [p50, p99] = [0.5, 0.99].map(|quantile| Some(ms(delays.quantile(quantile))));
        vec![Row { p50, p99, ..row(point, "delay", ms(delays.mean())) }]
    })
}

/// Goodput of a coded flow beside one without code.
pub(super) fn goodput(full: bool) -> Vec<Case> {
    cases(over_generations(full), goodputs)
}
