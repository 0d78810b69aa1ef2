//! The choices of a replay: what the user named, or a few redundancies.
//!
//! The command line is parsed by the verb itself. The page sends the same words, which [`parse`] reads with
//! the same options, so a wrong value gives the same sentence.

use std::collections::BTreeMap;

use clap::Parser;
use tidewire::{Config, Redundancy};
use tidewire_figures::milliseconds;
use tidewire_proto::profile::{Named, Profile};
use tidewire_sim::replay::Recorded;

use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::options::Coding;

/// Redundancies that are tried if the user names no choice: from none to a third, and the default.
const TRIED: [&str; 6] = ["none", "every:20", "every:10", "every:5", "every:4", "adaptive"];
/// The options of `replay` that choose.
const NAMES: [&str; 6] = ["profile", "code", "redundancy", "latency", "deliver", "max-overhead"];

/// The options of coding as a command line of their own.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Words {
    #[command(flatten)]
    coding: Coding,
}

/// Reads choices by the names of their options, without dashes.
///
/// # Errors
/// The sentence of the command about the first choice that is wrong.
pub fn parse(choices: &BTreeMap<String, String>) -> Result<Coding, String> {
    if let Some(unknown) = choices.keys().find(|name| !NAMES.contains(&name.as_str())) {
        return Err(format!("a replay has no choice `{unknown}`; it has {}", NAMES.join(", ")));
    }
    let words = choices.iter().map(|(name, value)| format!("--{name}={value}"));
    Words::try_parse_from(words).map(|words| words.coding).map_err(|error| sentence(&error.render().to_string()))
}

/// The sentence in an error of clap, without the lines about usage and help behind it.
fn sentence(rendered: &str) -> String {
    let first = rendered.split("\n\n").next().unwrap_or_default();
    first.trim_start_matches("error: ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The rate of a replay is the recorded one.
pub(super) fn refuse_rate(coding: &Coding) -> Result<(), Failure> {
    if coding.rate_control.is_some() || coding.max_rate.is_some() || coding.workers > 0 {
        let text = "a replay keeps the recorded rate: leave out --rate-control, --max-rate and --workers";
        return Err(Failure::message(Exit::Usage, text));
    }
    Ok(())
}

/// The configurations to try: the recorded choices, and the user's or a few.
pub(super) fn of(recorded: &Recorded, coding: &Coding) -> Result<Vec<(String, Config)>, Failure> {
    let same = Recorded::config(&recorded.choices).or_exit(Exit::Usage)?;
    let chosen = coding.over(&same, None).or_exit(Exit::Usage)?;
    let mut all = vec![("same choices".to_owned(), same.clone())];
    let asked = asked(coding);
    if asked.is_empty() {
        for name in TRIED {
            let redundancy: Redundancy = name.parse().or_exit(Exit::Other)?;
            // A profile in generations takes no spans of a sliding window.
            if redundancy != recorded.choices.profile.redundancy
                && let Ok(config) = same.to_builder().redundancy(redundancy).build()
            {
                all.push((format!("--redundancy {name}"), config));
            }
        }
    } else {
        all.push((asked, chosen));
    }
    Ok(all)
}

/// The choices of the command line, in its words.
fn asked(coding: &Coding) -> String {
    let mut words = Vec::new();
    if let Some(profile) = coding.profile {
        let is_it = |named: &&Named| named.example.parse::<Profile>().is_ok_and(|other| other == profile);
        let name = Profile::NAMED.iter().find(is_it).map(|named| named.example);
        words.push(name.map_or(format!("a profile with {}", profile.redundancy), |name| format!("--profile {name}")));
    }
    if let Some(code) = coding.code {
        words.push(format!("--code {}", tidewire_proto::wire::CodeName(code)));
    }
    if let Some(redundancy) = coding.redundancy {
        words.push(format!("--redundancy {redundancy}"));
    }
    if let Some(latency) = coding.latency {
        words.push(format!("--latency {}ms", milliseconds(latency)));
    }
    if let Some(deliver) = coding.deliver {
        words.push(format!("--deliver {}%", 100.0 * deliver.value()));
    }
    if let Some(cap) = coding.max_overhead {
        words.push(format!("--max-overhead {}%", 100.0 * cap.value()));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(choices: &[(&str, &str)]) -> Result<Coding, String> {
        parse(&choices.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn choices_are_read_like_those_of_the_command_line() {
        let coding = read(&[("profile", "arq"), ("latency", "60ms"), ("deliver", "99.9%")]).unwrap();
        assert_eq!(asked(&coding), "--profile arq --latency 60ms --deliver 99.9%");
        assert_eq!(asked(&read(&[]).unwrap()), "");
    }

    #[test]
    fn a_wrong_choice_gives_one_sentence() {
        let wrong = read(&[("redundancy", "--svg=/etc/passwd")]).unwrap_err();
        assert!(wrong.starts_with("invalid value '--svg=/etc/passwd' for '--redundancy <POLICY>'"), "{wrong}");
        let wrong = read(&[("deliver", "99%")]).unwrap_err();
        assert!(wrong.contains("--latency <TIME>") && !wrong.contains("Usage"), "{wrong}");
        for name in ["svg", "workers", "rate-control", "", "profile=arq --svg"] {
            assert!(read(&[(name, "1")]).unwrap_err().contains("has no choice"), "{name}");
        }
    }
}
