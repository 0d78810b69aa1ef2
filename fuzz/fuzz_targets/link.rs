//! Passes any text through the parser of links. A link that parses must survive printing and parsing, and no
//! error may contain the secret.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire::link::Link;

fuzz_target!(|text: &str| {
    match text.parse::<Link>() {
        Ok(link) => {
            assert_eq!(link.reveal().parse(), Ok(link.clone()));
            assert!(!format!("{link:?}").contains(&link.peer.reveal()) || link.peer.key().is_some());
        }
        Err(error) => {
            let Some((rest, secret)) = text.trim().split_once('#') else { return };
            // It is no leak if the public part repeats the secret, or if the secret is a short word of the
            // message itself.
            let long = secret.len() >= 20 && secret.bytes().all(|byte| byte.is_ascii_alphanumeric());
            assert!(!long || rest.contains(secret) || !error.to_string().contains(secret), "{error}");
        }
    }
});
