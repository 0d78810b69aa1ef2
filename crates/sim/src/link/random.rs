//! Randomness by index: draw number `index` of a stream is a function of (seed, stream, index) alone.
//!
//! Each impairment of a link has its own stream and draws by the serial number of the datagram. So switching
//! off loss does not change the jitter, and the fate of datagram 1,000 does not depend on the other
//! impairments. The generator is [`SplitMix64`], whose n-th output is a hash of n times its step.

use core::time::Duration;

use tidewire_codec::SplitMix64;
use tidewire_units::Probability;

use super::config::nanos;

/// The decision that a stream of draws makes. The number distinguishes the streams of one link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Loss = 1,
    Jitter = 2,
    Reorder = 3,
    Duplicate = 4,
    Corrupt = 5,
    Damage = 6,
    /// Duration of a coding job; not part of a link.
    Job = 7,
    /// Sizes of the frames of a computed video; not part of a link.
    Video = 8,
    /// Scenes of a computed video, and pauses of a source; not part of a link.
    Scenes = 9,
}

/// A sequence of independent draws, addressed by index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    key: u64,
}

impl Stream {
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Self {
        Self { key: SplitMix64::mix(SplitMix64::mix(seed).wrapping_add(purpose as u64)) }
    }

    /// Draw `index`: 64 uniform bits.
    pub(super) fn bits(self, index: u64) -> u64 {
        // Output `index` of the sequence from `key`.
        SplitMix64::new(self.key.wrapping_add(index.wrapping_mul(SplitMix64::STEP))).bits()
    }

    /// Draw `index`: uniform in `[0, 1)`, a multiple of 2^-53.
    pub(crate) fn unit(self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Whether the event of probability `p` happens at draw `index`. Exact at 0 and 1.
    pub(super) fn happens(self, index: u64, p: Probability) -> bool {
        p != Probability::ZERO && self.unit(index) < p.value()
    }

    /// Draw `index`: uniform over the whole nanoseconds of `[0, most]`.
    pub(crate) fn up_to(self, index: u64, most: Duration) -> u64 {
        // The high half of a 64 x 65 bit product, which is at most `most`.
        let choices = u128::from(nanos(most)) + 1;
        ((u128::from(self.bits(index)) * choices) >> 64) as u64
    }
}

/// A seed for the opposite direction of the link seeded with `seed`.
pub(crate) fn opposite(seed: u64) -> u64 {
    SplitMix64::mix(seed ^ SplitMix64::STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_of_a_link_and_of_its_opposite_are_unrelated() {
        use Purpose::{Corrupt, Damage, Duplicate, Jitter, Loss, Reorder};
        let purposes = [Loss, Jitter, Reorder, Duplicate, Corrupt, Damage];
        let seeds = [1, 2, opposite(1), opposite(2)];
        let streams: Vec<Stream> =
            seeds.iter().flat_map(|&seed| purposes.map(|purpose| Stream::new(seed, purpose))).collect();
        for (i, a) in streams.iter().enumerate() {
            for b in &streams[..i] {
                // Two fair coins agree half of the time. Four sigma of 1,000 throws is 63.
                let agree = (0..1_000).filter(|&index| (a.bits(index) ^ b.bits(index)) >> 63 == 0).count();
                assert!(agree.abs_diff(500) < 63, "{agree}");
            }
        }
    }

    #[test]
    fn draws_up_to_a_bound_reach_both_ends_and_stay_inside() {
        let stream = Stream::new(7, Purpose::Jitter);
        let most = Duration::from_nanos(3);
        let mut seen = [0u32; 4];
        for index in 0..4_000 {
            seen[stream.up_to(index, most) as usize] += 1;
        }
        // Four equally likely values, 1,000 expected each. Four sigma is 110.
        assert!(seen.iter().all(|&n| (890..=1_110).contains(&n)), "{seen:?}");
        assert_eq!(stream.up_to(0, Duration::ZERO), 0);
    }
}
