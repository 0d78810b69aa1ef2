//! The symbol ring: equal slots in one block of memory, each for the symbol of one source id.
//!
//! At the sender it is send buffer, retransmission store and coding window. At the receiver it is reorder
//! buffer, read buffer and storage of unsolved rows (a row lives in the slot of the symbol it will become).
//! Place `id mod capacity` belongs to `id`; the owner decides which window of ids is in use. A place gets its
//! slot on the first write and keeps it, so a wide window with few symbols takes little memory.
//!
//! Invariants: slots begin on 64-byte boundaries and are a multiple of 64 bytes, so kernels work on whole
//! aligned registers. A slot is zero after its symbol, so symbols of different length mix without special
//! cases.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::kernel::{Kernel, LINE};
use crate::mix;

pub(crate) struct SymbolRing {
    /// The slots in use, and some spare ones.
    memory: Vec<u8>,
    /// Offset of the first slot in `memory`, which aligns it.
    start: usize,
    slot_len: usize,
    /// Number of slots in use.
    taken: usize,
    /// The slot of each place, or [`NONE`]. Its length is a power of two.
    slots: Vec<u32>,
    /// Length of the symbol at each place.
    lens: Vec<u32>,
}

/// Marks a place that has no slot, because nothing was written there.
const NONE: u32 = u32::MAX;

impl SymbolRing {
    /// A ring with no slots in use yet.
    ///
    /// # Panics
    /// A slot is over 4 GiB, or the ring is larger than the address space.
    pub fn new(slot_len: usize, capacity: usize) -> Self {
        let slot_len = slot_len.max(1).checked_next_multiple_of(LINE).expect("slot too long");
        let capacity = places(capacity);
        assert!(u32::try_from(slot_len).is_ok(), "a slot of {slot_len} bytes");
        let _ = bytes(slot_len, capacity);
        let (slots, lens) = (vec![NONE; capacity], vec![0; capacity]);
        Self { memory: Vec::new(), start: 0, slot_len, taken: 0, slots, lens }
    }

    /// A ring whose places all have their slots, so that it never allocates again.
    ///
    /// # Panics
    /// The same as for [`new`](Self::new).
    pub fn with_all_slots(slot_len: usize, capacity: usize) -> Self {
        let mut ring = Self::new(slot_len, capacity);
        ring.lengthen(ring.capacity());
        (0..ring.capacity()).for_each(|place| ring.take(place));
        ring
    }

    pub fn slot_len(&self) -> usize {
        self.slot_len
    }

    pub fn capacity(&self) -> usize {
        self.lens.len()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.memory.capacity() + self.capacity() * (size_of::<u32>() * 2)
    }

    /// Lengthens the ring to at least `capacity` places and keeps those of the ids in `window`, which is at
    /// most as long as the ring was. It copies no symbol and never shrinks.
    ///
    /// # Panics
    /// The ring is larger than the address space.
    pub fn grow(&mut self, capacity: usize, window: Range<u64>) {
        let (old, capacity) = (self.capacity(), places(capacity));
        if capacity <= old {
            return;
        }
        let _ = bytes(self.slot_len, capacity);
        for (list, value) in [(&mut self.slots, NONE), (&mut self.lens, 0)] {
            list.reserve_exact(capacity - old);
            list.resize(capacity, value);
        }
        // A place stays, or moves to the new part by a multiple of the old length.
        for id in window {
            let (from, to) = (id as usize & (old - 1), self.index(id));
            if from != to {
                self.slots.swap(from, to);
                self.lens[to] = self.lens[from];
            }
        }
    }

    /// # Panics
    /// The place of `id` was never written to.
    pub fn slot(&self, id: u64) -> &[u8] {
        &self.memory[self.bytes_of(id)]
    }

    pub fn slot_mut(&mut self, id: u64) -> &mut [u8] {
        self.take(self.index(id));
        let bytes = self.bytes_of(id);
        &mut self.memory[bytes]
    }

    /// Length of the symbol in the slot of `id`.
    pub fn len(&self, id: u64) -> usize {
        self.lens[self.index(id)] as usize
    }

    pub fn symbol(&self, id: u64) -> &[u8] {
        &self.slot(id)[..self.len(id)]
    }

    /// Makes the first `len` bytes of the slot its symbol, and clears the rest.
    pub fn close(&mut self, id: u64, len: usize) {
        clear(&mut self.slot_mut(id)[len..]);
        let index = self.index(id);
        self.lens[index] = len as u32;
    }

    /// Puts a symbol of at most `slot_len` bytes into the slot of `id`.
    #[inline]
    pub fn write(&mut self, id: u64, symbol: &[u8]) {
        let index = self.index(id);
        self.take(index);
        let at = self.start + self.slots[index] as usize * self.slot_len;
        let (front, rest) = self.memory[at..at + self.slot_len].split_at_mut(symbol.len());
        front.copy_from_slice(symbol);
        clear(rest);
        self.lens[index] = symbol.len() as u32;
    }

    /// Copies slot `from` to slot `to`.
    pub fn copy(&mut self, from: u64, to: u64) {
        self.take(self.index(to));
        let (source, target) = (self.bytes_of(from), self.bytes_of(to));
        self.memory.copy_within(source, target.start);
        let index = self.index(to);
        self.lens[index] = self.lens[self.index(from)];
    }

