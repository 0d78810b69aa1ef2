//! Makes text that may come from a peer safe for a terminal.
//!
//! A peer chooses its file names, close reasons and error texts. Printed unchanged, they could move the
//! cursor, change the title of the window, forge a line of output or reorder text.
//! [`Console`](crate::report::Console) passes every line through this file before it writes it, so no other
//! code escapes anything. Invariant: the result contains no control character, and no character that changes
//! the order or the line of other text.

use std::borrow::Cow;
use std::fmt::Write;

/// A line for people. Such characters are written as Rust writes them: `\u{1b}` or `\n`.
pub fn printable(line: &str) -> Cow<'_, str> {
    escaped(line, |safe, character| safe.extend(character.escape_default()))
}

/// A line of JSON. Such characters, which occur only in strings, are written as `\u001b`. The line keeps its
/// meaning.
pub fn printable_json(line: &str) -> Cow<'_, str> {
    escaped(line, |safe, character| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(safe, "\\u{unit:04x}");
        }
    })
}

fn escaped(line: &str, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if !line.contains(drives_terminal) {
        return Cow::Borrowed(line);
    }
    let mut safe = String::with_capacity(line.len());
    for character in line.chars() {
        if drives_terminal(character) {
            escape(&mut safe, character);
        } else {
            safe.push(character);
        }
    }
    Cow::Owned(safe)
}

/// Control characters (C0, DEL and C1), the line and paragraph separators, and the marks of Unicode UAX 9
/// that change the order of text.
fn drives_terminal(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_drives_a_terminal_passes() {
        let hostile = "a\x1b[2J\u{9b}1m\x07\r\n\u{202e}b\u{2066}\u{2028}\u{61c}\x7fü日";
        let wanted = r"a\u{1b}[2J\u{9b}1m\u{7}\r\n\u{202e}b\u{2066}\u{2028}\u{61c}\u{7f}ü日";
        assert_eq!(printable(hostile), wanted);
        assert_eq!(printable(wanted), wanted);
        let json = serde_json::to_string(hostile).unwrap();
        assert!(!printable_json(&json).contains(drives_terminal));
        assert_eq!(serde_json::from_str::<String>(&printable_json(&json)).unwrap(), hostile);
    }
}
