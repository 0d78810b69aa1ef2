//! Scenario files: a link as TOML, the same file for the simulator, the UDP proxy and the namespace lab.
//!
//! ```toml
//! seed = 7                    # whole number; all randomness follows from it
//!
//! [link]                      # both directions
//! rate = "25mbit"
//! rtt = "60ms"                # or delay, one way
//!
//! [forward]                   # where the data goes; overrides [link]
//! loss = "gilbert:10%,4"
//!
//! [back]                      # where the feedback goes; overrides [link]
//! loss = "5%"
//! ```
//!
//! The keys of a direction are [`SETTINGS`](crate::settings::SETTINGS). Every value but the seed is a text with its
//! unit. Files named by a value are looked up beside the scenario. A file is read whole before anything runs, and every
//! refusal names file, line and key.

use core::fmt;
use core::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::duplex::DuplexConfig;
use crate::settings::{Direction, SettingError, unknown_key};

/// What a scenario file says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scenario {
    /// Where all randomness of the run comes from; 1 if the file names none.
    pub seed: u64,
    /// The link, seeded.
    pub link: DuplexConfig,
}

impl Scenario {
    /// Reads the scenario file at `path`.
    ///
    /// # Errors
    /// See [`ScenarioProblem`].
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path).map_err(|error| ScenarioError {
            file: path.to_owned(),
            line: None,
            key: String::new(),
            problem: ScenarioProblem::Unreadable(error.to_string()),
        })?;
        Self::parse(&text, path)
    }

    /// Reads the text of the scenario file `path`, which is only used in messages and to find the files beside it.
    ///
    /// # Errors
    /// See [`ScenarioProblem`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ScenarioError> {
        Reader { text, path }.scenario()
    }
}

/// The top-level keys.
const TOP: [&str; 4] = ["seed", "link", "forward", "back"];

/// A file while it is read.
struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
}

type Entry<'t, 'a> = (&'t Spanned<std::borrow::Cow<'a, str>>, &'t Spanned<DeValue<'a>>);

impl<'a> Reader<'a> {
    fn scenario(&self) -> Result<Scenario, ScenarioError> {
        let document = DeTable::parse(self.text).map_err(|error| {
            let problem = ScenarioProblem::Syntax(error.message().to_owned());
            self.error(error.span().unwrap_or(0..0), String::new(), problem)
        })?;
        let table = document.get_ref();
        if let Some((key, _)) = table.iter().find(|(key, _)| !TOP.contains(&key.get_ref().as_ref())) {
            return Err(self.error(key.span(), key.get_ref().to_string(), ScenarioProblem::UnknownTopKey));
        }
        let seed = table.get_key_value("seed").map_or(Ok(1), |entry| self.seed(entry))?;
        let mut link = DuplexConfig::default();
        link.set_seed(seed);
        // In this order, whatever the file's: a direction of its own overrides what both share.
        for (name, direction) in [("link", Direction::Both), ("forward", Direction::Forward), ("back", Direction::Back)]
        {
            if let Some(entry) = table.get_key_value(name) {
                self.section(entry, direction, &mut link)?;
            }
        }
        Ok(Scenario { seed, link })
    }

    fn seed(&self, (key, value): Entry<'_, 'a>) -> Result<u64, ScenarioError> {
        let integer = value.get_ref().as_integer();
        let seed = integer.and_then(|integer| u64::from_str_radix(integer.as_str(), integer.radix()).ok());
        seed.ok_or_else(|| self.error(value.span(), key.get_ref().to_string(), ScenarioProblem::NotASeed))
    }

    fn section(
        &self,
        (name, value): Entry<'_, 'a>,
        direction: Direction,
        link: &mut DuplexConfig,
    ) -> Result<(), ScenarioError> {
        let name = name.get_ref();
        let Some(table) = value.get_ref().as_table() else {
            return Err(self.error(value.span(), name.to_string(), ScenarioProblem::NotASection));
        };
        let folder = self.path.parent().unwrap_or(Path::new(""));
        if let (Some((rtt, _)), true) = (table.get_key_value("rtt"), table.contains_key("delay")) {
            return Err(self.error(rtt.span(), format!("{name}.rtt"), ScenarioProblem::RttAndDelay));
        }
        for (key, value) in table {
            let refuse = |span, problem| self.error(span, format!("{name}.{}", key.get_ref()), problem);
            let Some(text) = value.get_ref().as_str() else {
                return Err(refuse(value.span(), ScenarioProblem::NotText));
            };
            link.set(direction, key.get_ref(), text, folder).map_err(|error| {
                let unknown = matches!(error, SettingError::UnknownKey { .. });
                let span = if unknown { key.span() } else { value.span() };
                refuse(span, ScenarioProblem::Setting(error))
            })?;
        }
        Ok(())
    }

    fn error(&self, span: Range<usize>, key: String, problem: ScenarioProblem) -> ScenarioError {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        ScenarioError { file: self.path.to_owned(), line: Some(line), key, problem }
    }
}

/// Why a scenario file was refused, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; `None` if the file could not be read at all.
    pub line: Option<usize>,
    /// The key, with its section; empty if the text is not TOML.
    pub key: String,
    /// What is wrong.
    pub problem: ScenarioProblem,
}

