//! The codes of the wire: the only table of their code points and names.
//!
//! REPAIR frames, the handshake's parameter 9 and `--code` use it. A code of the codec that is missing here
//! cannot be chosen.

use tidewire_codec::Code;

use tidewire_units::nearest;

/// Code, code point, name (docs/wire.md section 7).
const CODES: [(Code, u8, &str); 3] = [(Code::Rlc, 0, "rlc"), (Code::Cauchy, 1, "cauchy"), (Code::Rlc16, 3, "rlc16")];

/// Code point of a code; `None` for a code without one.
pub(super) fn code_point(code: Code) -> Option<u8> {
    CODES.iter().find(|(known, ..)| *known == code).map(|&(_, point, _)| point)
}

/// The code of a code point.
pub(super) fn code_of(point: u8) -> Option<Code> {
    CODES.iter().find(|(_, known, _)| *known == point).map(|&(code, ..)| code)
}

/// Name of a code, as `--code` takes it.
pub fn code_name(code: Code) -> &'static str {
    CODES.iter().find(|(known, ..)| *known == code).map_or("a code that the wire does not know", |&(.., name)| name)
}

/// The code with this name.
///
/// # Errors
/// There is no such code; the text lists the codes.
pub fn parse_code(name: &str) -> Result<Code, String> {
    let found = CODES.iter().find(|(.., known)| *known == name).map(|&(code, ..)| code);
    found.ok_or_else(|| format!("unknown code {name:?}{}", nearest(name, &CODES.map(|(.., known)| known))))
}

/// A set of codes, as bits by code point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSet(pub(crate) u16);

impl CodeSet {
    /// The codes of a peer that announces none.
    pub const RLC: Self = Self(1);

    /// The codes that this crate decodes.
    pub fn all() -> Self {
        Self(CODES.iter().fold(0, |bits, &(_, point, _)| bits | bit(point)))
    }

    /// Whether `code` is in the set.
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
            assert_eq!((code_point(code), code_of(point), code_name(code)), (Some(point), Some(code), name));
            assert_eq!(parse_code(name), Ok(code));
            assert!(CodeSet::all().contains(code) && !CodeSet(!bit(point)).contains(code));
        }
        assert_eq!((code_point(Code::Rlc8681), code_of(200)), (None, None));
        assert_eq!(
            parse_code("cauchi"),
            Err("unknown code \"cauchi\"; did you mean \"cauchy\"? (allowed: rlc, cauchy, rlc16)".into())
        );
        // As near as `rlc`, which would be more than a typing error away.
        assert!(parse_code("rlc61").is_err_and(|text| text.contains("did you mean \"rlc16\"?")));
    }
}
