//! A path as it is told to a user: text, whatever bytes the path has.
//!
//! Events and failures of both sides carry it. Names of POSIX are bytes, and those of a peer may be hostile.
//! Invariants: the text is what [`PathText::of`] makes of the bytes, and nothing else. It may have control
//! characters. Printing it needs escapes.

use std::fmt;
use std::path::Path;

/// The text of a path, and its bytes if they are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathText {
    text: String,
    bytes: Option<Box<[u8]>>,
}

impl PathText {
    /// The text of a path with these bytes. Of a path that is not UTF-8, each byte that is no part of a
    /// character becomes `\xNN`. A backslash stays one, so only [`bytes`](Self::bytes) names the file.
    pub fn of(bytes: &[u8]) -> Self {
        use fmt::Write;
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Self { text: text.to_owned(), bytes: None };
        }
        let mut text = String::with_capacity(bytes.len() + 3);
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            for byte in chunk.invalid() {
                // A string takes everything.
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
        Self { text, bytes: Some(bytes.into()) }
    }

    /// The text of a path of this machine.
    pub fn of_path(path: &Path) -> Self {
        Self::of(path.as_os_str().as_encoded_bytes())
    }

    /// The text, not escaped.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The bytes of a path that is not UTF-8.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }
}

impl fmt::Display for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_written_in_hexadecimal_and_kept() {
        let text = PathText::of("d/ü\\".as_bytes());
        assert_eq!((text.text(), text.bytes()), ("d/ü\\", None));
        for (bytes, shown) in [
            (&b"a\xff/\xc3\xbc\xe9.txt"[..], r"a\xff/ü\xe9.txt"),
            (b"\xe2\x82", r"\xe2\x82"),
            (b"\xc0\xaf", r"\xc0\xaf"),
        ] {
            let text = PathText::of(bytes);
            assert_eq!((text.text(), text.bytes()), (shown, Some(bytes)));
        }
    }
}
