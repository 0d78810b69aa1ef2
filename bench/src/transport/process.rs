//! Suite `process`: two protocol endpoints in one thread and virtual time, without a socket. It shows the
//! cost of the protocol, the code and the cipher, with and without loss.
//!
//! CPU time is that of both ends together, as if one core did both, and that of each end, read before and
//! after its turns. The sender's own limit sets the pace.

use std::time::Duration;

use tidewire_proto::config::Config;

use super::pair::{Loss, Pair, Path};
use super::{Taken, Work, seconds};
use crate::goals;
use crate::report::{Cell, Report, Table, Verdict};

/// Percentages of packets that the link drops.
const LOSSES: [u8; 3] = [0, 5, 20];
/// Delay of one direction. With [`PACE`], about 1,700 packets are in flight, many times the longest span.
const DELAY: Duration = Duration::from_millis(10);
/// Bits per second of IP packets.
const PACE: u64 = 1_000_000_000;

/// Runs the suite.
pub fn run(work: Work, report: &mut Report) {
    let mut taken = [const { Vec::new() }; LOSSES.len()];
    for round in 0..work.rounds {
        for turn in 0..LOSSES.len() {
            let at = (turn + round) % LOSSES.len();
            eprintln!("process: round {} of {}, {} % lost", round + 1, work.rounds, LOSSES[at]);
            let loss = Loss::new(f64::from(LOSSES[at]) / 100.0, 1.0);
            let config = Config::builder().max_rate(Some(PACE)).build().expect("in range");
            taken[at].push(Pair::new(Path { delay: DELAY, loss }, config).transfer(work.bytes, None));
        }
    }
    let megabits = work.bytes as f64 * 8e-6;
    let mut rows = Vec::new();
    for (loss, taken) in LOSSES.iter().zip(&taken) {
        let whole = seconds(taken, |taken| taken.wall).map(|seconds| megabits / seconds);
        let of = |column: fn(&Taken) -> Duration| {
            Some(Cell::plain(seconds(taken, column).map(|seconds| megabits / seconds)))
        };
        rows.push((
            format!("{loss} % lost"),
            vec![Some(Cell::plain(whole)), of(|taken| taken.sender), of(|taken| taken.receiver)],
        ));
        if *loss == 20 {
            report.verdicts.push(Verdict {
                goal: 16,
                tier: "",
                what: "both ends on one core, in process",
                case: rows.last().map_or(String::new(), |(name, _)| name.clone()),
                measured: whole,
                unit: "Mbit/s",
                limit: goals::LOSSY_CORE,
                at_least: true,
            });
        }
    }
    report.tables.push(Table {
        id: "process",
        title: "In process",
        note: format!(
            "Mbit/s of delivered bytes per core, {} MB a transfer, round trip {} ms, pace {} Mbit/s, default settings.",
            work.bytes / 1_000_000,
            2 * DELAY.as_millis(),
            PACE / 1_000_000
        ),
        columns: ["loss", "both ends on one core", "sender alone", "receiver alone"].map(String::from).into(),
        rows,
    });
}
