//! The codes of the wire: the only table of their code points, parameters and names.
//!
//! REPAIR frames, the handshake's parameter 9 and `--code` use it. A code of the codec that is missing here
//! cannot be chosen.

use core::fmt;

use tidewire_codec::Code;

use super::bytes::{Full, Reader, Writer, varint_len};
use super::frame::{MAX_SPAN, Malformed};
use tidewire_units::nearest;

/// A code with the parameters that it has unless others are given, its code point and its name (docs/wire.md
/// sections 5 and 7).
const CODES: [(Code, u8, &str); 7] = [
    (Code::Rlc, 0, "rlc"),
    (Code::Cauchy, 1, "cauchy"),
    (Code::Rlc16, 3, "rlc16"),
    (LT, 4, "lt"),
    (SEMI_RANDOM_LT, 5, "semi-random-lt"),
    (Code::RaptorQ, 6, "raptorq"),
    (Code::RsFft, 7, "rs-fft"),
];

/// c and delta of docs/sphinx.md section 5.
const LT: Code = Code::Lt { c_milli: 100, delta_milli: 500 };
/// The degree for 6 % loss by equation (1) of Sphinx. The policy `sphinx` chooses another for each block.
const SEMI_RANDOM_LT: Code = Code::SemiRandomLt { degree: 17 };

/// Largest parameter of [`Code::Lt`] in thousandths, as the codec checks it.
const MOST_MILLI: u16 = 1_000;

/// The table's entry of a code, whatever its parameters.
fn entry(code: Code) -> Option<(u8, &'static str)> {
    let is_same = |known: &Code| core::mem::discriminant(known) == core::mem::discriminant(&code);
    CODES.iter().find(|(known, ..)| is_same(known)).map(|&(_, point, name)| (point, name))
}

/// Code point of a code; `None` for a code without one.
pub(super) fn code_point(code: Code) -> Option<u8> {
    entry(code).map(|(point, _)| point)
}

/// Bytes that a code takes in a REPAIR: its code point and its parameters.
pub(super) const fn code_len(code: Code) -> usize {
    match code {
        Code::Lt { c_milli, delta_milli } => {
            1_usize.saturating_add(varint_len(c_milli as u64)).saturating_add(varint_len(delta_milli as u64))
        }
        Code::SemiRandomLt { degree } => 1_usize.saturating_add(varint_len(degree as u64)),
        _ => 1,
    }
}

/// The code with the parameters that take the most bytes in a lane with spans of at most `span` symbols. A
/// policy may choose them for each generation.
pub(crate) fn longest_parameters(code: Code, span: u16) -> Code {
    match code {
        Code::SemiRandomLt { .. } => Code::SemiRandomLt { degree: span },
        code => code,
    }
}

/// Reads a code point and the parameters of its code.
pub(super) fn read_code(r: &mut Reader<'_>) -> Result<Code, Malformed> {
    let point = r.u8()?;
    let known = CODES.iter().find(|(_, known, _)| *known == point).map(|&(code, ..)| code);
    match known.ok_or(Malformed::UnknownCode(point))? {
        Code::Lt { .. } => {
            let mut milli = |name| parameter(r, MOST_MILLI.into(), name);
            Ok(Code::Lt { c_milli: milli("c")?, delta_milli: milli("delta")? })
        }
        Code::SemiRandomLt { .. } => Ok(Code::SemiRandomLt { degree: parameter(r, MAX_SPAN, "degree")? }),
        code => Ok(code),
    }
}

fn parameter(r: &mut Reader<'_>, most: u64, name: &'static str) -> Result<u16, Malformed> {
    let value = r.varint()?;
    if (1..=most).contains(&value) { Ok(value as u16) } else { Err(Malformed::Field(name)) }
}

/// Writes the code point and the parameters. A code without a code point returns [`Full`].
pub(super) fn write_code(w: &mut Writer<'_>, code: Code) -> Result<(), Full> {
    w.u8(code_point(code).ok_or(Full)?)?;
    match code {
        Code::Lt { c_milli, delta_milli } => {
            w.varint(c_milli.into())?;
            w.varint(delta_milli.into())
        }
        Code::SemiRandomLt { degree } => w.varint(degree.into()),
        _ => Ok(()),
    }
}

/// Name of a code, without its parameters.
pub fn code_name(code: Code) -> &'static str {
    entry(code).map_or("a code that the wire does not know", |(_, name)| name)
}

/// A code as `--code` takes it and POLICY writes it: its name, and after a colon its parameters if they are
/// not the usual ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeName(pub Code);

impl fmt::Display for CodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(code_name(self.0))?;
        match self.0 {
            code if code == LT || code == SEMI_RANDOM_LT => Ok(()),
            Code::Lt { c_milli, delta_milli } => {
                write!(f, ":{},{}", f64::from(c_milli) / 1e3, f64::from(delta_milli) / 1e3)
            }
            Code::SemiRandomLt { degree } => write!(f, ":{degree}"),
            _ => Ok(()),
        }
    }
}

