//! Repair symbols computed a few at a time, for a span that moves on from one to the next.
//!
//! Under steady loss a sender sends a repair symbol after every few source symbols, each over the newest of
//! them, so these spans differ only at their ends. Four sums share a pass over the symbols and take little
//! more than half the time of four passes. When a repair is sent, the symbols that the span gained and lost
//! since then are added to its sum. [`Encoder`] makes and takes the sums; a lane keeps one [`Prepared`].
//! Invariant: sum `j` is the [`Code::Rlc`] repair symbol `key + j` over `first..end`, and zero after the
//! longest symbol that it ever mixed.

use alloc::vec;
use alloc::vec::Vec;

use crate::kernel::LINE;
use crate::mix::{add, combine_repairs};
use crate::ring::aligned;
use crate::{Code, EncodeError, Encoder, RepairId, Row, SourceId};

/// Number of sums made at once: as many as the kernel keeps in registers.
const SUMS: usize = 4;

/// The most symbols by which a span may differ at either end to use a sum. Each costs one product; using the
/// sum saves about 0.4 of the products over the span.
const MOST_MOVED: u64 = 16;

/// [`Code::Rlc`] repair symbols of a few keys over one span, to be sent one by one.
///
/// The first ones allocate memory for four symbols; later ones allocate nothing.
#[derive(Default)]
pub struct Prepared {
    first: u64,
    end: u64,
    /// Key of the next repair symbol to send.
    key: u16,
    left: usize,
    memory: Vec<u8>,
}

impl core::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let span = SourceId(self.first)..SourceId(self.end);
        f.debug_struct("Prepared").field("span", &span).field("left", &self.left).finish_non_exhaustive()
    }
}

impl Prepared {
    /// How many repair symbols are made at a time, which is also how many keys they use.
    pub const COUNT: u16 = SUMS as u16;

    /// The key of the repair symbol that is ready for a span, if there is one. Both ends of the span may lie
    /// some symbols further on than those of the prepared span. A span of one symbol has none: its repair
    /// symbol is that symbol.
    pub fn key_for(&self, first: SourceId, count: u16) -> Option<u16> {
        let end = first.plus(count.into()).0;
        let is_near = |then: u64, now: u64| then <= now && now - then <= MOST_MOVED;
        let is_ready = self.left > 0 && is_near(self.first, first.0) && is_near(self.end, end) && first.0 < self.end;
        (is_ready && count > 1 && self.end - self.first > 1).then_some(self.key)
    }
}

impl Encoder {
    /// Allocates the memory that [`prepare`](Self::prepare) needs, if it is not there yet.
    pub fn reserve_prepared(&self, prepared: &mut Prepared) {
        if prepared.memory.is_empty() {
            prepared.memory = vec![0; SUMS * self.slot_len() + LINE];
        }
    }

    /// Computes the [`Code::Rlc`] repair symbols of the keys `id.key` to `id.key + 3` over one span. They
    /// replace the ones prepared before. Send them soon with [`write_prepared`](Self::write_prepared).
    ///
    /// # Errors
    /// The span is not completely inside the window, or the keys run past the last. Nothing is changed.
    pub fn prepare(&self, prepared: &mut Prepared, id: RepairId) -> Result<(), EncodeError> {
        Code::Rlc.check_keys(id, SUMS)?;
        let len = self.repair_len(id.first, id.count)?;
        let slot_len = self.slot_len();
        self.reserve_prepared(prepared);
        let start = aligned(&prepared.memory);
        let mut sums = prepared.memory[start..].chunks_exact_mut(slot_len);
        let mut sums = [(); SUMS].map(|()| sums.next().unwrap_or_default());
        sums.iter_mut().for_each(|sum| sum[len..].fill(0));
        let symbols = id.span().map(|source| &self.slot(SourceId(source))[..len]);
        combine_repairs(Code::Rlc, id, &mut sums, len, symbols);
        let first = id.first.0;
        let end = first + u64::from(id.count);
        (prepared.first, prepared.end, prepared.key, prepared.left) = (first, end, id.key, SUMS);
        Ok(())
    }

