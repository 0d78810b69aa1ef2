//! Any text through the parser of links: a link that parses can be printed and means the same again, and no error repeats the secret.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_cli::link::Link;

fuzz_target!(|text: &str| {
    match text.parse::<Link>() {
        Ok(link) => {
            assert_eq!(link.reveal().parse(), Ok(link.clone()));
            assert!(!format!("{link:?}").contains(&link.peer.reveal()) || link.peer.key().is_some());
        }
        Err(error) => {
            let Some((rest, secret)) = text.trim().split_once('#') else { return };
            // A public part that repeats the secret, and words of the message itself, are no leak.
            let long = secret.len() >= 20 && secret.bytes().all(|byte| byte.is_ascii_alphanumeric());
            assert!(!long || rest.contains(secret) || !error.to_string().contains(secret), "{error}");
        }
    }
});
