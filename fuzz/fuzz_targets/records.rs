//! Passes any bytes behind the magic through the reader of transfer records. A record that parses must
//! survive writing and reading.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tidewire_fuzz::at_once;
use tidewire_transfer::{RecordReader, RecordWriter};

/// The magic bytes of this version of the file transfer.
static MAGIC: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut written = Vec::new();
    at_once(RecordWriter::open(&mut written)).expect("a vector takes everything");
    written.truncate(8);
    written
});

fuzz_target!(|data: &[u8]| {
    let bytes = [&MAGIC, data].concat();
    let mut reader = at_once(RecordReader::open(&bytes[..])).expect("the magic is right");
    while let Ok(record) = at_once(reader.next()) {
        let mut written = Vec::new();
        let mut writer = at_once(RecordWriter::open(&mut written)).expect("a vector takes everything");
        at_once(writer.write(&record)).expect("a vector takes everything");
        let mut again = at_once(RecordReader::open(&written[..])).expect("the magic is right");
        assert_eq!(at_once(again.next()).expect("was read before"), record);
    }
});
