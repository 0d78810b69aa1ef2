//! The links that are measured, and the goals for each.
//!
//! A cell is one line of the tables: a whole file over a link of 25 Mbit/s and 60 ms. The goals were chosen
//! for the main job, `tidewire send`.

use super::super::goal::Goal;

/// Capacity of the link in bits of IP packets per second, each way.
pub const CAPACITY: f64 = 25e6;
/// The link as options of `tidewire-lab link`. The queue holds one round trip.
pub const LINK_OPTIONS: [&str; 6] = ["--rate", "25mbit", "--rtt", "60ms", "--queue", "60ms"];

/// One link.
#[derive(Debug, PartialEq)]
pub struct Cell {
    /// Its name in the tables.
    pub name: &'static str,
    /// The argument of `tidewire-lab link --loss`.
    pub loss: &'static str,
    /// The argument of `tidewire-lab link --back-loss`.
    pub back_loss: &'static str,
    /// The fraction of packets that `loss` drops.
    pub p: f64,
    /// Lower bound of the goodput of the whole file, as a share of C(1-p).
    pub least_share: f64,
}

impl Cell {
    /// The bits per second that the link delivers: C(1-p).
    pub fn capacity(&self) -> f64 {
        CAPACITY * (1.0 - self.p)
    }

    /// Whether the loss is so high that a coding policy must have repaired some of it.
    pub fn needs_repair(&self) -> bool {
        self.p >= 0.05
    }
}

const fn cell(name: &'static str, loss: &'static str, p: f64, least_share: f64) -> Cell {
    Cell { name, loss, back_loss: "0%", p, least_share }
}

/// Every cell, in the order of the tables.
pub const CELLS: [Cell; 9] = [
    cell("iid 0 %", "0%", 0.0, 0.88),
    cell("iid 1 %", "1%", 0.01, 0.88),
    cell("iid 2 %", "2%", 0.02, 0.88),
    cell("iid 5 %", "5%", 0.05, 0.88),
    cell("iid 10 %", "10%", 0.1, 0.88),
    cell("iid 20 %", "20%", 0.2, 0.86),
    cell("Gilbert 5 % x 4", "gilbert:5%,4", 0.05, 0.88),
    cell("Gilbert 10 % x 4", "gilbert:10%,4", 0.1, 0.86),
    Cell { back_loss: "5%", ..cell("iid 5 %, back 5 %", "5%", 0.05, 0.85) },
];

/// Goodput in the steady state on every link, as a share of C(1-p).
pub const STEADY: Goal = Goal::AtLeast(0.90);
/// Percent of the packets offered that the full queue drops.
pub const QUEUE_DROPS: Goal = Goal::AtMost(2.0);
/// Mean wait in the queue, in milliseconds.
pub const QUEUEING_MS: Goal = Goal::AtMost(10.0);
/// IP bytes sent per byte of the file where nothing is lost.
pub const SENT_PER_APP: Goal = Goal::AtMost(1.10);
/// IP bytes on the way back per byte of the file.
pub const BACK_PER_APP: Goal = Goal::AtMost(0.04);