    /// Slot of `id` times `factor`.
    pub fn scale(&mut self, id: u64, factor: u8) {
        let len = lines(self.len(id));
        Kernel::active().scale(&mut self.slot_mut(id)[..len], factor);
    }

    /// `out ^=` the sum of factor times slot over (id, factor); `out` is at most a slot long.
    pub fn mix(&self, out: &mut [u8], terms: impl Iterator<Item = (u64, u8)>) {
        let len = out.len();
        mix::add(out, terms.map(|(id, factor)| (factor, &self.slot(id)[..len])));
    }

    /// Adds the sum of factor times slot, over the ids from `first` on, to the slot of `to`, whose own factor
    /// is 0. The symbol there becomes as long as the longest of all.
    pub fn mix_span_into(&mut self, to: u64, first: u64, factors: &[u8]) {
        let (mask, start, slot_len, target) = (self.lens.len() - 1, self.start, self.slot_len, self.index(to));
        // Factors come before ids in the zip: the factors end, while ids counted past the last number would
        // overflow.
        let places = factors.iter().zip(first..).filter(|&(&factor, _)| factor != 0);
        let places = places.map(|(&factor, id)| (id as usize & mask, factor));
        let len = places.clone().fold(self.lens[target], |len, (place, _)| len.max(self.lens[place]));
        self.lens[target] = len;

        let (len, slots, target) = (lines(len as usize), &self.slots, self.slots[target] as usize);
        let (before, rest) = self.memory.split_at_mut(start + target * slot_len);
        let (out, after) = rest.split_at_mut(slot_len);
        let symbols = places.map(|(place, factor)| {
            let slot = slots[place] as usize;
            let symbol = if slot < target {
                &before[start + slot * slot_len..][..len]
            } else {
                &after[(slot - target - 1) * slot_len..][..len]
            };
            (factor, symbol)
        });
        mix::add(&mut out[..len], symbols);
    }

    /// Adds factor times the slot of `from` to the slot of every (id, factor); no id is `from`. The symbols
    /// there become at least as long as that of `from`.
    pub fn add_to(&mut self, from: u64, targets: &[(u64, u8)]) {
        let (source, len, kernel) = (self.bytes_of(from).start, self.lens[self.index(from)], Kernel::active());
        for &(to, factor) in targets {
            let (target, index) = (self.bytes_of(to).start, self.index(to));
            let len = len.max(self.lens[index]);
            self.lens[index] = len;
            let len = lines(len as usize);
            let (lower, upper) = self.memory.split_at_mut(source.max(target));
            let (out, symbol) =
                if source < target { (upper, &lower[source..]) } else { (&mut lower[target..], &*upper) };
            kernel.mul_add(&mut out[..len], factor, &symbol[..len]);
        }
    }

    fn index(&self, id: u64) -> usize {
        // Truncation is harmless: the number of places is a power of two.
        id as usize & (self.lens.len() - 1)
    }

    fn bytes_of(&self, id: u64) -> Range<usize> {
        let at = self.start + self.slots[self.index(id)] as usize * self.slot_len;
        at..at + self.slot_len
    }

    /// Gives a place its slot if it has none yet.
    #[inline]
    fn take(&mut self, place: usize) {
        if self.slots[place] == NONE {
            self.take_new(place);
        }
    }

    #[cold]
    fn take_new(&mut self, place: usize) {
        if bytes(self.slot_len, self.taken + 1) > self.memory.len() {
            // Growth by half: little memory is unused, and each symbol is moved about twice.
            self.lengthen((self.taken + self.taken / 2 + 1).min(self.capacity()));
        }
        self.slots[place] = self.taken as u32;
        self.taken += 1;
    }

    /// Allocates memory for `count` slots in total.
    fn lengthen(&mut self, count: usize) {
        let len = bytes(self.slot_len, count);
        self.memory.reserve_exact(len - self.memory.len());
        self.memory.resize(len, 0);
        let start = aligned(&self.memory);
        // A large block grows in place or moves by whole pages.
        if start != self.start {
            self.memory.copy_within(self.start..self.start + self.taken * self.slot_len, start);
            self.start = start;
        }
    }
}

/// Fills with zeros. Most symbols fill their slot: then this is a test instead of a call.
#[inline]
fn clear(bytes: &mut [u8]) {
    if !bytes.is_empty() {
        bytes.fill(0);
    }
}

/// `len` rounded up to whole lines. A slot has these bytes, and they are zero after the symbol. The kernels
/// then never see a symbol that ends inside a register: symbols of 20 bytes would otherwise be computed byte
/// by byte.
fn lines(len: usize) -> usize {
    len.next_multiple_of(LINE)
}

/// Places of a ring for `capacity` symbols.
fn places(capacity: usize) -> usize {
    capacity.checked_next_power_of_two().expect("ring too large")
}

/// Bytes of `count` slots and their alignment.
fn bytes(slot_len: usize, count: usize) -> usize {
    slot_len.checked_mul(count).and_then(|len| len.checked_add(LINE)).expect("ring too large")
}

/// The index of the first aligned byte.
pub(crate) fn aligned(memory: &[u8]) -> usize {
    // `align_offset` may return no answer by its contract, though it never does for bytes. That would only
    // cost speed.
    memory.as_ptr().align_offset(LINE).min(LINE)
}
