//! Rates, times, sizes and probabilities as people write them: a decimal number and a unit, which is never
//! implied.
//!
//! The scenario files and the command line share this grammar (`25mbit`, `60ms`, `150kB`, `10%`). Blanks
//! around the text and between number and unit are allowed. Every refusal shows a correct example.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

/// A data rate above zero, in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// `None` for zero: a link that carries nothing is a blackout, not a rate.
    pub const fn from_bits_per_second(bits_per_second: u64) -> Option<Self> {
        if bits_per_second == 0 { None } else { Some(Self(bits_per_second)) }
    }

    /// Bits per second, at least 1.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    /// `bit`, `kbit`, `mbit` or `gbit` per second, decimal: `25mbit` is 25,000,000 bit/s.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bits = parse(text, &RATE)?;
        Self::from_bits_per_second(bits.round() as u64).ok_or_else(|| RATE.error(text, UnitProblem::OutOfRange))
    }
}

impl fmt::Display for Rate {
    /// In the largest unit that leaves a whole number or at most three decimals; what it prints parses to the
    /// same rate.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000)]
            .into_iter()
            .find(|&(_, scale)| self.0 >= scale && self.0.is_multiple_of(scale / 1_000))
            .unwrap_or(("bit", 1));
        write!(f, "{}{unit}", self.0 as f64 / scale as f64)
    }
}

/// A number in `[0, 1]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0.0);

    /// `None` outside `[0, 1]`.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// The number, from 0 to 1.
    pub const fn value(self) -> f64 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = UnitError;

    /// A percentage from `0%` to `100%`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let percent = parse(text, &PROBABILITY)?;
        Self::new(percent / 100.0).ok_or_else(|| PROBABILITY.error(text, UnitProblem::OutOfRange))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Twelve digits hide that 7/100*100 is not quite 7.
        write!(f, "{}%", (self.0 * 1e14).round() / 1e12)
    }
}

/// Reads a length of time: `ns`, `us`, `ms`, `s`, `min` or `h`, to the nanosecond, at most 10 years.
///
/// # Errors
/// See [`UnitProblem`].
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    Ok(Duration::from_nanos(parse(text, &DURATION)?.round() as u64))
}

/// Reads a size in bytes: `B`, `kB`, `MB`, `GB` (decimal) or `KiB`, `MiB`, `GiB` (binary).
///
/// # Errors
/// See [`UnitProblem`].
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    Ok(parse(text, &SIZE)?.round() as u64)
}

/// Reads a fraction of data that must arrive in time, from 50 % to 99.9999 %.
///
/// # Errors
/// What is wrong, as a sentence.
pub fn parse_deliver(text: &str) -> Result<Probability, String> {
    let deliver: Probability = text.parse().map_err(|error: UnitError| error.to_string())?;
    if !(0.5..=0.999_999).contains(&deliver.value()) {
        return Err(
            "must be from 50% to 99.9999%; it is the fraction that arrives in time, and the rest arrives later".into(),
        );
    }
    Ok(deliver)
}

/// A text that is not a quantity of the kind wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitError {
    /// What was written.
    pub text: String,
    /// What is wrong with it.
    pub problem: UnitProblem,
    kind: &'static Kind,
}

/// What is wrong with a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitProblem {
    /// It does not begin with a decimal number without sign.
    NoNumber,
    /// The number stands alone.
    NoUnit,
    /// The unit is not one of this kind of quantity.
    UnknownUnit,
    /// The quantity is below or above what this kind allows.
    OutOfRange,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Kind { name, example, units, range, .. } = self.kind;
        write!(f, "\"{}\" ", self.text)?;
        match self.problem {
            UnitProblem::NoNumber => write!(f, "is not a {name}")?,
            UnitProblem::NoUnit => write!(f, "has no unit")?,
            UnitProblem::UnknownUnit => write!(f, "has no unit of a {name}")?,
            UnitProblem::OutOfRange => write!(f, "is out of range ({range})")?,
        }
        write!(f, "; write for example \"{example}\" (units:")?;
        units.iter().try_for_each(|(unit, _)| write!(f, " {unit}"))?;
        write!(f, ")")
    }
}

impl core::error::Error for UnitError {}

/// One kind of quantity and how it is written.
#[derive(Debug, PartialEq)]
struct Kind {
    name: &'static str,
    example: &'static str,
    units: &'static [(&'static str, f64)],
    /// In the base unit.
    most: f64,
    range: &'static str,
}

