//! Scenario files: a link as TOML, the same file for the simulator, the UDP proxy and the namespace lab.
//! [`crate::network`] has the files of networks.
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
//!
//! [near]                      # the end that connects; [far] is the one that listens
//! redundancy = "every:5"
//!
//! [[flow]]                    # one stream with data one way; any number of them
//! from = "near"
//! bytes = "48MB"
//! rate = "12.5mbit"           # without: as fast as the path takes it
//!
//! [[flow]]                    # a video instead of bytes: its reader plays it
//! from = "near"
//! video = "8mbit,60s"         # computed frames, or "trace:FILE": see FrameTrace::parse
//! pace = "live"               # each frame at its time; "best-effort" without this key
//! startup = "2s"              # content that starts playback; resume is that after a stall
//! ```
//!
//! The keys of a direction are [`SETTINGS`](crate::settings::SETTINGS), those of an end
//! [`END_KEYS`](crate::work::END_KEYS), those of a flow [`FLOW_KEYS`](crate::work::FLOW_KEYS). A file without
//! flows describes a link only. Every value but the seed is a text with its unit. Files named by a value are
//! looked up beside the scenario. A file is read whole before anything runs, and every refusal names file,
//! line and key.

use core::fmt;
use core::ops::Range;
use std::path::{Path, PathBuf};

use tidewire_proto::config::{Config, ConfigError};
use tidewire_units::unknown_key;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::duplex::DuplexConfig;
use crate::load::Flow;
use crate::pair::End;
use crate::report::Trial;
use crate::settings::{Direction, SettingError};
use crate::work::{NOT_WITH_VIDEO, set_end, set_flow};

/// The contents of a scenario file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scenario {
    /// The source of all randomness of the run; 1 if the file has no seed.
    pub seed: u64,
    /// The link, with its seeds.
    pub link: DuplexConfig,
    /// The end that connects.
    pub near: Config,
    /// The end that listens.
    pub far: Config,
    /// The flows; empty if the file has none.
    pub flows: Vec<Flow>,
}

impl Scenario {
    /// Reads the scenario file at `path`.
    ///
    /// # Errors
    /// See [`ScenarioProblem`].
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        Self::parse(&Self::text(path)?, path)
    }

    /// The text of the file at `path`.
    pub(crate) fn text(path: &Path) -> Result<String, ScenarioError> {
        std::fs::read_to_string(path).map_err(|error| ScenarioError {
            file: path.to_owned(),
            line: None,
            key: String::new(),
            problem: ScenarioProblem::Unreadable(error.to_string()),
        })
    }

    /// Parses the text of the scenario file `path`. The path is used in error messages and to find the files
    /// beside it.
    ///
    /// # Errors
    /// See [`ScenarioProblem`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ScenarioError> {
        Reader { text, path }.scenario()
    }

    /// The run that the scenario describes.
    pub fn trial(&self) -> Trial {
        let trial = Trial::new(self.link.clone(), self.flows.clone(), self.seed);
        Trial { near: self.near.clone(), far: self.far.clone(), ..trial }
    }
}

/// The top-level keys.
const TOP: [&str; 7] = ["seed", "link", "forward", "back", "near", "far", "flow"];

/// A file that is being read.
pub(crate) struct Reader<'a> {
    pub(crate) text: &'a str,
    pub(crate) path: &'a Path,
}

pub(crate) type Entry<'t, 'a> = (&'t Spanned<std::borrow::Cow<'a, str>>, &'t Spanned<DeValue<'a>>);

impl<'a> Reader<'a> {
    fn scenario(&self) -> Result<Scenario, ScenarioError> {
        let document = self.document()?;
        let table = document.get_ref();
        if let Some((key, _)) = table.get_key_value("node") {
            return Err(self.error(key.span(), "node".to_owned(), ScenarioProblem::IsNetwork));
        }
        if let Some((key, _)) = table.iter().find(|(key, _)| !TOP.contains(&key.get_ref().as_ref())) {
            return Err(self.error(key.span(), key.get_ref().to_string(), ScenarioProblem::UnknownTopKey));
        }
        let seed = table.get_key_value("seed").map_or(Ok(1), |entry| self.seed(entry))?;
        let mut link = DuplexConfig::default();
        link.set_seed(seed);
        // In this order, whatever the order in the file: a section for one direction overrides the shared
        // section.
        for (name, direction) in [("link", Direction::Both), ("forward", Direction::Forward), ("back", Direction::Back)]
        {
            if let Some(entry) = table.get_key_value(name) {
                self.section(entry, direction, &mut link)?;
            }
        }
        self.check(table, &link)?;
        let end = |name| table.get_key_value(name).map_or(Ok(Config::default()), |entry| self.end(entry));
        let flows = table.get_key_value("flow").map_or(Ok(Vec::new()), |entry| self.flows(entry, seed))?;
        Ok(Scenario { seed, link, near: end("near")?, far: end("far")?, flows })
    }

