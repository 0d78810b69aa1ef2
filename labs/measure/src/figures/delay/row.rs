//! The rows of `figures delay`: links, loads, and the goals for delay.
//!
//! L1 is half load on 25 Mbit/s and 60 ms, L3 a high load and L4 a small load on the same link. The goals are
//! chosen; docs/lab.md has what peers reach on such links.

use super::super::goal::ANY;

/// Records over a link. Only the direction of the records loses packets. The queue holds one round trip.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name in the tables; `--only` chooses by it.
    pub name: &'static str,
    /// The link's rate in Mbit/s of IP packets, each way.
    pub rate_mbit: u32,
    /// The link's round trip in ms.
    pub rtt_ms: u32,
    /// The link's losses, as scenario files write them.
    pub loss: &'static str,
    /// The rate of the records, in kbit/s of their bytes.
    pub load_kbit: u32,
    /// The bounds of the figures.
    pub goals: Goals,
}

/// Upper bounds; [`ANY`] where there is no goal.
#[derive(Clone, Copy, Debug)]
pub struct Goals {
    /// Delay beyond half a round trip in ms: mean, p50, p95, p99.
    pub delay: [f64; 4],
    /// IP bytes sent over bytes of records.
    pub sent_per_app: f64,
    /// Percent of the packets offered that the full queue drops.
    pub queue_drops: f64,
    /// Proactive repairs in percent of source symbols.
    pub proactive: f64,
}

impl Row {
    /// Whether several runs at once would compete for the processor. A run with 50 Mbit/s of records takes
    /// 1.3 cores, one with 20 Mbit/s half a core (AMD EPYC, 2 cores).
    pub fn is_busy(&self) -> bool {
        self.load_kbit > 20_000
    }

    /// Length of a run, in seconds. Slow flows make fewer records, so they get twice the `usual` time.
    pub fn seconds(&self, usual: u64) -> u64 {
        if self.load_kbit <= 1_000 { 2 * usual } else { usual }
    }
}

/// No goal at all.
pub const NONE: Goals = Goals { delay: [ANY; 4], sent_per_app: ANY, queue_drops: ANY, proactive: ANY };

/// Half load on 25 Mbit/s and 60 ms, with goals for p50, p95, p99 and sent/app.
const fn l1(name: &'static str, loss: &'static str, [p50, p95, p99, sent_per_app]: [f64; 4]) -> Row {
    let goals = Goals { delay: [ANY, p50, p95, p99], sent_per_app, ..NONE };
    Row { name, rate_mbit: 25, rtt_ms: 60, loss, load_kbit: 12_500, goals }
}

/// Half load on another link: p95 at most half a round trip, p99 at most one.
const fn shape(name: &'static str, loss: &'static str, rate_mbit: u32, rtt_ms: u32) -> Row {
    let goals = Goals { delay: [ANY, ANY, rtt_ms as f64 / 2.0, rtt_ms as f64], ..NONE };
    Row { name, rate_mbit, rtt_ms, loss, load_kbit: rate_mbit * 500, goals }
}

/// Another load on the link of L1.
const fn load(name: &'static str, loss: &'static str, load_kbit: u32, goals: Goals) -> Row {
    Row { name, rate_mbit: 25, rtt_ms: 60, loss, load_kbit, goals }
}

const fn p95(most: f64) -> [f64; 4] {
    [ANY, ANY, most, ANY]
}

/// Every row, in the order of the tables.
pub static ROWS: [Row; 18] = [
    Row {
        goals: Goals { delay: [ANY, ANY, ANY, 5.0], sent_per_app: 1.10, proactive: 0.5, ..NONE },
        ..l1("L1 iid 0 %", "0%", [ANY; 4])
    },
    l1("L1 iid 1 %", "1%", [1.0, 3.0, 6.0, 1.30]),
    l1("L1 iid 2 %", "2%", [1.0, 4.0, 8.0, 1.32]),
    l1("L1 iid 5 %", "5%", [1.0, 6.0, 18.0, 1.35]),
    l1("L1 iid 10 %", "10%", [1.0, 10.0, 25.0, 1.45]),
    l1("L1 iid 20 %", "20%", [2.0, 20.0, 50.0, 1.70]),
    l1("L1 Gilbert 5 % x 4", "gilbert:5%,4", [1.0, 35.0, 90.0, 1.40]),
    l1("L1 Gilbert 10 % x 4", "gilbert:10%,4", [2.0, 45.0, 100.0, 1.60]),
    shape("50/20 iid 1 %", "1%", 50, 20),
    shape("50/20 iid 5 %", "5%", 50, 20),
    shape("50/20 iid 10 %", "10%", 50, 20),
    shape("100/10 iid 1 %", "1%", 100, 10),
    shape("100/10 iid 5 %", "5%", 100, 10),
    shape("100/10 iid 10 %", "10%", 100, 10),
    load("L3 80 % load, iid 5 %", "5%", 20_000, Goals { delay: p95(30.0), queue_drops: 1.0, ..NONE }),
    load("L3 75 % load, iid 10 %", "10%", 18_750, Goals { delay: p95(40.0), queue_drops: 1.0, ..NONE }),
    load("L4 1 Mbit/s, iid 5 %", "5%", 1_000, Goals { delay: p95(25.0), sent_per_app: 1.6, ..NONE }),
    load("L4 1 Mbit/s, iid 10 %", "10%", 1_000, Goals { delay: p95(45.0), sent_per_app: 1.6, ..NONE }),
];
