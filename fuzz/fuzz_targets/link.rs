//! Passes any text through the parser of links. A link that parses must survive printing and parsing, and
//! neither its `Debug` output nor an error may contain the secret.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire::link::Link;

fuzz_target!(|text: &str| {
    let parsed = text.parse::<Link>();
    let shown = match &parsed {
        Ok(link) => {
            assert_eq!(link.reveal().parse().as_ref(), Ok(link));
            // A public key is no secret.
            if link.peer.key().is_some() {
                return;
            }
            format!("{link:?}")
        }
        Err(error) => error.to_string(),
    };
    // Secrets are read in either case.
    let text = text.trim().to_ascii_lowercase();
    let Some((rest, secret)) = text.split_once('#') else { return };
    // It is no leak if the public part repeats the secret, or if the secret is a short word of the message
    // itself.
    let long = secret.len() >= 20 && secret.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let leaked = shown.to_ascii_lowercase().contains(secret);
    assert!(!leaked || !long || rest.contains(secret), "{shown}");
});