    pub(crate) fn document(&self) -> Result<Spanned<DeTable<'a>>, ScenarioError> {
        DeTable::parse(self.text).map_err(|error| {
            let problem = ScenarioProblem::Syntax(error.message().to_owned());
            self.error(error.span().unwrap_or(0..0), String::new(), problem)
        })
    }

    fn end(&self, (name, value): Entry<'_, 'a>) -> Result<Config, ScenarioError> {
        let (name, mut config) = (name.get_ref(), Config::builder());
        let table = self.table(name, value)?;
        // The profile comes first, wherever it stands, because the other keys change it.
        for of_profile in [true, false] {
            let set = |key: &str, text: &str| {
                if (key == "profile") == of_profile { set_end(&mut config, key, text) } else { Ok(()) }
            };
            self.texts(name, table, &[], set)?;
        }
        let refuse = |error: ConfigError| {
            let problem = ScenarioProblem::Setting(SettingError::Refused(error.to_string()));
            self.error(value.span(), name.to_string(), problem)
        };
        config.build().map_err(refuse)
    }

    fn flows(&self, (name, value): Entry<'_, 'a>, seed: u64) -> Result<Vec<Flow>, ScenarioError> {
        let name = name.get_ref();
        let refuse = || self.error(value.span(), name.to_string(), ScenarioProblem::NotAList);
        value.get_ref().as_array().ok_or_else(refuse)?.iter().map(|value| self.flow(name, value, seed)).collect()
    }

    fn flow(&self, name: &str, value: &Spanned<DeValue<'a>>, seed: u64) -> Result<Flow, ScenarioError> {
        let table = self.table(name, value)?;
        let has_video = table.contains_key("video");
        let replaced = |key: &&str| has_video && NOT_WITH_VIDEO.contains(key);
        if let Some((key, _)) = table.iter().find(|(key, _)| replaced(&key.get_ref().as_ref())) {
            return Err(self.error(key.span(), format!("{name}.{}", key.get_ref()), ScenarioProblem::NotWithVideo));
        }
        for needed in ["from", if has_video { "video" } else { "bytes" }] {
            if !table.contains_key(needed) {
                return Err(self.error(value.span(), format!("{name}.{needed}"), ScenarioProblem::Missing));
            }
        }
        let (mut flow, folder) = (Flow::bulk(End::Near, 0), self.path.parent().unwrap_or(Path::new("")));
        // The video comes first, wherever it stands, because other keys change it.
        for of_video in [true, false] {
            let set = |key: &str, text: &str| {
                if (key == "video") == of_video { set_flow(&mut flow, key, text, folder, seed) } else { Ok(()) }
            };
            self.texts(name, table, &[], set)?;
        }
        Ok(flow)
    }

    pub(crate) fn seed(&self, (key, value): Entry<'_, 'a>) -> Result<u64, ScenarioError> {
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
        let table = self.table(name, value)?;
        let folder = self.path.parent().unwrap_or(Path::new(""));
        self.one_delay(name, table)?;
        self.texts(name, table, &[], |key, text| link.set(direction, key, text, folder))
    }

    /// Refuses slots on a link without a fixed rate.
    fn check(&self, table: &DeTable<'a>, link: &DuplexConfig) -> Result<(), ScenarioError> {
        for (name, checked) in [("back", link.back.check()), ("forward", link.forward.check()), ("link", link.check())]
        {
            let slot = table.get(name).and_then(|section| section.get_ref().as_table()?.get_key_value("slot"));
            if let (Some((slot, _)), Err(error)) = (slot, checked) {
                return Err(self.error(slot.span(), format!("{name}.slot"), ScenarioProblem::Setting(error)));
            }
        }
        Ok(())
    }

    /// Refuses `rtt` beside `delay`.
    pub(crate) fn one_delay(&self, name: &str, table: &DeTable<'a>) -> Result<(), ScenarioError> {
        match (table.get_key_value("rtt"), table.contains_key("delay")) {
            (Some((rtt, _)), true) => Err(self.error(rtt.span(), format!("{name}.rtt"), ScenarioProblem::RttAndDelay)),
            _ => Ok(()),
        }
    }

    pub(crate) fn table<'t>(
        &self,
        name: &str,
        value: &'t Spanned<DeValue<'a>>,
    ) -> Result<&'t DeTable<'a>, ScenarioError> {
        let refuse = || self.error(value.span(), name.to_owned(), ScenarioProblem::NotASection);
        value.get_ref().as_table().ok_or_else(refuse)
    }

    /// Passes every key and its text to `set`, but for the keys in `but`.
    pub(crate) fn texts(
        &self,
        name: &str,
        table: &DeTable<'a>,
        but: &[&str],
        mut set: impl FnMut(&str, &str) -> Result<(), SettingError>,
    ) -> Result<(), ScenarioError> {
        for (key, value) in table.iter().filter(|(key, _)| !but.contains(&key.get_ref().as_ref())) {
            let refuse = |span, problem| self.error(span, format!("{name}.{}", key.get_ref()), problem);
            let Some(text) = value.get_ref().as_str() else {
                return Err(refuse(value.span(), ScenarioProblem::NotText));
            };
            set(key.get_ref(), text).map_err(|error| {
                let unknown = matches!(error, SettingError::UnknownKey { .. });
                let span = if unknown { key.span() } else { value.span() };
                refuse(span, ScenarioProblem::Setting(error))
            })?;
        }
        Ok(())
    }

    pub(crate) fn error(&self, span: Range<usize>, key: String, problem: ScenarioProblem) -> ScenarioError {
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
    /// The line, from 1; `None` if the file could not be read.
    pub line: Option<usize>,
    /// The key with its section; empty if the text is not TOML.
    pub key: String,
    /// What is wrong.
    pub problem: ScenarioProblem,
}

