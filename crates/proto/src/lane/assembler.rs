//! The unread bytes of all streams of a connection, held in pieces: one list, sorted by stream and offset.
//!
//! At first a piece does not own its bytes: it names their place in the lane's ring. They are copied out only
//! if the ring needs the slot before the application has read them. Every byte of a stream is in exactly one
//! symbol, so pieces never overlap.
//!
//! The list is divided into blocks of up to [`BLOCK`] pieces, like the lowest level of a B-tree. Finding a
//! place takes two binary searches. An insertion or a removal moves the pieces of one block, and rarely the
//! list of blocks, whatever the peer sends and in whatever order. Emptied blocks are kept for reuse, so the
//! steady state allocates nothing. There are at most two blocks, plus one for each `BLOCK / 4` pieces that
//! were held at the same time.

use std::collections::VecDeque;

use tidewire_codec::SourceId;

use crate::lane::store::Store;

/// Maximum number of pieces in a block. Chosen: moving half a block takes about as long as the searches.
const BLOCK: usize = 64;

/// Pieces that were copied out of the ring are joined up to this many bytes, so that many small unread
/// writes do not cost a piece each. The limit exists because the memory of a piece is freed only when all of
/// it was read.
const JOINED: usize = 16 << 10;

/// Where the bytes of a piece are.
#[derive(Debug)]
enum Place {
    /// In the ring: the bytes begin at `at` in the symbol `id`.
    Slot { id: SourceId, at: u32 },
    /// Copied out of the ring: the bytes begin at `at`.
    Own { bytes: Vec<u8>, at: u32 },
}

#[derive(Debug)]
struct Piece {
    stream: u64,
    offset: u64,
    len: u32,
    place: Place,
}

impl Piece {
    fn key(&self) -> (u64, u64) {
        (self.stream, self.offset)
    }

    fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    /// Whether the bytes of `next` follow those of this piece.
    fn is_followed_by(&self, next: &Self) -> bool {
        self.stream == next.stream && self.end() == next.offset
    }

    fn bytes<'a>(&'a self, store: &'a Store) -> Option<&'a [u8]> {
        match &self.place {
            Place::Slot { id, at } => store.symbol(*id)?.get(*at as usize..)?.get(..self.len as usize),
            Place::Own { bytes, at } => bytes.get(*at as usize..),
        }
    }
}

/// Bytes of a stream, as a frame names them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub stream: u64,
    pub offset: u64,
    pub len: usize,
}

impl Extent {
    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }
}

/// The bytes were received before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap;

/// The unread pieces; see the module. No block is empty.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    blocks: VecDeque<VecDeque<Piece>>,
    spare: Vec<VecDeque<Piece>>,
    in_slots: InSlots,
    /// Number of bytes held as copies.
    own_bytes: usize,
}

/// How many pieces have their bytes in each symbol of the ring.
#[derive(Debug, Default)]
struct InSlots {
    /// The lowest symbol that is counted. Slots of lower ones are reused.
    first: u64,
    counts: VecDeque<u8>,
}

impl InSlots {
    fn add(&mut self, id: SourceId) {
        let Some(index) = id.0.checked_sub(self.first) else { return };
        let index = index as usize;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
    }

    fn remove(&mut self, id: SourceId) {
        if let Some(count) = id.0.checked_sub(self.first).and_then(|index| self.counts.get_mut(index as usize)) {
            *count -= 1;
        }
    }

    /// The lowest symbol below `end` in which pieces have their bytes.
    fn lowest_below(&self, end: SourceId) -> Option<SourceId> {
        let most = usize::try_from(end.0.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let index = self.counts.iter().take(most).position(|&count| count > 0)?;
        Some(SourceId(self.first + index as u64))
    }

    fn forget_before(&mut self, id: SourceId) {
        let gone = id.0.saturating_sub(self.first);
        self.counts.drain(..usize::try_from(gone).unwrap_or(usize::MAX).min(self.counts.len()));
        self.first += gone;
    }
}

/// A position in the list. The position after the last piece is `(number of blocks, 0)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    block: usize,
    index: usize,
}

