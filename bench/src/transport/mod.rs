//! Part `transport`: how fast one connection is. It runs over loopback beside `quinn`, and in process with a
//! fifth of its packets lost. Other suites measure the cost of the redundancy policy alone, and the gain from
//! several sockets of a listener.
//!
//! The codec's suites time single calls; these run whole transfers. A transfer is a round, and compared
//! transfers take turns. Every byte that arrives is counted, and its place in a known sequence is checked.

mod loopback;
mod pair;
mod policy;
mod process;
mod quinn;
mod shards;
mod tidewire;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::report::Report;
use crate::timing::Times;

/// A suite: its name on the command line and its function.
pub type Suite = (&'static str, fn(Work, &mut Report));

/// All suites.
pub const SUITES: &[Suite] =
    &[("loopback", loopback::run), ("process", process::run), ("policy", policy::run), ("shards", shards::run)];

/// The amount of data to transfer.
#[derive(Clone, Copy)]
pub struct Work {
    /// Bytes of one transfer.
    pub bytes: u64,
    /// Number of transfers of each kind. It is odd, so that the median is one of them.
    pub rounds: usize,
}

impl Work {
    /// For figures: long enough that start-up does not count.
    pub const FULL: Self = Self { bytes: 300_000_000, rounds: 7 };
    /// For a check that everything runs; its figures mean nothing.
    pub const QUICK: Self = Self { bytes: 5_000_000, rounds: 1 };
}

/// The times of a transfer.
#[derive(Clone, Copy, Default)]
struct Taken {
    /// From the first byte written to the answer that the last byte was read.
    wall: Duration,
    /// CPU time of the sending thread and of the receiving thread, from connecting on.
    sender: Duration,
    receiver: Duration,
}

/// Seconds of each round, of one column of what was taken.
fn seconds(taken: &[Taken], column: impl Fn(&Taken) -> Duration) -> Times {
    Times { rounds: taken.iter().map(|taken| column(taken).as_secs_f64()).collect() }
}

/// CPU time that this thread has used.
fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// The bytes of a transfer. The sequence repeats every 64 KiB, so that reader and writer need no state except
/// the position.
struct Pattern {
    block: Vec<u8>,
}

impl Pattern {
    /// A power of two of bytes: no packet's worth divides it, so that a packet in the wrong place shows.
    const BLOCK: usize = 1 << 16;

    fn new() -> Self {
        let byte = |n: usize| (n.wrapping_mul(0x9e37_79b9) >> 13) as u8;
        // Twice, so that a block from any place in it is one slice.
        Self { block: (0..2 * Self::BLOCK).map(|n| byte(n % Self::BLOCK)).collect() }
    }

    /// At most `len` bytes to write at `place`.
    fn at(&self, place: u64, len: usize) -> &[u8] {
        &self.block[place as usize % Self::BLOCK..][..len.min(Self::BLOCK)]
    }

    /// Checks the bytes that were read at `place`.
    ///
    /// # Panics
    /// A byte differs from the one written there.
    fn check(&self, place: u64, read: &[u8]) {
        let mut place = place;
        for piece in read.chunks(Self::BLOCK) {
            assert!(piece == self.at(place, piece.len()), "wrong bytes behind byte {place}");
            place += piece.len() as u64;
        }
    }
}
