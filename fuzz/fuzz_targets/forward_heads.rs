//! Passes any bytes through the two readers of the heads of forwarded streams. A head that parses must
//! survive writing and reading, and the reader must not take a byte behind it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_forward::header::{read_answer, read_request, write_answer, write_request};
use tidewire_fuzz::at_once;

fuzz_target!(|data: &[u8]| {
    if let Ok(Ok(request)) = at_once(read_request(&mut &data[..])) {
        let mut written = Vec::new();
        at_once(write_request(&mut written, &request)).expect("a vector takes everything");
        written.push(0);
        let mut rest = &written[..];
        assert_eq!(at_once(read_request(&mut rest)).expect("was read before"), Ok(request));
        assert_eq!(rest, [0]);
    }
    if let Ok(answer) = at_once(read_answer(&mut &data[..])) {
        // Invalid UTF-8 becomes longer when it is read. The side that answers cuts a detail that is too long.
        if answer.detail.len() > usize::from(u8::MAX) {
            return;
        }
        let mut written = Vec::new();
        at_once(write_answer(&mut written, &answer)).expect("a vector takes everything");
        written.push(0);
        let mut rest = &written[..];
        assert_eq!(at_once(read_answer(&mut rest)).expect("was read before"), answer);
        assert_eq!(rest, [0]);
    }
});
