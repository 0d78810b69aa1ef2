//! The shared secret.

use core::fmt;
use core::str::FromStr;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use super::text::{self, TextError, TextKind};

/// A secret of 32 random bytes that both sides share. Every holder is fully trusted. It is wiped from memory
/// when dropped and never shown by `Debug`.
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

    /// The text form: `tws1`, then the bytes and a checksum in base32; 60 letters and digits. The text is as
    /// secret as the bytes.
    pub fn reveal(&self) -> Zeroizing<String> {
        text::write(TextKind::Secret, &self.0)
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
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl FromStr for Secret {
    type Err = TextError;

    /// Reads the text form, in lower or upper case.
    fn from_str(text: &str) -> Result<Self, TextError> {
        text::read(TextKind::Secret, text).map(|bytes| Self(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_is_silent() {
        assert_eq!(format!("{:?}", Secret::new([7; 32])), "Secret(..)");
    }
}
