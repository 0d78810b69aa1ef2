//! Bounded cursors over bytes: [`Reader`] for received bytes, [`Writer`] for bytes to send.
//!
//! All other code of this module uses these two, so no other file indexes a slice. Neither can panic. A read
//! past the end returns [`Truncated`]. A write past the end returns [`Full`] and leaves the position
//! unchanged. Integers are big-endian; `varint` is RFC 9000 section 16.

use core::fmt;

/// The largest value a varint carries: 62 bits (RFC 9000 section 16).
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// The bytes end before the value does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated;

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes end before the value does")
    }
}

impl core::error::Error for Truncated {}

/// The buffer has no room for the value. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the buffer has no room for the value")
    }
}

impl core::error::Error for Full {}

/// Bytes of `value` as a varint in its shortest form.
pub const fn varint_len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Reads forward through a byte slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The unread bytes.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Number of unread bytes.
    pub(crate) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether everything was read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes the next `n` bytes.
    pub const fn bytes(&mut self, n: usize) -> Result<&'a [u8], Truncated> {
        match self.rest.split_at_checked(n) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(Truncated),
        }
    }

    /// Takes the next `N` bytes as an array.
    pub(crate) const fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(*head)
            }
            None => Err(Truncated),
        }
    }

    /// Takes all unread bytes.
    pub(crate) const fn take_rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    /// Takes one byte.
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        self.array().map(u8::from_be_bytes)
    }

    /// Takes two bytes.
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes three bytes.
    pub(crate) fn u24(&mut self) -> Result<u32, Truncated> {
        self.array().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    /// Takes four bytes.
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a varint of any of the four lengths, in its shortest form or not. The value is at most
    /// [`VARINT_MAX`].
    pub fn varint(&mut self) -> Result<u64, Truncated> {
        let first = *self.rest.first().ok_or(Truncated)?;
        match first >> 6 {
            0 => self.u8().map(u64::from),
            1 => self.u16().map(|v| u64::from(v & 0x3fff)),
            2 => self.u32().map(|v| u64::from(v & 0x3fff_ffff)),
            _ => self.array().map(|v| u64::from_be_bytes(v) & VARINT_MAX),
        }
    }
}

/// Writes forward through a byte slice.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    /// Starts at the first byte of `buffer`.
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// Continues after the first `len` bytes of `buffer`, which were written earlier. A `len` past the end
    /// leaves no room.
    pub fn resume(buffer: &'a mut [u8], len: usize) -> Self {
        let len = len.min(buffer.len());
        Self { buffer, len }
    }

    /// Bytes written so far.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written yet.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Remaining room in bytes.
    pub const fn remaining(&self) -> usize {
        self.buffer.len().saturating_sub(self.len)
    }

    /// The bytes written so far.
    pub fn written(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }

    /// The remaining room. The caller fills it and then claims it with [`Writer::advance`]. The encoder
    /// writes a repair symbol directly into the outgoing packet this way.
    pub fn spare(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.len..).unwrap_or_default()
    }

    /// Claims `n` bytes that were filled through [`Writer::spare`].
    pub const fn advance(&mut self, n: usize) -> Result<(), Full> {
        match self.len.checked_add(n) {
            Some(len) if len <= self.buffer.len() => {
                self.len = len;
                Ok(())
            }
            _ => Err(Full),
        }
    }

    /// Appends `bytes`.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.spare().get_mut(..bytes.len()).ok_or(Full)?.copy_from_slice(bytes);
        self.advance(bytes.len())
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> Result<(), Full> {
        self.bytes(&[value])
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) -> Result<(), Full> {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends the low three bytes of `value`.
    pub(crate) fn u24(&mut self, value: u32) -> Result<(), Full> {
        let [_, low @ ..] = value.to_be_bytes();
        self.bytes(&low)
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) -> Result<(), Full> {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends `value` as a varint in its shortest form. A value above [`VARINT_MAX`] is a bug of the caller
    /// and is written as [`VARINT_MAX`].
    pub fn varint(&mut self, value: u64) -> Result<(), Full> {
        debug_assert!(value <= VARINT_MAX, "{value} does not fit a varint");
        let value = value.min(VARINT_MAX);
        match varint_len(value) {
            1 => self.bytes(&(value as u8).to_be_bytes()),
            2 => self.bytes(&(value as u16 | 0x4000).to_be_bytes()),
            4 => self.bytes(&(value as u32 | 0x8000_0000).to_be_bytes()),
            _ => self.bytes(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
        }
    }

    /// Overwrites written bytes from position `at`, for lengths that are known only later.
    pub(crate) fn patch(&mut self, at: usize, bytes: &[u8]) -> Result<(), Full> {
        let written = self.buffer.get_mut(..self.len).ok_or(Full)?;
        let place = written.get_mut(at..).and_then(|tail| tail.get_mut(..bytes.len())).ok_or(Full)?;
        place.copy_from_slice(bytes);
        Ok(())
    }

    /// Runs `write`, all or nothing. If it fails, the position is restored.
    pub(crate) fn atomically<T>(&mut self, write: impl FnOnce(&mut Self) -> Result<T, Full>) -> Result<T, Full> {
        let start = self.len;
        write(self).inspect_err(|_| self.len = start)
    }
}
