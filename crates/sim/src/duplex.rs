//! A link between two ends: one [`Link`] forward, where the data of the main job goes, and one back.
//!
//! The two directions share nothing but the round trip: capacity, loss and randomness are each one's own.

use core::time::Duration;

use tidewire_proto::Time;

use crate::link::{Link, LinkConfig, opposite};

/// Both directions of a link. The default is two perfect ones.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DuplexConfig {
    /// From the end that sends the data.
    pub forward: LinkConfig,
    /// Towards it.
    pub back: LinkConfig,
}

impl Default for DuplexConfig {
    fn default() -> Self {
        Self::symmetric(LinkConfig::default())
    }
}

impl DuplexConfig {
    /// Both directions like `link`, with seeds of their own that follow from its seed.
    pub fn symmetric(link: LinkConfig) -> Self {
        let seed = link.seed;
        let mut both = Self { forward: link.clone(), back: link };
        both.set_seed(seed);
        both
    }

    /// Splits `rtt` evenly into the two delays; an odd nanosecond goes back.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.forward.delay = rtt / 2;
        self.back.delay = rtt - rtt / 2;
    }

    /// The least round trip: the two delays.
    pub fn rtt(&self) -> Duration {
        self.forward.delay.saturating_add(self.back.delay)
    }

    /// Makes all randomness follow from `seed`, independently in the two directions.
    pub fn set_seed(&mut self, seed: u64) {
        self.forward.seed = seed;
        self.back.seed = opposite(seed);
    }
}

/// The two directions at work.
#[derive(Clone, Debug)]
pub struct DuplexLink<T> {
    /// From the end that sends the data.
    pub forward: Link<T>,
    /// Towards it.
    pub back: Link<T>,
}

impl<T> DuplexLink<T> {
    /// Two links at rest. Where a direction names no queue, it holds one round trip of its capacity.
    pub fn new(config: &DuplexConfig) -> Self {
        let link = |direction| Link::with_round_trip(direction, config.rtt());
        Self { forward: link(&config.forward), back: link(&config.back) }
    }

    /// When the earlier of the two has a delivery; `None` when nothing is under way.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.forward.poll_timeout().into_iter().chain(self.back.poll_timeout()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Capacity, Fate};
    use tidewire_units::Rate;

    #[test]
    fn the_round_trip_is_split_evenly_and_sizes_the_queues() {
        let capacity = Capacity::Fixed(Rate::from_bits_per_second(8_000_000).unwrap());
        let mut config = DuplexConfig::symmetric(LinkConfig { capacity, ..LinkConfig::default() });
        config.set_rtt(Duration::from_nanos(60_000_001));
        assert_eq!(config.forward.delay, Duration::from_nanos(30_000_000));
        assert_eq!(config.rtt(), Duration::from_nanos(60_000_001));

        // 1 byte a microsecond for 60 ms: 60 packets of 1,000 bytes wait, and one is in service.
        let mut duplex = DuplexLink::new(&config);
        let carried = (0..100).filter(|_| matches!(duplex.forward.send(Time::ZERO, 972, ()), Fate::Carried { .. }));
        assert_eq!(carried.count(), 61);
        assert_eq!(duplex.poll_timeout(), Some(Time::from_millis(31)));
        assert_eq!(duplex.back.stats().offered, 0);
    }

    #[test]
    fn one_seed_gives_the_two_directions_different_fates() {
        let config = DuplexConfig::symmetric(LinkConfig { seed: 9, ..LinkConfig::default() });
        assert_eq!(config.forward.seed, 9);
        assert_ne!(config.back.seed, 9);
    }
}
