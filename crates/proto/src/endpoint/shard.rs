//! Shards: several endpoints behind one address, each with connections of its own and nothing in common (wire.md section 1.2).
//!
//! The first two bytes of a connection id, as a number modulo the number of shards, say whose it is. A shard gives out only ids of its own, so
//! that whoever holds a datagram, be it a driver or a balancer in front of several machines, finds the shard without asking any of them.

use core::num::NonZeroU16;

use crate::wire::ConnectionId;

/// One of several endpoints behind one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u16,
    of: NonZeroU16,
}

impl Shard {
    /// The only one.
    pub const ALONE: Self = Self { index: 0, of: NonZeroU16::MIN };

    /// Shard `index` of so many; none unless `index` is less.
    pub fn new(index: u16, of: NonZeroU16) -> Option<Self> {
        (index < of.get()).then_some(Self { index, of })
    }

    /// Which of so many shards the connection of `id` belongs to.
    pub fn of_id(id: &ConnectionId, of: NonZeroU16) -> u16 {
        let [a, b, ..] = id.0;
        u16::from_be_bytes([a, b]) % of
    }

    /// Makes a random id one of this shard; all that is random about it but the shard stays so.
    pub(super) fn mark(self, id: &mut ConnectionId) {
        let [a, b, rest @ ..] = id.0;
        // As many numbers for each shard: what is left over at the top is not used.
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
