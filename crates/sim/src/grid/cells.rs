//! The links and loads of the grid: a core on which every change is judged, and one axis at a time around it.
//!
//! The core has the links that the goals name. The other cells were not used to choose a policy.

use core::fmt;
use std::path::Path;

use tidewire_proto::config::Config;

use crate::duplex::DuplexConfig;
use crate::load::Flow;
use crate::pair::End;
use crate::settings::Direction;

/// Bits per second of every link of the grid, as in goals L1 and L2 (`docs/figures.md`).
pub const RATE: f64 = 25e6;
/// More bytes than any cell carries, so that a run ends by its time.
const ENDLESS: u64 = 1 << 40;

/// A link and a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Loss rate of the link.
    pub loss: f64,
    /// Mean burst length in packets; 1 means independent losses.
    pub burst: f64,
    /// Least round trip in milliseconds.
    pub rtt_ms: u32,
    /// Rate that the application writes, as a fraction of the link's rate. `None` means as fast as possible.
    pub load: Option<f64>,
    /// Fraction of the datagrams that are lost on the way back.
    pub back_loss: f64,
    /// Longest span.
    pub max_span: u16,
    /// Factor of the loss that our policy is told, relative to the measured loss.
    pub misjudged: f64,
}

impl Cell {
    /// Half load, no loss on the way back, and the default span.
    const fn new(loss: f64, burst: f64, rtt_ms: u32) -> Self {
        Self { loss, burst, rtt_ms, load: Some(0.5), back_loss: 0.0, max_span: 256, misjudged: 1.0 }
    }

    /// The link of the cell, with a queue of one round trip.
    pub(super) fn link(&self, seed: u64) -> DuplexConfig {
        let mut link = DuplexConfig::default();
        let mut set = |direction, key, text: &str| {
            link.set(direction, key, text, Path::new("")).expect("a setting that this module wrote");
        };
        set(Direction::Both, "rate", &format!("{RATE}bit"));
        set(Direction::Both, "rtt", &format!("{}ms", self.rtt_ms));
        set(Direction::Both, "queue", &format!("{}ms", self.rtt_ms));
        let percent = |part: f64| format!("{}%", part * 100.0);
        let bursts = format!("gilbert:{},{}", percent(self.loss), self.burst);
        set(Direction::Forward, "loss", if self.burst > 1.0 { &bursts } else { &bursts[8..bursts.len() - 2] });
        set(Direction::Back, "loss", &percent(self.back_loss));
        link.set_seed(seed);
        link
    }

    /// The flow of the cell. If the application limits it, it writes records of 1,200 bytes.
    pub(super) fn flow(&self) -> Flow {
        match self.load {
            Some(load) => Flow::paced(End::Near, ENDLESS, (load * RATE / 8.0) as u64),
            None => Flow::bulk(End::Near, ENDLESS),
        }
    }

    /// Settings of both ends, except the redundancy.
    pub(super) fn config(&self) -> Config {
        Config::builder().max_span(self.max_span).build().expect("in range")
    }

    /// Repairs per source symbol that the loss alone requires.
    pub(super) fn taken(&self) -> f64 {
        self.loss / (1.0 - self.loss)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.loss * 100.0)?;
        if self.burst > 1.0 {
            write!(f, " x {}", self.burst)?;
        }
        write!(f, ", {} ms, ", self.rtt_ms)?;
        match self.load {
            Some(load) => write!(f, "load {load}")?,
            None => f.write_str("saturated")?,
        }
        if self.back_loss > 0.0 {
            write!(f, ", feedback loses {}%", self.back_loss * 100.0)?;
        }
        if self.max_span != 256 {
            write!(f, ", span {}", self.max_span)?;
        }
        if self.misjudged != 1.0 {
            write!(f, ", loss taken for {} of it", self.misjudged)?;
        }
        Ok(())
    }
}

/// The cells of the goals: independent losses and bursts of four, 10 and 60 ms, 2 and 10 %,
/// application-limited and saturated.
pub fn core() -> Vec<Cell> {
    let mut cells = Vec::new();
    for load in [Some(0.5), None] {
        for burst in [1.0, 4.0] {
            for rtt_ms in [10, 60] {
                cells.extend([0.02, 0.10].map(|loss| Cell { load, ..Cell::new(loss, burst, rtt_ms) }));
            }
        }
    }
    cells
}

/// One axis at a time: other losses, bursts, round trips, loads, losses of feedback, spans, and wrong
/// estimates.
pub fn around() -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut around = |change: &dyn Fn(Cell) -> Cell| {
        for load in [Some(0.5), None] {
            for burst in [1.0, 4.0] {
                let cell = change(Cell { load, ..Cell::new(0.10, burst, 60) });
                if !cells.contains(&cell) {
                    cells.push(cell);
                }
            }
        }
    };
    around(&|cell| Cell { loss: 0.0, burst: 1.0, ..cell });
    for loss in [0.01, 0.05, 0.20] {
        around(&|cell| Cell { loss, ..cell });
    }
    for burst in [2.0, 8.0] {
        around(&|cell| Cell { burst, ..cell });
    }
    for rtt_ms in [20, 150] {
        around(&|cell| Cell { rtt_ms, ..cell });
    }
    for load in [0.2, 0.8] {
        around(&|cell| Cell { load: Some(load), ..cell });
    }
    for back_loss in [0.1, 0.3] {
        around(&|cell| Cell { back_loss, ..cell });
    }
    for max_span in [64, 1_024] {
        around(&|cell| Cell { max_span, ..cell });
    }
    for misjudged in [0.5, 2.0] {
        around(&|cell| Cell { misjudged, ..cell });
    }
    cells
}
