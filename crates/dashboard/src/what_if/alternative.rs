//! The choices of a replay: what the user named, or a few redundancies.
//!
//! A page sends the words of the options of `tidewire replay`, which [`Alternative::parse`] reads. A wrong
//! value gives the sentence that the command prints for it.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use tidewire::link::parse_latency;
use tidewire::{Code, Config, ConfigError, Profile, Redundancy};
use tidewire_figures::milliseconds;
use tidewire_proto::profile::Named;
use tidewire_proto::wire::{CodeName, parse_code};
use tidewire_sim::replay::Recorded;
use tidewire_units::{Probability, parse_deliver};

/// Redundancies that are tried if the user names no choice: from none to a third, and the default.
const TRIED: [&str; 6] = ["none", "every:20", "every:10", "every:5", "every:4", "adaptive"];
/// The options that choose, and what each is followed by.
const NAMES: [(&str, &str); 6] = [
    ("profile", "NAME"),
    ("code", "NAME"),
    ("redundancy", "POLICY"),
    ("latency", "TIME"),
    ("deliver", "PERCENT"),
    ("max-overhead", "PERCENT"),
];

/// Choices that replace the recorded ones. What is `None` is as recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Alternative {
    /// The bundle of the choices below.
    pub profile: Option<Profile>,
    /// The code of the repair symbols.
    pub code: Option<Code>,
    /// When repair symbols are sent.
    pub redundancy: Option<Redundancy>,
    /// The target of the delay beyond the path's one-way time.
    pub latency: Option<Duration>,
    /// The fraction of the data that must keep the latency.
    pub deliver: Option<Probability>,
    /// The limit of proactive repair.
    pub max_overhead: Option<Probability>,
}

/// Why words are no choices.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadAlternative {
    /// A replay has no such choice.
    Unknown(String),
    /// A value is not understood.
    Value {
        /// The name of the choice.
        name: &'static str,
        /// What was written.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A fraction is stated that must keep the latency, and no latency.
    NoLatency,
}

impl Display for BadAlternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                write!(f, "a replay has no choice `{name}`; it has {}", NAMES.map(|(name, _)| name).join(", "))
            }
            Self::Value { name, value, reason } => {
                let of = NAMES.iter().find(|(other, _)| other == name).map_or("", |(_, of)| of);
                write!(f, "invalid value '{value}' for '--{name} <{of}>': {reason}")
            }
            Self::NoLatency => f.write_str("the following required arguments were not provided: --latency <TIME>"),
        }
    }
}

impl std::error::Error for BadAlternative {}

impl Alternative {
    /// Reads choices by the names of their options, without dashes.
    ///
    /// # Errors
    /// About the first choice that is wrong; see [`BadAlternative`].
    pub fn parse(choices: &BTreeMap<String, String>) -> Result<Self, BadAlternative> {
        let is_known = |name: &String| NAMES.iter().any(|(known, _)| known == name);
        if let Some(unknown) = choices.keys().find(|name| !is_known(name)) {
            return Err(BadAlternative::Unknown(unknown.clone()));
        }
        let mut read = Self::default();
        for (name, value) in choices {
            read.read(name, value)?;
        }
        if read.deliver.is_some() && read.latency.is_none() { Err(BadAlternative::NoLatency) } else { Ok(read) }
    }

