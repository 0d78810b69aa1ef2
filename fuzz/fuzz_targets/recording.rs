//! Reads any file as a recording: as it is, and as the content of a block with a right checksum, which a
//! mutation of a file hardly ever keeps.
//!
//! Input: the file, or the decompressed content of a block of events. Items that were read must be written
//! and read again as they are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_recording::{Entry, Header, Item, Reader, Writer, file_of_block};

fuzz_target!(|data: &[u8]| {
    check(data);
    check(&file_of_block(data));
});

fn check(file: &[u8]) {
    let Ok(mut reader) = Reader::open(file) else { return };
    let (items, _) = reader.read_all();
    let mut writer = Writer::new(Vec::new(), &Header::new("", "", 0), u64::MAX).expect("memory takes it");
    let mut entries: Vec<Entry> = Vec::new();
    for item in items {
        let Item::Event(entry) = item else { continue };
        writer.push(&entry).expect("memory takes it");
        entries.push(entry);
    }
    let again = writer.end().expect("memory takes it");
    let (items, error) = Reader::open(&again[..]).expect("it was just written").read_all();
    assert!(error.is_none());
    // Floats may be no numbers, which differ from themselves, so the text is compared.
    let again: Vec<_> = items.iter().map(|item| format!("{item:?}")).collect();
    let before: Vec<_> = entries.into_iter().map(|entry| format!("{:?}", Item::Event(entry))).collect();
    assert_eq!(again, before);
}