/// What is wrong with a scenario file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ScenarioProblem {
    /// The file cannot be read, for the system's reason.
    Unreadable(String),
    /// The text is not TOML, for the parser's reason.
    Syntax(String),
    /// There is no such section or top-level key.
    UnknownTopKey,
    /// The seed is not a whole number from 0 to 2^64 - 1.
    NotASeed,
    /// The name of a section stands for a plain value.
    NotASection,
    /// A setting is a number or something else where a text is wanted.
    NotText,
    /// Both `rtt` and `delay` say how long the way is.
    RttAndDelay,
    /// A setting was refused.
    Setting(SettingError),
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        f.write_str(" ")?;
        match &self.problem {
            ScenarioProblem::Unreadable(reason) => f.write_str(reason),
            ScenarioProblem::Syntax(reason) => f.write_str(reason.trim_end()),
            ScenarioProblem::UnknownTopKey => unknown_key(f, &self.key, &TOP),
            ScenarioProblem::NotASeed => write!(f, "write a whole number, such as seed = 7"),
            ScenarioProblem::NotASection => write!(f, "this is a section: write [{}] on a line of its own", self.key),
            ScenarioProblem::NotText => write!(f, "write the value with its unit in quotes, such as \"60ms\""),
            ScenarioProblem::RttAndDelay => write!(f, "rtt and delay both say how long the way is: remove one"),
            ScenarioProblem::Setting(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ScenarioError {}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::link::Capacity;

    fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        Scenario::parse(text, Path::new("lossy.toml"))
    }

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn directions_override_what_they_share() {
        let text = r#"
            seed = 7
            [back]
            loss = "none"
            jitter = "1ms"
            [link]
            rate = "25mbit"
            rtt = "60ms"
            loss = "gilbert:10%,4"
            [forward]
            delay = "40ms"
        "#;
        let Scenario { seed, link } = parse(text).unwrap();
        assert_eq!((seed, link.forward.seed), (7, 7));
        assert_ne!(link.back.seed, 7);
        assert_eq!(link.rtt(), Duration::from_millis(70));
        assert_eq!(link.forward.loss.to_string(), "gilbert:10%,4");
        assert_eq!(link.back.loss.to_string(), "none");
        assert_eq!((link.forward.jitter, link.back.jitter), (Duration::ZERO, Duration::from_millis(1)));
        let Capacity::Fixed(rate) = link.back.capacity else { panic!("both directions have the rate") };
        assert_eq!(rate.bits_per_second(), 25_000_000);
    }

    #[test]
    fn an_empty_file_is_a_perfect_link() {
        let Scenario { seed, link } = parse("").unwrap();
        assert_eq!((seed, link.rtt()), (1, Duration::ZERO));
        assert_eq!(parse("seed = 0xff").unwrap().seed, 255);
        assert_eq!(parse("seed = 1_000").unwrap().seed, 1_000);
        assert_eq!(parse("seed = 18446744073709551615").unwrap().seed, u64::MAX);
    }

    #[test]
    fn refusals_name_file_line_and_key() {
        let front = |text: &str, begins: &str| {
            let message = refused(text);
            assert!(message.starts_with(begins), "{message}");
        };
        front(
            "[link]\nrate = \"25mbit\"\n[forward]\nlos = \"1%\"\n",
            "lossy.toml:4: forward.los: no such key; did you mean \"loss\"? (allowed: rate, queue, ",
        );
        front(
            "seed = 1\n[forwrd]\nloss = \"1%\"",
            "lossy.toml:2: forwrd: no such key; did you mean \"forward\"? (allowed: seed, link, forward, back)",
        );
        front("[link]\n\nloss = \"120%\"", "lossy.toml:3: link.loss: \"120%\" is out of range (0% to 100%); write");
        front("[link]\nrate = 25", "lossy.toml:2: link.rate: write the value with its unit in quotes");
        front("[link]\nrate = \"25\"", "lossy.toml:2: link.rate: \"25\" has no unit; write for example \"25mbit\"");
        front("seed = -1", "lossy.toml:1: seed: write a whole number");
        front("link = \"fast\"", "lossy.toml:1: link: this is a section");
        front("[link]\ndelay = \"1ms\"\nrtt = \"2ms\"", "lossy.toml:3: link.rtt: rtt and delay both");
        front("[forward]\nrtt = \"2ms\"", "lossy.toml:2: forward.rtt: no such key");
        front("[link]\nloss = \"1%\"\nloss = \"2%\"", "lossy.toml:3: ");
        front("[link", "lossy.toml:1: ");
        let missing = Scenario::read(Path::new("/nowhere/x.toml")).unwrap_err();
        assert_eq!((missing.line, matches!(missing.problem, ScenarioProblem::Unreadable(_))), (None, true));
    }

    #[test]
    fn traces_are_found_beside_the_scenario() {
        let folder = std::env::temp_dir().join(format!("tidewire-scenario-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cell.trace"), "1\n2\n").unwrap();
        std::fs::write(folder.join("loss.txt"), "0100\n10\n").unwrap();
        std::fs::write(folder.join("bad.txt"), "012").unwrap();
        let at = |text: &str| Scenario::parse(text, &folder.join("s.toml"));
        let good = at("[link]\nrate = \"trace:cell.trace\"\nloss = \"trace:loss.txt\"");
        let bad = at("[link]\nloss = \"trace:bad.txt\"");
        std::fs::remove_dir_all(&folder).unwrap();
        let good = good.unwrap().link.back;
        assert_eq!(good.loss, crate::link::Loss::Trace([false, true, false, false, true, false].into()));
        assert!(matches!(good.capacity, Capacity::Trace(_)));
        assert!(bad.unwrap_err().to_string().contains("bad.txt: a loss trace is a row of 0"));
    }
}