impl Assembler {
    /// Adds bytes that are in symbol `id` from position `at` on.
    pub(crate) fn insert(&mut self, extent: Extent, id: SourceId, at: usize) -> Result<(), Overlap> {
        let place = self.place_for(extent)?;
        self.put_piece(place, extent, Place::Slot { id, at: at as u32 });
        Ok(())
    }

    /// Adds a copy of bytes of a stream.
    pub(crate) fn insert_copy(&mut self, stream: u64, offset: u64, bytes: &[u8]) -> Result<(), Overlap> {
        let extent = Extent { stream, offset, len: bytes.len() };
        let place = self.place_for(extent)?;
        let joined = self.before(place).filter(|&before| self.append(before, extent, bytes));
        let at = joined.unwrap_or_else(|| self.put_piece(place, extent, Place::Own { bytes: bytes.to_vec(), at: 0 }));
        self.join(at, self.behind(at));
        Ok(())
    }

    /// Appends a copy of bytes to the copied piece at `at`, if they follow it and it does not get too long.
    /// Returns whether it did.
    fn append(&mut self, at: At, extent: Extent, bytes: &[u8]) -> bool {
        let piece = self.piece_mut(at);
        let (follows, len) = (piece.stream == extent.stream && piece.end() == extent.offset, piece.len);
        let Place::Own { bytes: all, at } = &mut piece.place else { return false };
        // The bytes of the piece that were read still take memory.
        if !follows || *at as usize + len as usize + bytes.len() > JOINED {
            return false;
        }
        all.extend_from_slice(bytes);
        piece.len += bytes.len() as u32;
        self.own_bytes += bytes.len();
        true
    }

    /// Copies bytes out of the symbol `id`, whose slot is about to be reused, if they are still unread and in
    /// that slot.
    pub(crate) fn copy_out(&mut self, extent: Extent, id: SourceId, store: &Store) {
        let Some(at) = self.before(self.find((extent.stream, extent.end()))) else { return };
        let piece = self.piece_mut(at);
        if piece.stream != extent.stream || piece.end() != extent.end() {
            return;
        }
        if matches!(piece.place, Place::Slot { id: held, .. } if held == id) {
            let bytes = piece.bytes(store).unwrap_or_default().to_vec();
            self.own_bytes += bytes.len();
            self.in_slots.remove(id);
            self.piece_mut(at).place = Place::Own { bytes, at: 0 };
            self.join_around(at);
        }
    }

    /// The end of the bytes of a stream that are here without a gap from `offset` on.
    pub(crate) fn whole_until(&self, stream: u64, offset: u64) -> u64 {
        let (mut at, mut end) = (self.find((stream, offset)), offset);
        while let Some(piece) = self.get(at).filter(|piece| piece.key() == (stream, end)) {
            end = piece.end();
            at = self.behind(at);
        }
        end
    }

    /// The bytes of a stream from `offset` to the end of their piece.
    pub(crate) fn chunk<'a>(&'a self, stream: u64, offset: u64, store: &'a Store) -> Option<&'a [u8]> {
        self.get(self.find((stream, offset))).filter(|piece| piece.key() == (stream, offset))?.bytes(store)
    }

    /// Removes the first `n` bytes of the chunk at `offset`, which were read. Returns how many there were, at
    /// most `n`.
    pub(crate) fn consume(&mut self, stream: u64, offset: u64, n: usize) -> usize {
        let at = self.find((stream, offset));
        if self.get(at).is_none_or(|piece| piece.key() != (stream, offset)) {
            return 0;
        }
        let piece = self.piece_mut(at);
        let n = n.min(piece.len as usize);
        if n == piece.len as usize {
            self.remove(at);
            return n;
        }
        piece.offset += n as u64;
        piece.len -= n as u32;
        let (Place::Slot { at, .. } | Place::Own { at, .. }) = &mut piece.place;
        *at += n as u32;
        n
    }

