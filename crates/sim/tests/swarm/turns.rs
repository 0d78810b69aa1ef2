//! Runs in turns of a millisecond, and what the policies of both ends look at: blocks and repairs in flight,
//! for each wake and each packet that an end sends, or whose fate it learns.
//!
//! The mean over a run hides a walk over all blocks or repairs if it happens seldom. `behaviour/looks.rs` has
//! the same figure of chosen links and policies, `crates/proto/tests/hostile/looks.rs` that of hostile peers.

use core::time::Duration;

use tidewire_figures::{ascending, quantile};
use tidewire_proto::Time;
use tidewire_sim::pair::End;
use tidewire_sim::report::Run;

/// A run and what was counted in its turns.
#[derive(Debug)]
pub struct Turns {
    pub run: Run,
    /// Looks of each end, and wakes and its packets that were sent, acknowledged or lost, up to now and up to
    /// the turns in `each`.
    now: [(u64, u64); 2],
    before: [(u64, u64); 2],
    /// Looks per packet, of each end in as many turns as [`PACKETS`] take.
    each: Vec<f64>,
}

impl Turns {
    pub fn new(run: Run) -> Self {
        Self { run, now: Default::default(), before: Default::default(), each: Vec::new() }
    }

    /// Runs until `until`. Returns whether nothing is left to do.
    pub fn until(&mut self, until: Time) -> bool {
        loop {
            let Some(next) = self.run.pair.next_moment().filter(|&next| next <= until) else {
                return self.run.until(until);
            };
            let end = Time(next.0.max(self.run.pair.now().0).next_multiple_of(TURN.as_nanos() as u64)).min(until);
            let is_over = self.run.until(end);
            self.count();
            // Time stands still, or the trial has reached its limit.
            if is_over || self.run.pair.now() < end || end == until {
                return is_over;
            }
        }
    }

    fn count(&mut self) {
        for end in [End::Near, End::Far] {
            let Some((_, connection)) = self.run.pair.endpoint(end).connections().next() else { continue };
            let (looks, packets) = (connection.looks(), connection.stats().packets);
            // A wake at which nothing may be sent asks the policies too.
            let busy = packets.sent + packets.acked + packets.lost + self.run.pair.counted().wakes;
            let now = &mut self.now[end as usize];
            // A lane whose layout POLICY changes counts anew.
            *now = (looks.max(now.0), busy);
            self.finish(end, PACKETS);
        }
    }

    /// Ends the turns of an end if they have at least so many packets and wakes.
    fn finish(&mut self, end: End, packets: u64) {
        let (now, before) = (self.now[end as usize], &mut self.before[end as usize]);
        if now.1 - before.1 >= packets {
            self.each.push((now.0 - before.0) as f64 / (now.1 - before.1).max(PACKETS) as f64);
            *before = now;
        }
    }

    /// Looks of both ends.
    pub fn looks(&self) -> u64 {
        self.now[0].0 + self.now[1].0
    }

    /// Looks per packet in all turns but one of a thousand.
    ///
    /// # Errors
    /// They are more than [`MOST`].
    pub fn most(&mut self) -> Result<f64, String> {
        for end in [End::Near, End::Far] {
            self.finish(end, 0);
        }
        let most = quantile(&ascending(self.each.iter().copied()), 0.999).unwrap_or(0.0);
        if most > MOST {
            return Err(format!("{most} looks at blocks and repairs for each of {PACKETS} packets and wakes"));
        }
        Ok(most)
    }
}

/// A turn of a driver (`behaviour/turns.rs`).
const TURN: Duration = Duration::from_millis(1);
/// Packets and wakes that turns are counted over. After a silence a policy looks once at each block that
/// waits, which is much for the one packet that follows. Chosen.
const PACKETS: u64 = 32;
/// Bound of [`Turns::most`]. Of the 52 fixed seeds the most is 47 (6:1800).
const MOST: f64 = 128.0;
