//! Any state file of a part through the reader that a resumed transfer trusts: as it is, and with the hash of each slot made right.
//!
//! Input: the state file. For the second pass the input without its last 32 bytes is one slot, and its hash is appended. What is read
//! claims no more than the file may have, and can be written and means the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_cli::transfer::Checkpoint;

/// Bytes of the part that lies beside the state file.
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
