//! The shared secret, and the text that people paste.

use core::fmt;
use core::str::FromStr;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// What every secret's text begins with: **t**ide**w**ire **s**ecret, form **1**.
const PREFIX: &str = "tws1";
/// Bytes of checksum: a typo passes once in 16 million, and 32 + 3 bytes are exactly 56 letters.
const CHECKSUM_LEN: usize = 3;
/// RFC 4648 base32, in lower case: no two letters that a case-folding program confuses, nothing that breaks a word.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Letters after the prefix, five bits each.
const LETTERS: usize = (32 + CHECKSUM_LEN) * 8 / 5;

/// A secret of 32 random bytes that both sides share. Whoever holds it is trusted fully. Wiped from memory when dropped,
/// never shown by `Debug`.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Wraps 32 bytes, which must come from the operating system's random source.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The text form: `tws1`, then the bytes and a checksum in base32; 60 letters and digits. It *is* the secret.
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(PREFIX.len() + LETTERS));
        text.push_str(PREFIX);
        let checksum = self.checksum();
        let (mut bits, mut held) = (0_u32, 0);
        for byte in self.0.iter().chain(&checksum) {
            bits = bits << 8 | u32::from(*byte);
            held += 8;
            while held >= 5 {
                held -= 5;
                text.push(char::from(ALPHABET[(bits >> held & 31) as usize]));
            }
        }
        text
    }

    fn checksum(&self) -> [u8; CHECKSUM_LEN] {
        let digest = Sha256::new().chain_update(PREFIX).chain_update(self.0).finalize();
        [digest[0], digest[1], digest[2]]
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl PartialEq for Secret {
    /// In constant time.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

/// Why a text is no secret. Says nothing of the text but single letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretError {
    /// It does not begin with `tws1`.
    Prefix,
    /// It has the wrong number of letters; carries how many came after the prefix.
    Length(usize),
    /// It has a letter that no secret has, and where (counted from 1, prefix included).
    Letter(char, usize),
    /// Every letter is one of a secret's, and at least one is the wrong one.
    Checksum,
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix => write!(f, "a secret begins with {PREFIX}; copy all of the link or run `tidewire keygen`"),
            Self::Length(found) => {
                write!(f, "a secret has {LETTERS} letters after {PREFIX}, this one has {found}; copy all of it")
            }
            Self::Letter(letter, at) => {
                write!(f, "letter {at} of the secret is {letter:?}; a secret has a to z and 2 to 7 only")
            }
            Self::Checksum => f.write_str("the secret has a typo: its checksum does not match; copy it again"),
        }
    }
}

impl core::error::Error for SecretError {}

impl FromStr for Secret {
    type Err = SecretError;

    /// Reads the text form, in lower or upper case.
    fn from_str(text: &str) -> Result<Self, SecretError> {
        let head = text.get(..PREFIX.len()).filter(|head| head.eq_ignore_ascii_case(PREFIX));
        let letters = head.and(text.get(PREFIX.len()..)).ok_or(SecretError::Prefix)?;
        let mut bytes = Zeroizing::new([0; 32 + CHECKSUM_LEN]);
        let (mut bits, mut held, mut filled, mut count) = (0_u32, 0, 0, 0);
        for letter in letters.chars() {
            count += 1;
            let lower = letter.to_ascii_lowercase();
            let value = ALPHABET.iter().position(|known| char::from(*known) == lower);
            let value = value.ok_or(SecretError::Letter(letter, PREFIX.len() + count))?;
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
            return Err(SecretError::Length(count));
        }
        let mut secret = Self([0; 32]);
        let (body, checksum) = bytes.split_at(32);
        secret.0.copy_from_slice(body);
        if secret.checksum() == checksum { Ok(secret) } else { Err(SecretError::Checksum) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::new(core::array::from_fn(|i| (i * 37 + 11) as u8))
    }

    #[test]
    fn text_and_back() {
        for seed in 0..=255_u8 {
            let secret = Secret::new(core::array::from_fn(|i| seed.wrapping_mul(i as u8).wrapping_add(seed)));
            let text = secret.reveal();
            assert_eq!(text.len(), 60);
            assert_eq!(text.parse::<Secret>().unwrap(), secret);
            assert_eq!(text.to_uppercase().parse::<Secret>().unwrap(), secret);
        }
        assert_eq!(*secret().reveal(), "tws1bmyfk6u7ytuq4m2ypwrmp3argznybjok54kdsxudvdg7efz4mgdcdj2k");
    }

    #[test]
    fn every_single_typo_is_caught_and_named() {
        let text = secret().reveal();
        for at in 4..text.len() {
            for letter in ALPHABET.iter().map(|letter| char::from(*letter)) {
                let typo = format!("{}{letter}{}", &text[..at], &text[at + 1..]);
                if typo != *text {
                    assert_eq!(typo.parse::<Secret>(), Err(SecretError::Checksum), "{typo}");
                }
            }
        }
        assert_eq!(text[..59].parse::<Secret>(), Err(SecretError::Length(55)));
        assert_eq!(format!("{}a", *text).parse::<Secret>(), Err(SecretError::Length(57)));
        assert_eq!(text.replacen('b', "1", 1).parse::<Secret>(), Err(SecretError::Letter('1', 5)));
        assert_eq!("".parse::<Secret>(), Err(SecretError::Prefix));
        assert_eq!("ä".repeat(30).parse::<Secret>(), Err(SecretError::Prefix));
    }

    #[test]
    fn debug_is_silent() {
        assert_eq!(format!("{:?}", secret()), "Secret(..)");
    }
}
