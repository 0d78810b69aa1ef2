//! The text form of secrets and keys: a prefix that names the kind, then 32 bytes and a checksum in base32
//! (docs/wire.md section 3).
//!
//! The secret and both keys use it. Invariant: an error shows at most single letters of the text.

use core::fmt;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// Bytes of the checksum. A typing error passes once in 16 million, and 32 + 3 bytes are exactly 56 letters.
const CHECKSUM_LEN: usize = 3;
/// RFC 4648 base32 in lower case. It survives case folding, and it has no character that splits a word.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Letters after the prefix, five bits each.
const LETTERS: usize = (32 + CHECKSUM_LEN) * 8 / 5;

/// The kind of value that a text contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextKind {
    /// A [`super::Secret`].
    Secret,
    /// A [`super::PrivateKey`].
    PrivateKey,
    /// A [`super::PublicKey`].
    PublicKey,
}

impl TextKind {
    /// The prefix of its text: **t**ide**w**ire, **s**ecret, private **k**ey or **p**ublic key, form **1**.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Secret => "tws1",
            Self::PrivateKey => "twk1",
            Self::PublicKey => "twp1",
        }
    }
}

impl fmt::Display for TextKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret => "secret",
            Self::PrivateKey => "private key",
            Self::PublicKey => "public key",
        })
    }
}

/// Why a text is not a secret or key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The kind that was expected.
    pub kind: TextKind,
    /// What is wrong with it.
    pub fault: TextFault,
}

/// What is wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextFault {
    /// It does not begin with its prefix.
    Prefix,
    /// It has the wrong number of letters; carries the number of letters after the prefix.
    Length(usize),
    /// It contains a letter outside the alphabet; carries the letter and its position (counted from 1, prefix
    /// included).
    Letter(char, usize),
    /// All letters are valid, but at least one is wrong.
    Checksum,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, prefix) = (self.kind, self.kind.prefix());
        match self.fault {
            TextFault::Prefix => write!(f, "a {kind} begins with {prefix}; copy all of it or run `tidewire keygen`"),
            TextFault::Length(found) => {
                write!(f, "a {kind} has {LETTERS} letters after {prefix}, this one has {found}; copy all of it")
            }
            TextFault::Letter(letter, at) => {
                write!(f, "letter {at} of the {kind} is {letter:?}; a {kind} has a to z and 2 to 7 only")
            }
            TextFault::Checksum => write!(f, "the {kind} has a typo: its checksum does not match; copy it again"),
        }
    }
}

impl core::error::Error for TextError {}

/// Prefix, bytes and checksum: 60 letters and digits.
pub(super) fn write(kind: TextKind, bytes: &[u8; 32]) -> Zeroizing<String> {
    let prefix = kind.prefix();
    let mut text = Zeroizing::new(String::with_capacity(prefix.len() + LETTERS));
    text.push_str(prefix);
    let checksum = checksum(kind, bytes);
    let (mut bits, mut held) = (0_u32, 0);
    for byte in bytes.iter().chain(&checksum) {
        bits = bits << 8 | u32::from(*byte);
        held += 8;
        while held >= 5 {
            held -= 5;
            text.push(char::from(ALPHABET[(bits >> held & 31) as usize]));
        }
    }
    text
}

/// Reads the text form that [`write`] makes, in lower or upper case.
pub(super) fn read(kind: TextKind, text: &str) -> Result<Zeroizing<[u8; 32]>, TextError> {
    letters(kind, text).map_err(|fault| TextError { kind, fault })
}

fn letters(kind: TextKind, text: &str) -> Result<Zeroizing<[u8; 32]>, TextFault> {
    let prefix = kind.prefix();
    let head = text.get(..prefix.len()).filter(|head| head.eq_ignore_ascii_case(prefix));
    let letters = head.and(text.get(prefix.len()..)).ok_or(TextFault::Prefix)?;
    let mut bytes = Zeroizing::new([0; 32 + CHECKSUM_LEN]);
    let (mut bits, mut held, mut filled, mut count) = (0_u32, 0, 0, 0);
    for letter in letters.chars() {
        count += 1;
        let lower = letter.to_ascii_lowercase();
        let value = ALPHABET.iter().position(|known| char::from(*known) == lower);
        let value = value.ok_or(TextFault::Letter(letter, prefix.len() + count))?;
        bits = bits << 5 | value as u32;
        held += 5;
        if held >= 8 {
            held -= 8;
            if let Some(byte) = bytes.get_mut(filled) {
                *byte = (bits >> held) as u8;
            }
            filled += 1;
        }
    }
    if count != LETTERS {
        return Err(TextFault::Length(count));
    }
    let mut body = Zeroizing::new([0; 32]);
    let (first, sum) = bytes.split_at(32);
    body.copy_from_slice(first);
    if checksum(kind, &body) == sum { Ok(body) } else { Err(TextFault::Checksum) }
}

fn checksum(kind: TextKind, bytes: &[u8; 32]) -> [u8; CHECKSUM_LEN] {
    let digest = Sha256::new().chain_update(kind.prefix()).chain_update(bytes).finalize();
    [digest[0], digest[1], digest[2]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::Secret;

    fn secret() -> Secret {
        Secret::new(core::array::from_fn(|i| (i * 37 + 11) as u8))
    }

    #[test]
    fn text_and_back() {
        for seed in 0..=255_u8 {
            let bytes = core::array::from_fn(|i| seed.wrapping_mul(i as u8).wrapping_add(seed));
            for kind in [TextKind::Secret, TextKind::PrivateKey, TextKind::PublicKey] {
                let text = write(kind, &bytes);
                assert_eq!(text.len(), 60);
                assert_eq!(*read(kind, &text).unwrap(), bytes);
                assert_eq!(*read(kind, &text.to_uppercase()).unwrap(), bytes);
            }
        }
        assert_eq!(*secret().reveal(), "tws1bmyfk6u7ytuq4m2ypwrmp3argznybjok54kdsxudvdg7efz4mgdcdj2k");
    }

    #[test]
    fn every_single_typo_is_caught_and_named() {
        let text = secret().reveal();
        let fault = |text: &str| text.parse::<Secret>().err().map(|error| error.fault);
        for at in 4..text.len() {
            for letter in ALPHABET.iter().map(|letter| char::from(*letter)) {
                let typo = format!("{}{letter}{}", &text[..at], &text[at + 1..]);
                if typo != *text {
                    assert_eq!(fault(&typo), Some(TextFault::Checksum), "{typo}");
                }
            }
        }
        assert_eq!(fault(&text[..59]), Some(TextFault::Length(55)));
        assert_eq!(fault(&format!("{}a", *text)), Some(TextFault::Length(57)));
        assert_eq!(fault(&text.replacen('b', "1", 1)), Some(TextFault::Letter('1', 5)));
        assert_eq!(fault(""), Some(TextFault::Prefix));
        assert_eq!(fault(&"ä".repeat(30)), Some(TextFault::Prefix));
        // The checksum covers the kind: a text of one kind is rejected as another kind even with the prefix
        // changed.
        assert_eq!(fault(&write(TextKind::PublicKey, &[7; 32])), Some(TextFault::Prefix));
        assert_eq!(fault(&write(TextKind::PublicKey, &[7; 32]).replace("twp1", "tws1")), Some(TextFault::Checksum));
    }
}