    /// Drops all pieces of a stream. Returns their length in bytes.
    pub(crate) fn discard(&mut self, stream: u64) -> u64 {
        let mut bytes = 0;
        loop {
            let at = self.find((stream, 0));
            match self.get(at).filter(|piece| piece.stream == stream) {
                Some(piece) => bytes += u64::from(piece.len),
                None => return bytes,
            }
            self.remove(at);
        }
    }

    /// The lowest symbol below `end` in whose slot pieces have their bytes.
    pub(crate) fn lowest_in_slots(&self, end: SourceId) -> Option<SourceId> {
        self.in_slots.lowest_below(end)
    }

    /// Called when the slots of symbols below `id` are reused. No piece may have its bytes in them.
    pub(crate) fn forget_slots_before(&mut self, id: SourceId) {
        self.in_slots.forget_before(id);
    }

    /// Approximate memory of the list and of the copies, in bytes.
    pub(crate) fn memory(&self) -> usize {
        (self.blocks.len() + self.spare.len()) * BLOCK * size_of::<Piece>() + self.own_bytes
    }

    /// The position for new bytes of a stream.
    fn place_for(&self, extent: Extent) -> Result<At, Overlap> {
        let Extent { stream, offset, .. } = extent;
        let at = self.find((stream, offset));
        let before = self.before(at).and_then(|before| self.get(before));
        let overlaps_before = before.is_some_and(|before| before.stream == stream && before.end() > offset);
        let overlaps_behind = self.get(at).is_some_and(|next| next.stream == stream && next.offset < extent.end());
        if overlaps_before || overlaps_behind {
            return Err(Overlap);
        }
        Ok(at)
    }

    /// Inserts a piece at the position from [`Self::place_for`]. Returns its final position.
    fn put_piece(&mut self, at: At, Extent { stream, offset, len }: Extent, place: Place) -> At {
        match &place {
            Place::Slot { id, .. } => self.in_slots.add(*id),
            Place::Own { bytes, .. } => self.own_bytes += bytes.len(),
        }
        self.put(at, Piece { stream, offset, len: len as u32, place })
    }

    /// Joins a copied piece with its neighbours, if they are copied too and adjacent.
    fn join_around(&mut self, at: At) {
        let Some(key) = self.get(at).map(Piece::key) else { return };
        self.join(at, self.behind(at));
        // The join may have changed the blocks.
        let at = self.find(key);
        if let Some(before) = self.before(at) {
            self.join(before, at);
        }
    }

    fn join(&mut self, first: At, second: At) {
        let (Some(before), Some(behind)) = (self.get(first), self.get(second)) else { return };
        let (Place::Own { at, .. }, Place::Own { .. }) = (&before.place, &behind.place) else { return };
        // The bytes of the first piece that were read still take memory.
        if !before.is_followed_by(behind) || *at as usize + before.len as usize + behind.len as usize > JOINED {
            return;
        }
        let piece = self.remove_at(second);
        let Place::Own { bytes, at } = piece.place else { return };
        let joined = self.piece_mut(first);
        joined.len += piece.len;
        if let Place::Own { bytes: all, .. } = &mut joined.place {
            all.extend_from_slice(bytes.get(at as usize..).unwrap_or_default());
        }
        self.own_bytes -= at as usize;
        self.tidy(second.block);
    }

    /// The position of the first piece that is not before `key`.
    fn find(&self, key: (u64, u64)) -> At {
        // The only stream of most connections is read at the front, and arrives at the end.
        let ends = (self.blocks.front().and_then(VecDeque::front), self.blocks.back().and_then(VecDeque::back));
        let (Some(first), Some(last)) = ends else { return At { block: 0, index: 0 } };
        if key <= first.key() {
            return At { block: 0, index: 0 };
        }
        if key > last.key() {
            return At { block: self.blocks.len(), index: 0 };
        }
        let block = self.blocks.partition_point(|block| block.back().is_some_and(|last| last.key() < key));
        let index = self.blocks.get(block).map_or(0, |block| block.partition_point(|piece| piece.key() < key));
        At { block, index }
    }

    fn get(&self, at: At) -> Option<&Piece> {
        self.blocks.get(at.block)?.get(at.index)
    }

    fn piece_mut(&mut self, at: At) -> &mut Piece {
        &mut self.blocks[at.block][at.index]
    }

