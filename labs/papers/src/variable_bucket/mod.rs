//! Bhat, McNair: "Delivering Low Latency Video using TCP with Network Coding over Wireless Network": Figures
//! 3 and 6 to 10, the headline figures, the worked example, the cap of the bucket, and the rule as it is
//! printed.
//!
//! [`PAPERS`](crate::PAPERS) holds [`PAPER`]. `papers/variable-bucket/README.md` says what the paper has and
//! why the results differ. Invariant: the arguments of a case determine its result.

mod bound;
mod figures;
mod nodes;
mod runs;
mod tables;

use crate::{Experiment, Paper};

/// The paper with all its experiments.
pub const PAPER: Paper = Paper {
    name: "variable-bucket",
    title: "Bhat and McNair: Delivering Low Latency Video using TCP with Network Coding over Wireless Network",
    experiments: &[
        Experiment { name: "example", title: "The worked example of section 3.2", cases: tables::example },
        Experiment { name: "figure-3", title: "Latency and zero-payload packets, bucket 4", cases: figures::figure_3 },
        Experiment { name: "figure-6", title: "Zero-payload packets and windows, 3 nodes", cases: figures::figure_6 },
        Experiment { name: "figure-7", title: "Zero-payload packets and windows, 20 nodes", cases: figures::figure_7 },
        Experiment { name: "figure-8", title: "Latency over time, 20 nodes", cases: figures::figure_8 },
        Experiment { name: "figure-9", title: "Latency over time, trace of Table 3", cases: figures::figure_9 },
        Experiment { name: "figure-10", title: "Jitter over time, 20 nodes", cases: figures::figure_10 },
        Experiment { name: "headline", title: "Latency and jitter of all systems", cases: tables::headline },
        Experiment { name: "links", title: "What the variable bucket saves, over links", cases: tables::links },
        Experiment { name: "gamma", title: "Latency against Gamma", cases: tables::gamma },
        Experiment { name: "cap", title: "Latency and timeouts against the cap", cases: tables::cap },
        Experiment { name: "bound", title: "The best bucket by dynamic programming", cases: tables::bound },
        Experiment { name: "rule", title: "The printed rule beside the right one", cases: tables::rule },
        Experiment { name: "tunnel", title: "The same video in a tunnel of buckets", cases: tables::tunnel },
    ],
    #[cfg(target_os = "linux")]
    lab: &[],
};
