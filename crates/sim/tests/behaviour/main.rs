//! One behaviour of a connected pair per file, in virtual time.

mod ahead;
mod bucket;
mod capacity;
mod clocks;
mod close;
mod crowd;
mod deadlines;
mod ecn;
mod every;
mod floor;
mod handshake;
mod hostile;
mod jobs;
mod keys;
mod longfat;
mod looks;
mod lying;
mod messages;
mod mtu;
mod own_rate;
mod patience;
mod pipeline;
mod policy;
mod profiles;
mod queues;
mod rcdp;
mod records;
mod replay;
mod resets;
mod roam;
mod silence;
mod small;
mod spans;
mod sphinx;
mod steps;
mod streams;
mod target;
mod trace;
mod turns;
mod video;

use core::time::Duration;
use std::path::Path;

use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::Flow;
use tidewire_sim::pair::End;
use tidewire_sim::report::{Report, Trial};
use tidewire_sim::settings::Direction;

/// 25 Mbit/s and 60 ms, changed by `settings` for each direction.
fn link(settings: &[(Direction, &str, &str)]) -> DuplexConfig {
    let mut link = DuplexConfig::default();
    let base = [(Direction::Both, "rate", "25mbit"), (Direction::Both, "rtt", "60ms")];
    for (direction, key, text) in base.iter().chain(settings) {
        link.set(*direction, key, text, Path::new("")).unwrap();
    }
    link
}

const RTT: Duration = Duration::from_millis(60);

/// Bulk from near to far.
fn bulk(bytes: u64, settings: &[(Direction, &str, &str)]) -> Trial {
    Trial::new(link(settings), vec![Flow::bulk(End::Near, bytes)], 7)
}

fn whole(report: &Report) {
    assert!(report.done && report.closed == [None, None], "{report:?}");
}