    fn read(&mut self, name: &str, value: &str) -> Result<(), BadAlternative> {
        fn of<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
            text.parse().map_err(|error: T::Err| error.to_string())
        }
        let (name, read) = match name {
            "profile" => ("profile", of(value).map(|profile| self.profile = Some(profile))),
            "code" => ("code", parse_code(value).map_err(|error| error.to_string()).map(|code| self.code = Some(code))),
            "redundancy" => ("redundancy", of(value).map(|redundancy| self.redundancy = Some(redundancy))),
            "latency" => ("latency", parse_latency(value).map(|latency| self.latency = Some(latency))),
            "deliver" => ("deliver", parse_deliver(value).map(|deliver| self.deliver = Some(deliver))),
            _ => ("max-overhead", of(value).map(|cap| self.max_overhead = Some(cap))),
        };
        read.map_err(|reason| BadAlternative::Value { name, value: value.to_owned(), reason })
    }

    /// `config` with these choices in place of its own.
    fn over(&self, config: &Config) -> Result<Config, ConfigError> {
        let mut changed = config.to_builder();
        if let Some(profile) = self.profile {
            changed = changed.profile(profile);
        }
        if let Some(code) = self.code {
            changed = changed.code(code);
        }
        if let Some(redundancy) = self.redundancy {
            changed = changed.redundancy(redundancy);
        }
        changed = changed.latency(self.latency.or(config.latency()));
        if let Some(deliver) = self.deliver {
            changed = changed.deliver(deliver.value());
        }
        if let Some(cap) = self.max_overhead {
            changed = changed.max_overhead(cap.value());
        }
        changed.build()
    }

    /// The configurations to try: the recorded choices, and these or, if there are none, a few redundancies.
    pub(super) fn configs(&self, recorded: &Recorded) -> Result<Vec<(String, Config)>, ConfigError> {
        let same = Recorded::config(&recorded.choices)?;
        let chosen = self.over(&same)?;
        let mut all = vec![("same choices".to_owned(), same.clone())];
        if *self != Self::default() {
            all.push((self.to_string(), chosen));
            return Ok(all);
        }
        for (name, redundancy) in tried() {
            // A profile in generations takes no spans of a sliding window.
            if redundancy != recorded.choices.profile.redundancy
                && let Ok(config) = same.to_builder().redundancy(redundancy).build()
            {
                all.push((format!("--redundancy {name}"), config));
            }
        }
        Ok(all)
    }
}

/// What [`TRIED`] names.
fn tried() -> impl Iterator<Item = (&'static str, Redundancy)> {
    TRIED.iter().filter_map(|name| name.parse().ok().map(|redundancy| (*name, redundancy)))
}

/// In the words of the command line.
impl Display for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if let Some(profile) = self.profile {
            let is_it = |named: &&Named| named.example.parse::<Profile>().is_ok_and(|other| other == profile);
            let name = Profile::NAMED.iter().find(is_it).map(|named| named.example);
            words.push(
                name.map_or(format!("a profile with {}", profile.redundancy), |name| format!("--profile {name}")),
            );
        }
        if let Some(code) = self.code {
            words.push(format!("--code {}", CodeName(code)));
        }
        if let Some(redundancy) = self.redundancy {
            words.push(format!("--redundancy {redundancy}"));
        }
        if let Some(latency) = self.latency {
            words.push(format!("--latency {}ms", milliseconds(latency)));
        }
        if let Some(deliver) = self.deliver {
            words.push(format!("--deliver {}%", 100.0 * deliver.value()));
        }
        if let Some(cap) = self.max_overhead {
            words.push(format!("--max-overhead {}%", 100.0 * cap.value()));
        }
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(choices: &[(&str, &str)]) -> Result<Alternative, BadAlternative> {
        Alternative::parse(&choices.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn choices_are_read_like_those_of_the_command_line() {
        let chosen = read(&[("profile", "arq"), ("latency", "60ms"), ("deliver", "99.9%")]).unwrap();
        assert_eq!(chosen.to_string(), "--profile arq --latency 60ms --deliver 99.9%");
        assert_eq!(read(&[]).unwrap(), Alternative::default());
        assert_eq!(tried().count(), TRIED.len());
    }

    #[test]
    fn a_wrong_choice_gives_one_sentence() {
        let wrong = read(&[("redundancy", "--svg=/etc/passwd")]).unwrap_err().to_string();
        assert!(wrong.starts_with("invalid value '--svg=/etc/passwd' for '--redundancy <POLICY>'"), "{wrong}");
        assert_eq!(read(&[("deliver", "99%")]), Err(BadAlternative::NoLatency));
        for name in ["svg", "workers", "rate-control", "", "profile=arq --svg"] {
            assert_eq!(read(&[(name, "1")]), Err(BadAlternative::Unknown(name.into())));
        }
    }
}
