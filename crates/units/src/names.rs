//! What an error says of an unknown name: the nearest known name, and all known names.
//!
//! Profiles, policies and settings of scenario files use it, so that all refusals read the same.

use strsim::levenshtein;

/// The name that `text` is probably meant to be, if one is near enough.
pub fn nearest_name<'a>(text: &str, names: &[&'a str]) -> Option<&'a str> {
    let wrong = names.iter().map(|name| (levenshtein(text, name), *name));
    // Up to a third of wrong letters is taken for a typing error. Chosen.
    wrong.filter(|(wrong, name)| *wrong <= name.len().div_ceil(3)).min().map(|(_, name)| name)
}

/// What is wrong with a key that is not in `allowed`: the key that was probably meant, and all keys.
pub fn unknown_key(key: &str, allowed: &[&str]) -> String {
    format!("no such key{}", nearest(key, allowed))
}

/// The rest of an error message that named `text`: `; did you mean "stream"? (allowed: stream, arq, block)`.
pub fn nearest(text: &str, names: &[&str]) -> String {
    let allowed = format!(" (allowed: {})", names.join(", "));
    match nearest_name(text, names) {
        Some(name) => format!("; did you mean \"{name}\"?{allowed}"),
        None => allowed,
    }
}