/// The code with this name and these parameters: `rlc`, `lt:0.1,0.5`, `semi-random-lt:17`.
///
/// # Errors
/// There is no such code, or its parameters are out of range; the text says what is allowed.
pub fn parse_code(text: &str) -> Result<Code, String> {
    let (name, parameters) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
    let found = CODES.iter().find(|(.., known)| *known == name).map(|&(code, ..)| code);
    let usual = found.ok_or_else(|| format!("unknown code {name:?}{}", nearest(name, &CODES.map(|(.., n)| n))))?;
    let Some(parameters) = parameters else { return Ok(usual) };
    match usual {
        Code::Lt { .. } => parse_lt(parameters)
            .ok_or_else(|| format!("bad code {text:?}; write it like lt:0.1,0.5 (c and delta, each 0.001 to 1)")),
        Code::SemiRandomLt { .. } => {
            let degree = parameters.parse().ok().filter(|degree| (1..=MAX_SPAN as u16).contains(degree));
            let bad = || format!("bad code {text:?}; write it like semi-random-lt:17 (degree, 1 to {MAX_SPAN})");
            degree.map(|degree| Code::SemiRandomLt { degree }).ok_or_else(bad)
        }
        _ => Err(format!("code {name} has no parameters, leave out :{parameters}")),
    }
}

fn parse_lt(text: &str) -> Option<Code> {
    let milli = |text: &str| {
        let milli = (text.parse::<f64>().ok()? * 1e3).round();
        (1.0..=f64::from(MOST_MILLI)).contains(&milli).then_some(milli as u16)
    };
    let (c, delta) = text.split_once(',')?;
    Some(Code::Lt { c_milli: milli(c)?, delta_milli: milli(delta)? })
}

/// A set of codes, as bits by code point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSet(pub(crate) u16);

impl CodeSet {
    /// The codes of a peer that announces none.
    pub(crate) const RLC: Self = Self(1);

    /// The codes that this crate decodes.
    pub fn all() -> Self {
        Self(CODES.iter().fold(0, |bits, &(_, point, _)| bits | bit(point)))
    }

    /// Whether `code` is in the set, whatever its parameters.
    pub fn contains(self, code: Code) -> bool {
        code_point(code).is_some_and(|point| self.0 & bit(point) != 0)
    }
}

fn bit(point: u8) -> u16 {
    1_u16.checked_shl(point.into()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_points_and_bits_are_those_of_one_table() {
        for (code, point, name) in CODES {
            assert_eq!((code_point(code), CodeName(code).to_string().as_str()), (Some(point), name));
            assert_eq!(parse_code(name), Ok(code));
            assert!(CodeSet::all().contains(code) && !CodeSet(!bit(point)).contains(code));
        }
        assert_eq!(code_point(Code::Rlc8681), None);
        assert_eq!(
            parse_code("cauchi"),
            Err("unknown code \"cauchi\"; did you mean \"cauchy\"? (allowed: rlc, cauchy, rlc16, lt, semi-random-lt, raptorq, rs-fft)"
                .into())
        );
        // As near as `rlc`, which would be more than a typing error away.
        assert!(parse_code("rlc61").is_err_and(|text| text.contains("did you mean \"rlc16\"?")));
    }

    #[test]
    fn parameters_survive_text_and_bytes_and_others_are_refused() {
        let lt = |c_milli, delta_milli| Code::Lt { c_milli, delta_milli };
        let semi = |degree| Code::SemiRandomLt { degree };
        for (code, text) in [
            (lt(1, 1_000), "lt:0.001,1"),
            (lt(30, 5), "lt:0.03,0.005"),
            (semi(1), "semi-random-lt:1"),
            (semi(1_024), "semi-random-lt:1024"),
            (Code::Rlc16, "rlc16"),
        ] {
            assert_eq!((parse_code(text), CodeName(code).to_string().as_str()), (Ok(code), text));
            let mut bytes = [0; 8];
            let mut w = Writer::new(&mut bytes);
            assert_eq!((write_code(&mut w, code), w.len()), (Ok(()), code_len(code)));
            assert_eq!(read_code(&mut Reader::new(w.written())), Ok(code));
        }
        for bad in ["lt:", "lt:0.1", "lt:0,1", "lt:0.1,1.1", "lt:nan,1", "semi-random-lt:0", "semi-random-lt:1025"] {
            assert!(parse_code(bad).is_err_and(|text| text.contains("write it like")), "{bad}");
        }
        assert!(parse_code("rlc:3").is_err_and(|text| text.contains("no parameters")));
        for (bytes, error) in [
            (&[200][..], Malformed::UnknownCode(200)),
            (&[4, 0, 1], Malformed::Field("c")),
            (&[4, 1, 0], Malformed::Field("delta")),
            (&[5, 0], Malformed::Field("degree")),
            (&[5, 0x44, 1], Malformed::Field("degree")),
        ] {
            assert_eq!(read_code(&mut Reader::new(bytes)), Err(error), "{bytes:?}");
        }
    }
}