/// What is wrong with a scenario file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ScenarioProblem {
    /// The file cannot be read, for the reason that the system gave.
    Unreadable(String),
    /// The text is not TOML, for the reason that the parser gave.
    Syntax(String),
    /// The section or top-level key is unknown.
    UnknownTopKey,
    /// The seed is not a whole number from 0 to 2^64 - 1.
    NotASeed,
    /// A section has a plain value instead of keys.
    NotASection,
    /// `flow` is not a list of sections.
    NotAList,
    /// A flow lacks this key.
    Missing,
    /// A flow with a video has a key that the video replaces.
    NotWithVideo,
    /// A setting is not a text.
    NotText,
    /// A network is where two ends are needed.
    IsNetwork,
    /// Both `rtt` and `delay` are set.
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
            ScenarioProblem::UnknownTopKey => f.write_str(&unknown_key(&self.key, &TOP)),
            ScenarioProblem::NotASeed => write!(f, "write a whole number, such as seed = 7"),
            ScenarioProblem::NotASection => write!(f, "this is a section: write [{}] on a line of its own", self.key),
            ScenarioProblem::NotAList => write!(f, "flows are a list: write [[{}]] on a line of its own", self.key),
            ScenarioProblem::Missing => {
                write!(f, "this key is missing: a flow needs at least from = \"near\" and bytes = \"48MB\"")
            }
            ScenarioProblem::NotWithVideo => write!(f, "the video decides this: remove the key, or remove video"),
            ScenarioProblem::NotText => write!(f, "write the value with its unit in quotes, such as \"60ms\""),
            ScenarioProblem::IsNetwork => write!(
                f,
                "this file describes a network: use `tidewire-lab sim`, `tidewire-lab run` or `tidewire-lab check`, or write [link] for two ends"
            ),
            ScenarioProblem::RttAndDelay => write!(f, "rtt and delay both set the delay of the link: remove one"),
            ScenarioProblem::Setting(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ScenarioError {}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use tidewire_codec::Code;
    use tidewire_proto::profile::block;
    use tidewire_proto::rate::RateControl;
    use tidewire_proto::redundancy::Redundancy;

    use super::*;
    use crate::link::Capacity;
    use crate::video::{Pace, Synthetic};

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
        let Scenario { seed, link, .. } = parse(text).unwrap();
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
        let Scenario { seed, link, .. } = parse("").unwrap();
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
            "lossy.toml:2: forwrd: no such key; did you mean \"forward\"? (allowed: seed, link, forward, back, near, far, flow)",
        );
        front("[link]\n\nloss = \"120%\"", "lossy.toml:3: link.loss: \"120%\" is out of range (0% to 100%); write");
        front("[link]\nrate = 25", "lossy.toml:2: link.rate: write the value with its unit in quotes");
        front("[link]\nrate = \"25\"", "lossy.toml:2: link.rate: \"25\" has no unit; write for example \"25mbit\"");
        front("seed = -1", "lossy.toml:1: seed: write a whole number");
        front("link = \"fast\"", "lossy.toml:1: link: this is a section");
        front("[link]\ndelay = \"1ms\"\nrtt = \"2ms\"", "lossy.toml:3: link.rtt: rtt and delay both");
        front("[forward]\nrtt = \"2ms\"", "lossy.toml:2: forward.rtt: no such key");
        front("[link]\nloss = \"1%\"\nloss = \"2%\"", "lossy.toml:3: ");
        front("[link]\nslot = \"9ms:1ms\"\n[back]\nrate = \"1mbit\"", "lossy.toml:2: link.slot: slots need a fixed");
        front("[link]\nrate = \"1mbit\"\n[back]\nslot = \"9ms:1ms\"\nrate = \"unlimited\"", "lossy.toml:4: back.slot");
        parse("[link]\nslot = \"9ms:1ms\"\nrate = \"1mbit\"").unwrap();
        front("[link", "lossy.toml:1: ");
        let missing = Scenario::read(Path::new("/nowhere/x.toml")).unwrap_err();
        assert_eq!((missing.line, matches!(missing.problem, ScenarioProblem::Unreadable(_))), (None, true));
    }

    #[test]
    fn flows_and_ends_are_read() {
        let text = r#"
            [near]
            rate_control = "fixed:25mbit"
            profile = "block:32,8"
            code = "rlc16"
            max_overhead = "30%"
            [[flow]]
            from = "near"
            bytes = "48MB"
            [[flow]]
            from = "far"
            bytes = "1MB"
            rate = "1mbit"
            deaf = "2s"
            start = "500ms"
        "#;
        let scenario = parse(text).unwrap();
        assert_eq!(scenario.near.profile().redundancy, block(32, 8).redundancy);
        assert_eq!((scenario.near.profile().code, scenario.far.profile().code), (Code::Rlc16, Code::Rlc));
        assert_eq!(scenario.near.profile().rate_control, RateControl::Fixed { bits_per_second: 25_000_000 });
        assert_eq!((scenario.near.max_overhead(), scenario.far.profile().redundancy), (0.3, Redundancy::ADAPTIVE));
        assert_eq!(scenario.flows[0].bytes, 48_000_000);
        let second = &scenario.flows[1];
        assert_eq!((second.from, second.rate, second.deaf.as_millis()), (End::Far, Some(125_000), 2_000));
        assert_eq!(scenario.trial().flows.len(), 2);

        assert!(refused("[near]\nredundancy = \"most\"").starts_with("lossy.toml:2: near.redundancy: bad redundancy"));
        let unknown = refused("[near]\ncode = \"cauchi\"");
        assert!(
            unknown.starts_with("lossy.toml:2: near.code: unknown code \"cauchi\"; did you mean \"cauchy\"?"),
            "{unknown}"
        );
        // Keys may come in any order. Only the whole section is checked.
        assert!(parse("[near]\ncode = \"rlc16\"\nprofile = \"block:32,8\"").is_ok());
        let sliding = refused("[link]\n[near]\ncode = \"cauchy\"");
        assert!(sliding.starts_with("lossy.toml:2: near: code cauchy needs generations"), "{sliding}");
        assert!(refused("[[flow]]\nfrom = \"near\"").contains("flow.bytes: this key is missing"));
        assert!(refused("[[flow]]\nfrom = \"left\"\nbytes = \"1B\"").contains("lossy.toml:2: flow.from:"));
        assert!(refused("[[flow]]\nbyte = \"1B\"\nbytes = \"1B\"\nfrom = \"far\"").contains("flow.byte: no such key"));
        assert!(refused("flow = \"fast\"").contains("write [[flow]]"));
    }

    #[test]
    fn a_video_takes_the_place_of_bytes() {
        let flow = |text: &str| parse(&format!("seed = 7\n[[flow]]\nfrom = \"far\"\n{text}"));
        let computed = flow("startup = \"3s\"\npace = \"live\"\nvideo = \"8mbit,60s\"\nstart = \"1s\"").unwrap();
        let computed = &computed.flows[0];
        let video = computed.video.as_ref().unwrap();
        assert_eq!((computed.from, computed.bytes, computed.start.as_millis()), (End::Far, 60_000_000, 1_000));
        assert_eq!((video.pace, video.rules.startup.as_millis()), (Pace::Live, 3_000));
        assert_eq!(*video.trace, Synthetic::new(8_000_000, 7).trace(Duration::from_secs(60)).unwrap());
        assert_eq!(flow("video = \"8mbit,1s\"").unwrap().flows[0].video.as_ref().unwrap().pace, Pace::BestEffort);

        for (text, begins) in [
            ("video = \"8mbit,1s\"\nbytes = \"1MB\"", "lossy.toml:5: flow.bytes: the video decides this: remove"),
            ("rate = \"1mbit\"\nvideo = \"8mbit,1s\"", "lossy.toml:4: flow.rate: the video decides this"),
            ("bytes = \"1MB\"\npace = \"live\"", "lossy.toml:5: flow.pace: this key is for a video: set video too"),
            ("video = \"8mbit\"", "lossy.toml:4: flow.video: \"8mbit\" is incomplete; write for example \"8mbit,60s\""),
            ("video = \"8,60s\"", "lossy.toml:4: flow.video: \"8\" has no unit"),
            ("video = \"8mbit,0s\"", "lossy.toml:4: flow.video: the video would have 0 frames: choose"),
            ("video = \"trace:no.txt\"", "lossy.toml:4: flow.video: no.txt: "),
            ("video = \"8mbit,1s\"\npace = \"slow\"", "lossy.toml:5: flow.pace: \"slow\" is no pace; write"),
            ("vide = \"8mbit,1s\"\nbytes = \"1B\"", "lossy.toml:4: flow.vide: no such key; did you mean \"video\"?"),
        ] {
            let message = flow(text).unwrap_err().to_string();
            assert!(message.starts_with(begins), "{message}");
        }
    }

    #[test]
    fn traces_are_found_beside_the_scenario() {
        let folder = std::env::temp_dir().join(format!("tidewire-scenario-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cell.trace"), "1\n2\n").unwrap();
        std::fs::write(folder.join("loss.txt"), "0100\n10\n").unwrap();
        std::fs::write(folder.join("bad.txt"), "01\n012").unwrap();
        std::fs::write(folder.join("empty.txt"), "\n").unwrap();
        std::fs::write(folder.join("frames.txt"), "0 500\n40 250\n").unwrap();
        std::fs::write(folder.join("past.txt"), "# x\n40 500\n0 250\n").unwrap();
        let at = |text: &str| Scenario::parse(text, &folder.join("s.toml"));
        let good = at("[link]\nrate = \"trace:cell.trace\"\nloss = \"trace:loss.txt\"");
        let bad = at("[link]\nloss = \"trace:bad.txt\"");
        let empty = at("[link]\nloss = \"trace:empty.txt\"").unwrap_err().to_string();
        let video = at("[[flow]]\nfrom = \"near\"\nvideo = \"trace:frames.txt\"");
        let past = at("[[flow]]\nfrom = \"near\"\nvideo = \"trace:past.txt\"").unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(empty.contains("empty.txt: it is empty: a loss trace is"), "{empty}");
        assert_eq!(video.unwrap().flows[0].bytes, 750);
        assert!(past.contains("past.txt: line 3 lies before the frame above it"), "{past}");
        let good = good.unwrap().link.back;
        assert_eq!(good.loss, crate::link::Loss::Trace([false, true, false, false, true, false].into()));
        assert!(matches!(good.capacity, Capacity::Trace(_)));
        let bad = bad.unwrap_err().to_string();
        assert!(
            bad.contains("s.toml:2: link.loss: ")
                && bad.contains("bad.txt: line 2 has a `2`: a loss trace is a row of 0"),
            "{bad}"
        );
    }
}
