//! The fields of entries as bytes. [`Pass`] goes over the fields of an event in one direction: [`Encoder`]
//! writes what they hold, [`Decoder`] fills them in. So the order of the fields exists once.

use core::time::Duration;

/// Longest text in bytes. The longest of a connection is the reason of a CLOSE, with 256.
const MAX_TEXT: u64 = 1_024;

/// What is wrong with the bytes of a block that has the right checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// The block ends within an entry.
    #[error("an entry is cut off")]
    Short,
    /// A number has more than 64 bits.
    #[error("a number has more than 64 bits")]
    Number,
    /// A text is longer than allowed, or is not UTF-8.
    #[error("a text is too long or not UTF-8")]
    Text,
    /// No event has this tag.
    #[error("no event has the tag {0}")]
    Tag(u8),
    /// A field has a value that it cannot have.
    #[error("the field `{0}` has a value that it cannot have")]
    Value(&'static str),
}

/// A sequence of numbers of which the differences are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Series(pub usize);

pub(crate) const SERIES: usize = 17;

/// Goes over the fields of an event.
pub(crate) trait Pass {
    fn byte(&mut self, value: &mut u8) -> Result<(), Corrupt>;
    /// 7 bits in each byte, the lowest first.
    fn number(&mut self, value: &mut u64) -> Result<(), Corrupt>;
    /// A number of a series.
    fn follow(&mut self, series: Series, value: &mut u64) -> Result<(), Corrupt>;
    /// A float of 8 bytes.
    fn float(&mut self, value: &mut f64) -> Result<(), Corrupt>;
    /// A float of 4 bytes.
    fn short_float(&mut self, value: &mut f64) -> Result<(), Corrupt>;
    fn text(&mut self, value: &mut String) -> Result<(), Corrupt>;

    /// Yes or no.
    fn flag(&mut self, value: &mut bool) -> Result<(), Corrupt> {
        let mut byte = u8::from(*value);
        self.byte(&mut byte)?;
        *value = match byte {
            0 => false,
            1 => true,
            _ => return Err(Corrupt::Value("flag")),
        };
        Ok(())
    }

    /// A time in microseconds.
    fn time(&mut self, value: &mut Duration) -> Result<(), Corrupt> {
        let mut micros = micros(*value);
        self.number(&mut micros)?;
        *value = Duration::from_micros(micros);
        Ok(())
    }
}

/// Whole microseconds, saturating.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Writes fields.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    pub bytes: Vec<u8>,
    last: [u64; SERIES],
}

impl Encoder {
    /// Forgets everything, for the next block.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.last = [0; SERIES];
    }

    /// Writes a number with a sign.
    pub fn signed(&mut self, value: i64) {
        put_number(&mut self.bytes, ((value << 1) ^ (value >> 63)) as u64);
    }
}

/// 7 bits in each byte, the lowest first; the top bit says that more follow.
pub(crate) fn put_number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

impl Pass for Encoder {
    fn byte(&mut self, value: &mut u8) -> Result<(), Corrupt> {
        self.bytes.push(*value);
        Ok(())
    }

    fn number(&mut self, value: &mut u64) -> Result<(), Corrupt> {
        put_number(&mut self.bytes, *value);
        Ok(())
    }

    fn follow(&mut self, series: Series, value: &mut u64) -> Result<(), Corrupt> {
        let difference = value.wrapping_sub(self.last[series.0]) as i64;
        self.last[series.0] = *value;
        self.signed(difference);
        Ok(())
    }

    fn float(&mut self, value: &mut f64) -> Result<(), Corrupt> {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn short_float(&mut self, value: &mut f64) -> Result<(), Corrupt> {
        self.bytes.extend_from_slice(&(*value as f32).to_le_bytes());
        Ok(())
    }

    fn text(&mut self, value: &mut String) -> Result<(), Corrupt> {
        let mut end = value.len().min(MAX_TEXT as usize);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        put_number(&mut self.bytes, end as u64);
        self.bytes.extend_from_slice(&value.as_bytes()[..end]);
        Ok(())
    }
}

/// Reads fields.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    last: [u64; SERIES],
}

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, last: [0; SERIES] }
    }

    /// Number of bytes that were not read.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(Corrupt::Short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn take_number(&mut self) -> Result<u64, Corrupt> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(Corrupt::Number);
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Corrupt::Number)
    }

    /// Reads a number with a sign.
    pub fn signed(&mut self) -> Result<i64, Corrupt> {
        let coded = self.take_number()?;
        Ok((coded >> 1) as i64 ^ -((coded & 1) as i64))
    }
}

impl Pass for Decoder<'_> {
    fn byte(&mut self, value: &mut u8) -> Result<(), Corrupt> {
        [*value] = self.take()?;
        Ok(())
    }

    fn number(&mut self, value: &mut u64) -> Result<(), Corrupt> {
        *value = self.take_number()?;
        Ok(())
    }

    fn follow(&mut self, series: Series, value: &mut u64) -> Result<(), Corrupt> {
        *value = self.last[series.0].wrapping_add(self.signed()? as u64);
        self.last[series.0] = *value;
        Ok(())
    }

    fn float(&mut self, value: &mut f64) -> Result<(), Corrupt> {
        *value = f64::from_le_bytes(self.take()?);
        Ok(())
    }

    fn short_float(&mut self, value: &mut f64) -> Result<(), Corrupt> {
        *value = f32::from_le_bytes(self.take()?).into();
        Ok(())
    }

    fn text(&mut self, value: &mut String) -> Result<(), Corrupt> {
        let len = self.take_number()?;
        if len > MAX_TEXT {
            return Err(Corrupt::Text);
        }
        let (taken, rest) = self.bytes.split_at_checked(len as usize).ok_or(Corrupt::Short)?;
        *value = core::str::from_utf8(taken).map_err(|_| Corrupt::Text)?.to_owned();
        self.bytes = rest;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_known_bytes() {
        let mut encoder = Encoder::default();
        for value in [0, 127, 128, 300, u64::MAX] {
            encoder.number(&mut { value }).unwrap();
        }
        let expected = [&[0, 127, 0x80, 1, 0xac, 2][..], &[0xff; 9], &[1]].concat();
        assert_eq!(encoder.bytes, expected);
        encoder.clear();
        [0, -1, 1, i64::MIN].into_iter().for_each(|value| encoder.signed(value));
        assert_eq!(encoder.bytes, [&[0, 1, 2][..], &[0xff; 9], &[1]].concat());
    }

    #[test]
    fn a_number_of_65_bits_and_a_long_text_are_refused() {
        let mut value = 0;
        assert_eq!(Decoder::new(&[0xff; 10]).number(&mut value), Err(Corrupt::Number));
        assert_eq!(Decoder::new(&[0x80; 3]).number(&mut value), Err(Corrupt::Short));
        let mut text = String::new();
        assert_eq!(Decoder::new(&[0x81, 0x08]).text(&mut text), Err(Corrupt::Text));
        assert_eq!(Decoder::new(&[2, 0xff, 0xff]).text(&mut text), Err(Corrupt::Text));
        assert_eq!(Decoder::new(&[2, b'a']).text(&mut text), Err(Corrupt::Short));
    }
}