    /// Does what [`write_repair`](Self::write_repair) does for [`Code::Rlc`]. It uses a prepared sum if that
    /// has this key and a span near this one, and the window still holds the symbols to be subtracted from
    /// it.
    ///
    /// # Errors
    /// The same as for [`write_repair`](Self::write_repair).
    pub fn write_prepared(&self, prepared: &mut Prepared, id: RepairId, out: &mut [u8]) -> Result<usize, EncodeError> {
        let needed = self.repair_len(id.first, id.count)?;
        if out.len() < needed {
            return Err(EncodeError::OutputTooShort { len: out.len(), needed });
        }
        let lost = prepared.first..id.first.0;
        if prepared.key_for(id.first, id.count) != Some(id.key) || lost.start < self.window().start.0 {
            // The remaining sums mix symbols that are gone. None of their keys may be offered again, or each
            // later repair would be the same one.
            if lost.start < self.window().start.0 {
                prepared.left = 0;
            }
            return self.write_repair(Code::Rlc, id, out);
        }
        let slot_len = self.slot_len();
        let at = aligned(&prepared.memory) + (SUMS - prepared.left) * slot_len;
        let out = &mut out[..needed];
        out.copy_from_slice(&prepared.memory[at..][..needed]);
        let gained = prepared.end..id.first.0 + u64::from(id.count);
        // In a field of characteristic 2, adding a symbol a second time removes it.
        for moved in [lost, gained] {
            let row = Row::hashed(id.key, SourceId(moved.start), (moved.end - moved.start) as u16);
            add(out, row.zip(moved).map(|(factor, source)| (factor, &self.slot(SourceId(source))[..needed])));
        }
        prepared.left -= 1;
        prepared.key = prepared.key.wrapping_add(1);
        Ok(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(encoder: &mut Encoder, count: u64) {
        for n in 0..count {
            let symbol: Vec<u8> =
                (0..1 + (n * 37 + encoder.window().end.0 * 11) % 64).map(|i| (i * n + i) as u8).collect();
            encoder.push(&symbol).unwrap();
        }
    }

    /// The spans stand still, move at either end or at both, by one or by many symbols, and become shorter.
    #[test]
    fn no_key_is_named_twice_when_the_window_has_moved_past_what_was_prepared() {
        let mut encoder = Encoder::new(64, 64);
        push(&mut encoder, 30);
        let mut prepared = Prepared::default();
        let mut id = RepairId { first: SourceId(2), count: 28, key: 7 };
        encoder.prepare(&mut prepared, id).unwrap();
        encoder.release_before(SourceId(5));
        (id.first, id.count) = (SourceId(5), 25);
        assert_eq!(prepared.key_for(id.first, id.count), Some(7));
        let (mut then, mut now) = ([9; 64], [8; 64]);
        let len = encoder.write_prepared(&mut prepared, id, &mut then).unwrap();
        assert_eq!(encoder.write_repair(Code::Rlc, id, &mut now), Ok(len));
        assert_eq!(then[..len], now[..len]);
        assert_eq!(prepared.key_for(id.first, id.count), None);
    }

    #[test]
    fn prepared_repairs_are_those_written_afterwards() {
        for (lost, gained) in [(0, 0), (0, 1), (1, 0), (1, 1), (3, 4), (5, 5), (5, 0), (0, 5)] {
            let mut encoder = Encoder::new(64, 64);
            push(&mut encoder, 30);
            let mut prepared = Prepared::default();
            let mut id = RepairId { first: SourceId(2), count: 28, key: 7 };
            encoder.prepare(&mut prepared, id).unwrap();
            for key in 7..7 + Prepared::COUNT {
                id.key = key;
                assert_eq!(prepared.key_for(id.first, id.count), Some(key));
                let (mut then, mut now) = ([9; 64], [8; 64]);
                let len = encoder.write_prepared(&mut prepared, id, &mut then).unwrap();
                assert_eq!(encoder.write_repair(Code::Rlc, id, &mut now), Ok(len));
                assert_eq!(then[..len], now[..len], "key {key}, {lost} lost and {gained} gained each time");
                push(&mut encoder, gained.into());
                id = RepairId { first: id.first.plus(lost.into()), count: id.count + gained - lost, ..id };
            }
            assert_eq!(prepared.key_for(id.first, id.count), None);
        }
    }

    #[test]
    fn what_is_not_ready_is_made_anew() {
        let mut encoder = Encoder::new(64, 128);
        push(&mut encoder, 100);
        let mut prepared = Prepared::default();
        let id = RepairId { first: SourceId(4), count: 40, key: 1 };
        encoder.prepare(&mut prepared, id).unwrap();
        for (base, first, count) in [(0, 3, 40), (0, 4, 39), (0, 21, 40), (0, 4, 57), (0, 60, 20), (6, 6, 40)] {
            let id = RepairId { first: SourceId(first), count, ..id };
            encoder.release_before(SourceId(base));
            let (mut then, mut now) = ([9; 64], [8; 64]);
            let len = encoder.write_prepared(&mut prepared, id, &mut then).unwrap();
            let left = if base == 0 { SUMS } else { 0 };
            assert_eq!((encoder.write_repair(Code::Rlc, id, &mut now), prepared.left), (Ok(len), left));
            assert_eq!(then[..len], now[..len], "{id:?}");
        }
        let id = RepairId { first: SourceId(6), ..id };
        let too_short = EncodeError::OutputTooShort { len: 3, needed: encoder.repair_len(id.first, id.count).unwrap() };
        assert_eq!(encoder.write_prepared(&mut prepared, id, &mut [0; 3]), Err(too_short));
        assert!(encoder.prepare(&mut prepared, RepairId { key: 65_533, ..id }).is_err());
        assert!(encoder.prepare(&mut prepared, RepairId { first: SourceId(80), ..id }).is_err());
        assert_eq!(prepared.left, 0);
    }
}
