//! What a receiver stores about an incomplete file, so that a later session can continue it
//! (`docs/transfer.md` section 4).
//!
//! A part writes a checkpoint after each group, alternately into two slots, so a power failure during a write
//! leaves the other slot. Invariant: the bytes that a checkpoint covers were flushed before it is written.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::Key;
use super::tree::Prefix;

/// Size of a slot. The longest checkpoint has 42 chaining values and 1,464 bytes; a slot is a page, which
/// systems write as a whole.
const SLOT: usize = 4096;
const MAGIC: &[u8; 8] = b"TWSTATE\x03";
/// Bytes of the hash at the end.
const CHECK: usize = 32;

/// The state of a part: the beginning of a file that is on the disk. Public for its fuzz target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The peer that sends it.
    pub peer: Key,
    /// The command that sent it.
    pub job: Key,
    /// The file's path.
    pub path: Key,
    /// The file's content.
    pub source: Key,
    /// Bytes of the whole file.
    pub size: u64,
    /// The groups that are on the disk.
    pub prefix: Prefix,
}

impl Checkpoint {
    /// Writes it into the next slot.
    pub(super) fn write(&self, to: &mut std::fs::File) -> io::Result<()> {
        to.seek(SeekFrom::Start(self.prefix.groups() % 2 * SLOT as u64))?;
        to.write_all(&self.emit())
    }

    /// Writes it into both slots, so that later checkpoints become void.
    pub(super) fn write_alone(&self, to: &mut std::fs::File) -> io::Result<()> {
        to.rewind()?;
        to.write_all(&[self.emit(), self.emit()].concat())
    }

    /// Reads both slots. Returns the later one that is valid and covers at most `bytes` bytes.
    pub fn read(from: &mut impl Read, bytes: u64) -> Option<Self> {
        let mut slots = Vec::new();
        from.take(2 * SLOT as u64).read_to_end(&mut slots).ok()?;
        let valid = slots.chunks(SLOT).filter_map(Self::parse).filter(|checkpoint| checkpoint.prefix.offset() <= bytes);
        valid.max_by_key(|checkpoint| checkpoint.prefix.groups())
    }

    /// The bytes of a slot, with their hash.
    pub fn emit(&self) -> Vec<u8> {
        let mut slot = Vec::with_capacity(SLOT);
        slot.extend_from_slice(MAGIC);
        slot.extend_from_slice(&self.peer.0);
        slot.extend_from_slice(&self.job.0);
        slot.extend_from_slice(&self.path.0);
        slot.extend_from_slice(&self.source.0);
        slot.extend_from_slice(&self.size.to_be_bytes());
        slot.extend_from_slice(&self.prefix.groups().to_be_bytes());
        slot.extend(self.prefix.stack().iter().flatten());
        let check = blake3::hash(&slot);
        slot.extend_from_slice(check.as_bytes());
        slot.resize(SLOT, 0);
        slot
    }

    fn parse(slot: &[u8]) -> Option<Self> {
        let mut rest = slot.strip_prefix(MAGIC)?;
        let mut key = || take(&mut rest).map(Key);
        let (peer, job, path, source) = (key()?, key()?, key()?, key()?);
        let size = take(&mut rest).map(u64::from_be_bytes)?;
        let groups = take(&mut rest).map(u64::from_be_bytes)?;
        let stack = (0..groups.count_ones()).map(|_| take(&mut rest)).collect::<Option<_>>()?;
        let body = slot.get(..slot.len() - rest.len())?;
        let whole = rest.get(..CHECK)? == blake3::hash(body).as_bytes();
        let prefix = Prefix::new(groups, stack).filter(|prefix| prefix.offset() < size)?;
        whole.then_some(Self { peer, job, path, source, size, prefix })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::super::tree::GROUP;
    use super::*;

    fn checkpoint(groups: u64) -> Checkpoint {
        let prefix = Prefix::new(groups, vec![[4; 32]; groups.count_ones() as usize]).unwrap();
        Checkpoint {
            peer: Key([6; 16]),
            job: Key([1; 16]),
            path: Key([2; 16]),
            source: Key([5; 16]),
            size: u64::MAX,
            prefix,
        }
    }

    fn read(bytes: &[u8], most: u64) -> Option<u64> {
        Checkpoint::read(&mut &bytes[..], most).map(|checkpoint| checkpoint.prefix.groups())
    }

    #[test]
    fn the_later_of_two_counts_and_a_torn_one_does_not() {
        let mut file = tempfile::tempfile().unwrap();
        let mut state = |checkpoint: &Checkpoint, alone: bool| {
            if alone { checkpoint.write_alone(&mut file) } else { checkpoint.write(&mut file) }.unwrap();
            file.rewind().unwrap();
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            bytes
        };
        assert_eq!(read(&[], u64::MAX), None);
        // The first checkpoint goes to the second slot, so the first slot is a hole.
        assert_eq!(read(&state(&checkpoint(1), false), u64::MAX), Some(1));
        let bytes = state(&checkpoint(2), false);
        assert_eq!(Checkpoint::read(&mut &bytes[..], u64::MAX), Some(checkpoint(2)));
        assert_eq!(read(&bytes, 2 * GROUP - 1), Some(1), "it speaks of more than is there");
        for at in 0..300 {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            let wanted = if at < checkpoint(2).emit().iter().rposition(|&byte| byte != 0).unwrap() + 1 { 1 } else { 2 };
            assert_eq!(read(&torn, u64::MAX), Some(wanted), "byte {at}");
        }
        assert_eq!(read(&state(&checkpoint(1), true), u64::MAX), Some(1));
        let longest = checkpoint((1 << 42) - 1).emit();
        assert_eq!(read(&longest, u64::MAX), Some((1 << 42) - 1));
        assert_eq!(longest.len(), SLOT);
    }
}
