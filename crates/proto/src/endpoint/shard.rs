//! Shards: several endpoints behind one address, each with its own connections and no shared state
//! (docs/wire.md section 1.2).
//!
//! The first two bytes of a connection id, as a number modulo the number of shards, name its shard. A shard
//! gives out only its own ids. So a driver, or a load balancer in front of several machines, finds the shard
//! of a datagram from the datagram alone.

use core::num::NonZeroU16;

use crate::wire::ConnectionId;

/// One of several endpoints behind one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u16,
    of: NonZeroU16,
}

impl Shard {
    /// The only shard.
    pub const ALONE: Self = Self { index: 0, of: NonZeroU16::MIN };

    /// Shard `index` of `of`; `None` if `index` is not below `of`.
    pub fn new(index: u16, of: NonZeroU16) -> Option<Self> {
        (index < of.get()).then_some(Self { index, of })
    }

    /// The index of the shard, among `of`, to which the connection of `id` belongs.
    pub fn of_id(id: &ConnectionId, of: NonZeroU16) -> u16 {
        let [a, b, ..] = id.0;
        u16::from_be_bytes([a, b]) % of
    }

    /// Changes a random id into one of this shard. Everything else in the id stays random.
    pub(super) fn mark(self, id: &mut ConnectionId) {
        let [a, b, rest @ ..] = id.0;
        // Each shard gets the same number of values; the remainder at the top is not used.
        let turns = u16::MAX / self.of;
        let number = u16::from_be_bytes([a, b]) % NonZeroU16::new(turns).unwrap_or(NonZeroU16::MIN);
        let [a, b] = (number * self.of.get() + self.index).to_be_bytes();
        let [c, d, e, f, g, h] = rest;
        id.0 = [a, b, c, d, e, f, g, h];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_of_a_shard_leads_to_it() {
        for of in [1, 2, 3, 4, 7, 256, 4_096, u16::MAX].map(|of| NonZeroU16::new(of).unwrap()) {
            for index in [0, 1, of.get() / 2, of.get() - 1].into_iter().filter(|&index| index < of.get()) {
                let shard = Shard::new(index, of).unwrap();
                for number in [0, 1, 2, 3, 0x7fff, 0x8000, 0xfffe, 0xffff_u16] {
                    let [a, b] = number.to_be_bytes();
                    let mut id = ConnectionId([a, b, 3, 4, 5, 6, 7, 8]);
                    shard.mark(&mut id);
                    assert_eq!(
                        (Shard::of_id(&id, of), &id.0[2..]),
                        (index, &[3, 4, 5, 6, 7, 8][..]),
                        "{number} of {of}"
                    );
                }
            }
            assert_eq!(Shard::new(of.get(), of), None);
        }
    }
}
