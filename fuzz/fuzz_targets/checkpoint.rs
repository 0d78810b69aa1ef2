//! Parses any state file of a partly received file, as a resumed transfer does: unchanged, and with a correct
//! hash.
//!
//! Input: the state file. The second pass takes the input without its last 32 bytes as one slot and appends
//! the correct hash. A checkpoint that parses must not claim more bytes than the part has, and must survive
//! writing and reading.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_transfer::Checkpoint;

/// Bytes of the part that belongs to the state file.
const BYTES: u64 = 1 << 40;

fuzz_target!(|data: &[u8]| {
    check(data);
    let body = &data[..data.len().saturating_sub(32)];
    check(&[body, blake3::hash(body).as_bytes()].concat());
});

fn check(state: &[u8]) {
    let Some(checkpoint) = Checkpoint::read(&mut &state[..], BYTES) else { return };
    let offset = checkpoint.prefix.offset();
    assert!(0 < offset && offset <= BYTES && offset < checkpoint.size);
    assert_eq!(checkpoint.prefix.stack().len(), checkpoint.prefix.groups().count_ones() as usize);
    assert_eq!(Checkpoint::read(&mut &checkpoint.emit()[..], BYTES), Some(checkpoint));
}
