//! A link between two ends: one [`Link`] forward, for the data of the larger flow, and one back.
//!
//! The two directions share only the round trip. Capacity, loss and randomness are separate.

use core::time::Duration;

use tidewire_proto::Time;

use crate::link::{Link, LinkConfig, opposite, share_media};

/// Both directions of a link. By default both are perfect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DuplexConfig {
    /// The direction from the end that sends the data.
    pub forward: LinkConfig,
    /// The direction to the end that sends the data.
    pub back: LinkConfig,
}

impl Default for DuplexConfig {
    fn default() -> Self {
        Self::symmetric(LinkConfig::default())
    }
}

impl DuplexConfig {
    /// Makes both directions like `link`, with different seeds derived from its seed.
    pub fn symmetric(link: LinkConfig) -> Self {
        let seed = link.seed;
        let mut both = Self { forward: link.clone(), back: link };
        both.set_seed(seed);
        both
    }

    /// Splits `rtt` evenly into the two delays. An odd nanosecond goes to the way back.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.forward.delay = rtt / 2;
        self.back.delay = rtt - rtt / 2;
    }

    /// The least round trip: the sum of the two delays.
    pub fn rtt(&self) -> Duration {
        self.forward.delay.saturating_add(self.back.delay)
    }

    /// Derives all randomness from `seed`, independently for the two directions.
    pub fn set_seed(&mut self, seed: u64) {
        self.forward.seed = seed;
        self.back.seed = opposite(seed);
    }
}

/// The two directions in operation.
#[derive(Clone, Debug)]
pub struct DuplexLink<T> {
    /// The direction from the end that sends the data.
    pub forward: Link<T>,
    /// The direction to the end that sends the data.
    pub back: Link<T>,
}

impl<T> DuplexLink<T> {
    /// Makes two idle links. A direction without a configured queue gets a queue of one round trip.
    pub fn new(config: &DuplexConfig) -> Self {
        let link = |direction| Link::with_round_trip(direction, config.rtt());
        let (mut forward, mut back) = (link(&config.forward), link(&config.back));
        share_media([&mut forward, &mut back]);
        Self { forward, back }
    }

    /// Makes both directions open ends; see [`Link::open`].
    pub fn open(&mut self) {
        self.forward.open();
        self.back.open();
    }

    /// When the earlier of the two directions has a delivery; `None` if nothing is in flight.
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

        // One byte per microsecond for 60 ms: 60 packets of 1,000 bytes wait, and one is in service.
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