    fn before(&self, at: At) -> Option<At> {
        match at.index.checked_sub(1) {
            Some(index) => Some(At { index, ..at }),
            None => at.block.checked_sub(1).map(|block| At { block, index: self.blocks[block].len() - 1 }),
        }
    }

    fn behind(&self, at: At) -> At {
        if at.index + 1 < self.blocks[at.block].len() {
            At { index: at.index + 1, ..at }
        } else {
            At { block: at.block + 1, index: 0 }
        }
    }

    /// Inserts a piece at the position from [`Self::find`]. Returns its final position.
    fn put(&mut self, at: At, piece: Piece) -> At {
        let At { mut block, mut index } = at;
        // Between two blocks, the end of the first block is as good.
        if index == 0 && block > 0 && self.blocks[block - 1].len() < BLOCK {
            block -= 1;
            index = self.blocks[block].len();
        } else if block == self.blocks.len() {
            let fresh = self.fresh();
            self.blocks.push_back(fresh);
        } else if self.blocks[block].len() == BLOCK {
            let mut upper = self.fresh();
            upper.extend(self.blocks[block].drain(BLOCK / 2..));
            self.blocks.insert(block + 1, upper);
            if index > BLOCK / 2 {
                (block, index) = (block + 1, index - BLOCK / 2);
            }
        }
        self.blocks[block].insert(index, piece);
        At { block, index }
    }

    fn fresh(&mut self) -> VecDeque<Piece> {
        self.spare.pop().unwrap_or_else(|| VecDeque::with_capacity(BLOCK))
    }

    fn remove(&mut self, at: At) {
        match self.remove_at(at).place {
            Place::Slot { id, .. } => self.in_slots.remove(id),
            Place::Own { bytes, .. } => self.own_bytes -= bytes.len(),
        }
        self.tidy(at.block);
    }

    /// Removes a piece; the block may be empty afterwards.
    fn remove_at(&mut self, at: At) -> Piece {
        self.blocks[at.block].remove(at.index).expect("a place that was found holds a piece")
    }

