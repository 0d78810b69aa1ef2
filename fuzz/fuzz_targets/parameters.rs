//! Passes any handshake payload through the parameter parser. Parameters that parse must be within their
//! ranges.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_proto::handshake::Parameters;

fuzz_target!(|data: &[u8]| {
    if let Ok(parameters) = Parameters::parse(data) {
        assert_eq!(parameters.validate(), Ok(()));
    }
});