impl Kind {
    fn error(&'static self, text: &str, problem: UnitProblem) -> UnitError {
        UnitError { text: text.to_owned(), problem, kind: self }
    }
}

/// Reads a quantity; the result is in the kind's base unit, finite and not negative.
fn parse(text: &str, kind: &'static Kind) -> Result<f64, UnitError> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let number: f64 = number.parse().map_err(|_| kind.error(text, UnitProblem::NoNumber))?;
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Err(kind.error(text, UnitProblem::NoUnit));
    }
    let known = kind.units.iter().find(|(name, _)| *name == unit);
    let (_, scale) = known.ok_or_else(|| kind.error(text, UnitProblem::UnknownUnit))?;
    let value = number * scale;
    if value <= kind.most { Ok(value) } else { Err(kind.error(text, UnitProblem::OutOfRange)) }
}

static RATE: Kind = Kind {
    name: "rate",
    example: "25mbit",
    units: &[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)],
    // A thousand times the fastest port there is; keeps the arithmetic of a link inside 64 bits.
    most: 1e15,
    range: "above 0, at most 1000000gbit",
};

static PROBABILITY: Kind =
    Kind { name: "percentage", example: "10%", units: &[("%", 1.0)], most: 100.0, range: "0% to 100%" };

static DURATION: Kind = Kind {
    name: "time",
    example: "60ms",
    units: &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3_600e9)],
    // Ten years: beyond any run, and sums of several stay far inside 64 bits of nanoseconds.
    most: 10.0 * 365.0 * 24.0 * 3_600e9,
    range: "at most 87600h",
};

static SIZE: Kind = Kind {
    name: "size",
    example: "150kB",
    units: &[
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
    ],
    // A petabyte: exact in a 64-bit float, and no size of anything in this project.
    most: 1e15,
    range: "at most 1000000GB",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        let rate = |text: &str| text.parse::<Rate>().map(Rate::bits_per_second);
        assert_eq!(rate("25mbit"), Ok(25_000_000));
        assert_eq!(rate(" 1.1 gbit "), Ok(1_100_000_000));
        assert_eq!(rate("0.5kbit"), Ok(500));
        assert_eq!(parse_duration("60ms"), Ok(Duration::from_millis(60)));
        assert_eq!(parse_duration("1.1ms"), Ok(Duration::from_micros(1_100)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(parse_size("150kB"), Ok(150_000));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!("10%".parse(), Ok(Probability(0.1)));
        assert_eq!("100 %".parse(), Ok(Probability(1.0)));
    }

    #[test]
    fn says_what_is_wrong_and_shows_an_example() {
        let message = |text: &str| text.parse::<Rate>().unwrap_err().to_string();
        assert_eq!(message("25"), r#""25" has no unit; write for example "25mbit" (units: bit kbit mbit gbit)"#);
        assert!(message("fast").starts_with(r#""fast" is not a rate; write for example "25mbit""#));
        assert!(message("25mbps").starts_with(r#""25mbps" has no unit of a rate; write for example "25mbit""#));
        assert!(message("0mbit").starts_with(r#""0mbit" is out of range (above 0"#));
        assert!(message("-1mbit").starts_with(r#""-1mbit" is not a rate"#));
        assert!(message("1.2.3mbit").starts_with(r#""1.2.3mbit" is not a rate"#));
        let percent = "101%".parse::<Probability>().unwrap_err();
        assert_eq!(percent.to_string(), r#""101%" is out of range (0% to 100%); write for example "10%" (units: %)"#);
        assert_eq!("0.1".parse::<Probability>().unwrap_err().problem, UnitProblem::NoUnit);
        assert_eq!(parse_duration("99999999h").unwrap_err().problem, UnitProblem::OutOfRange);
        assert_eq!(parse_size("").unwrap_err().problem, UnitProblem::NoNumber);
    }

    #[test]
    fn what_is_printed_reads_back() {
        for bits in [1, 999, 1_500, 25_000_000, 1_000_001, 2_500_000_000, 999_999_999_999] {
            let rate = Rate::from_bits_per_second(bits).unwrap();
            assert_eq!(rate.to_string().parse(), Ok(rate), "{rate}");
        }
        for percent in ["0%", "7%", "0.01%", "99.9%", "100%"] {
            assert_eq!(percent.parse::<Probability>().unwrap().to_string(), percent);
        }
        assert_eq!(Rate(25_000_000).to_string(), "25mbit");
        assert_eq!(Rate(2_500_000).to_string(), "2.5mbit");
    }
}