    /// Removes a block if it is empty, or merges it with a neighbour if both together fit into half a block.
    fn tidy(&mut self, block: usize) {
        let len = |at: usize| self.blocks.get(at).map_or(BLOCK, VecDeque::len);
        let fits = |first: usize| len(first) + len(first + 1) <= BLOCK / 2;
        let emptied = if len(block) == 0 {
            self.blocks.remove(block)
        } else if let Some(first) = [Some(block), block.checked_sub(1)].into_iter().flatten().find(|&first| fits(first))
        {
            let mut second = self.blocks.remove(first + 1);
            second.iter_mut().for_each(|second| self.blocks[first].append(second));
            second
        } else {
            None
        };
        self.spare.extend(emptied);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use tidewire_codec::{Elimination, Limits};

    fn extent(stream: u64, offset: u64, len: usize) -> Extent {
        Extent { stream, offset, len }
    }

    /// A generator of test input (Knuth's linear congruential generator).
    fn random(state: &mut u64, bound: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % bound
    }

    /// Checks the invariants that bound the work of a call: no block is longer than `BLOCK`, and two
    /// neighbouring blocks together hold more than a quarter of `BLOCK`.
    fn check(assembler: &Assembler) {
        let lens: Vec<usize> = assembler.blocks.iter().map(VecDeque::len).collect();
        assert!(lens.iter().all(|len| (1..=BLOCK).contains(len)), "{lens:?}");
        assert!(lens.windows(2).all(|two| two[0] + two[1] > BLOCK / 4), "{lens:?}");
        let keys: Vec<_> = assembler.blocks.iter().flatten().map(Piece::key).collect();
        assert!(keys.is_sorted_by(|one, next| one < next));
    }

    /// Compares random insertions, reads, copies and resets on three streams with a map of bytes.
    #[test]
    fn does_what_a_map_of_bytes_does() {
        let mut decoder =
            Store::new(Limits { slot_len: 64, capacity: 64, max_span: 16, max_rows: 16 }, Elimination::WhenStuck);
        for id in 0..64 {
            decoder.receive_source(SourceId(id), &[id as u8; 64]).expect("accepted");
        }
        let (mut assembler, mut model) = (Assembler::default(), BTreeMap::new());
        let mut read = [0_u64; 3];
        let state = &mut 7;
        for step in 0..60_000_u64 {
            let stream = random(state, 3);
            let (offset, len) = (read[stream as usize] + random(state, 2_000), 1 + random(state, 5) as usize);
            let id = random(state, 64);
            match random(state, 40) {
                0..24 => {
                    let end = offset + len as u64;
                    let taken = (offset..end).any(|at| model.contains_key(&(stream, at)));
                    let inserted = if step % 5 == 0 {
                        assembler.insert_copy(stream, offset, &[id as u8; 64][..len])
                    } else {
                        assembler.insert(extent(stream, offset, len), SourceId(id), 3)
                    };
                    assert_eq!(inserted.is_err(), taken, "{stream} {offset} {len}");
                    if !taken {
                        (offset..end).for_each(|at| assert!(model.insert((stream, at), id as u8).is_none()));
                    }
                }
                24..38 => {
                    let from = read[stream as usize];
                    let whole = (from..).find(|&at| !model.contains_key(&(stream, at)));
                    assert_eq!(Some(assembler.whole_until(stream, from)), whole);
                    if whole == Some(from) {
                        read[stream as usize] += 1;
                        // This byte counts as received and read at once, so it is skipped.
                        continue;
                    }
                    let chunk = assembler.chunk(stream, from, &decoder).expect("bytes are there").to_vec();
                    assert!(chunk.iter().zip(from..).all(|(byte, at)| model.get(&(stream, at)) == Some(byte)));
                    let n = assembler.consume(stream, from, 1 + random(state, 8) as usize);
                    (from..from + n as u64).for_each(|at| assert!(model.remove(&(stream, at)).is_some()));
                    read[stream as usize] += n as u64;
                }
                38 => {
                    let found = assembler.blocks.iter().flatten().find_map(|piece| match piece.place {
                        Place::Slot { id, .. } => Some((extent(piece.stream, piece.offset, piece.len as usize), id)),
                        Place::Own { .. } => None,
                    });
                    found.into_iter().for_each(|(extent, id)| assembler.copy_out(extent, id, &decoder));
                }
                _ if step % 50 == 0 => {
                    let before = model.len();
                    model.retain(|&(of, _), _| of != stream);
                    assert_eq!(assembler.discard(stream), (before - model.len()) as u64);
                }
                _ => {}
            }
            let slots =
                assembler.blocks.iter().flatten().filter(|piece| matches!(piece.place, Place::Slot { .. })).count();
            assert_eq!(assembler.in_slots.counts.iter().map(|&count| usize::from(count)).sum::<usize>(), slots);
            if step % 64 == 0 {
                check(&assembler);
            }
        }
        let own = assembler.blocks.iter().flatten().map(|piece| match &piece.place {
            Place::Own { bytes, .. } => bytes.len(),
            Place::Slot { .. } => 0,
        });
        assert_eq!(assembler.own_bytes, own.sum::<usize>());
    }

    /// Inserts a hundred thousand single bytes, each in the middle of those before. Each insertion moves one
    /// block at most, and the number of blocks fits the number of pieces. A single list would move half of
    /// all pieces for each insertion.
    #[test]
    fn issue_13_a_piece_in_the_middle_moves_one_block() {
        let mut assembler = Assembler::default();
        let count = 100_000_u64;
        for n in 0..count {
            // From both ends towards the middle.
            let offset = 2 * if n % 2 == 0 { n / 2 } else { count - 1 - n / 2 };
            assert_eq!(assembler.insert(extent(0, offset, 1), SourceId(n), 0), Ok(()));
        }
        check(&assembler);
        assert!(assembler.blocks.len() <= count as usize / (BLOCK / 4) + 1, "{} blocks", assembler.blocks.len());
        assert_eq!(assembler.discard(0), count);
        assert!(assembler.blocks.is_empty());
    }
}
