//! Passes any symbol through the stream frame parser. The data of a frame must lie at its stated place,
//! within the symbol.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_proto::wire::{SymbolFrame, SymbolFrames, VARINT_MAX};

fuzz_target!(|data: &[u8]| {
    let Ok((header, frames)) = SymbolFrames::new(data) else { return };
    let symbol = &data[..usize::from(header.length)];
    for frame in frames {
        if let Ok(SymbolFrame::Stream { offset, data, data_at, .. }) = frame {
            assert_eq!(&symbol[data_at..data_at + data.len()], data);
            assert!(offset + data.len() as u64 <= VARINT_MAX);
        }
    }
});
