//! The help of the command, in two tiers: `-h` shows what one needs in the first week and two examples to
//! copy, `--help` everything.
//!
//! The texts of options stand beside the options. Here is what clap cannot know: the groups of verbs, the
//! examples, and the options of the second tier. [`Tiers`] has the invariant, which a test checks.

use std::fmt::Write as _;

use clap::Command;
use tidewire::Profile;
use tidewire_command::exit::{Exit, Failure};
use tidewire_command::help::Tiers;
use tidewire_command::stdout;

/// Arguments of `help`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A verb; or profiles: the names of profiles, codes, policies and rate controls
    #[arg(value_name = "VERB|profiles")]
    words: Vec<String>,
}

/// The verbs as `tidewire -h` lists them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Move data", &["send", "receive", "pipe", "live"]),
    ("Connect", &["forward", "serve", "tunnel", "relay"]),
    ("Measure and watch", &["demo", "bench", "probe", "dash", "replay", "top"]),
    ("Set up", &["keygen", "config", "completions", "man", "help"]),
];

/// Two lines to copy for each verb. LINK is what the other side printed.
const EXAMPLES: [(&str, [&str; 2]); 19] = [
    ("demo", ["tidewire demo", "tidewire demo --dashboard"]),
    ("send", ["tidewire send photos/ report.pdf LINK", "tidewire send photos/ ann@far.example:inbox"]),
    ("receive", ["tidewire receive", "tidewire receive --dir inbox --once"]),
    ("pipe", ["tidewire pipe --listen 0.0.0.0:7700 > backup.tar", "tar c photos/ | tidewire pipe LINK"]),
    (
        "live",
        ["tidewire live udp://:5000 LINK --latency 80ms", "tidewire live tidewire://0.0.0.0:7700 udp://127.0.0.1:5001"],
    ),
    ("forward", ["tidewire forward -L 8080:localhost:80 LINK", "tidewire forward -D 1080 LINK"]),
    (
        "serve",
        ["tidewire serve --allow localhost:80", "tidewire serve --allow '*:443' --key my.key --authorized-keys peers"],
    ),
    (
        "up",
        [
            "tidewire tunnel up --listen 0.0.0.0:7700 --address 10.77.0.1/24",
            "tidewire tunnel up LINK --address 10.77.0.2/24",
        ],
    ),
    ("relay", ["tidewire relay --to LINK", "tidewire relay --to @hop-link --key my.key --authorized-keys peers"]),
    ("bench", ["tidewire bench -s", "tidewire bench -c LINK -b 8mbit -t 10"]),
    ("probe", ["tidewire probe LINK", "tidewire probe LINK --rate 4mbit --svg path.svg"]),
    ("dash", ["tidewire dash trip.rec", "tidewire dash near.rec far.rec"]),
    ("replay", ["tidewire replay trip.rec --profile arq", "tidewire replay near.rec --peer far.rec --svg delays.svg"]),
    ("top", ["tidewire top", "tidewire top 127.0.0.1:7780"]),
    ("keygen", ["tidewire keygen -o my.secret", "tidewire keygen --pair -o my.key"]),
    ("check", ["tidewire config check", "tidewire config check my.toml"]),
    ("show", ["tidewire config show send", "tidewire config show receive --dir inbox"]),
    (
        "completions",
        [
            "tidewire completions bash > ~/.local/share/bash-completion/completions/tidewire",
            "tidewire completions fish > ~/.config/fish/completions/tidewire.fish",
        ],
    ),
    ("man", ["tidewire man | man -l -", "tidewire man > tidewire.1"]),
];

/// Options that only `--help` shows, for every verb.
const LATER: [&str; 25] = [
    "remote",
    "remote-port",
    "linger",
    "max-connections",
    "max-memory",
    "threads",
    "max-bytes",
    "max-files",
    "detach",
    "relayed",
    "hop-key",
    "authorized-relays",
    "deliver",
    "max-overhead",
    "workers",
    "rate-control",
    "profile",
    "code",
    "redundancy",
    "metrics",
    "qlog",
    "keylog",
    "insecure-keylog",
    "record-limit",
    "generations",
];

/// The same for one verb.
const LATER_OF: [(&str, &[&str]); 4] = [
    ("bench", &["host", "interval", "require", "authorized-keys", "dashboard", "record", "via", "quiet"]),
    ("live", &["protect-key-frames"]),
    ("up", &["mtu", "interface", "host", "fail-closed"]),
    ("demo", &["svg"]),
];

/// Gives the command its two tiers.
pub fn shape(command: Command) -> Command {
    TIERS.shape(command)
}

const TIERS: Tiers =
    Tiers { groups: &GROUPS, examples: &EXAMPLES, later: &LATER, later_of: &LATER_OF, whole: &["replay"] };

/// Prints the help of a verb, of all, or of profiles.
///
/// # Errors
/// [`Exit::Usage`] if there is no such verb.
pub fn run(args: &Args, mut command: Command) -> Result<(), Failure> {
    if args.words == ["profiles"] {
        print(&profiles());
        return Ok(());
    }
    command.build();
    let mut wanted = &mut command;
    for word in &args.words {
        let known = wanted.find_subcommand(word).is_some();
        wanted = match wanted.find_subcommand_mut(word) {
            Some(verb) if known => verb,
            _ => {
                let text =
                    format!("`{word}` is not a verb: tidewire -h lists them, tidewire help profiles the profiles");
                return Err(Failure::message(Exit::Usage, text));
            }
        };
    }
    print(&wanted.render_long_help().to_string());
    Ok(())
}

fn print(text: &str) {
    stdout::write(text);
}

/// The grammar of the options for readers of the papers.
fn profiles() -> String {
    let mut text = String::from("Profiles (--profile): bundles of the choices below\n");
    for named in Profile::NAMED {
        let _ = writeln!(text, "  {:<22} {}", named.example, named.summary);
    }
    text + REST
}

const REST: &str = "
Codes of the repair symbols (--code)
  rlc                    random combinations over GF(2^8); the only one of a sliding window
  cauchy, rlc16          in generations: Cauchy matrices; combinations over GF(2^16)
  raptorq, rs-fft        in generations: RFC 6330; Reed-Solomon by fast transforms
  lt:C,DELTA             in generations: LT codes with a robust soliton distribution
  semi-random-lt:DEGREE  in generations: semi-random LT codes

When to send repair symbols (--redundancy)
  none                   after a reported loss only
  adaptive               as loss, its bursts, the round trip and the load of the link ask (docs/recovery.md)
  every:L                one after each L-1 source symbols
  pipeline:G,R           combinations of a growing generation, R for each symbol
  block:K,R              in generations: R repairs for K source symbols
  sphinx:K, rcdp:K       in generations: as much as the loss needs; until the block is recovered
  bucket:CAP,GAMMA       in generations: GAMMA combinations for each symbol that is ready, up to CAP

Rate control (--rate-control)
  share                  a short queue for any number of our flows; random loss is no congestion
  cubic, newreno         as kernel TCP
  aimd:PACKETS,PERCENT   falls at congestion marks
  train                  packet trains (RCDP)
  fixed:RATE             always this rate
  open                   in a tunnel only: no limit, for flows that control their rate themselves
";

#[cfg(test)]
mod tests {
    use tidewire_command::help;

    use super::*;
    use crate::verb;

    #[test]
    fn the_help_has_two_tiers() {
        let faults = TIERS.faults(&verb::command());
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    /// Run with `TIDEWIRE_WRITE=1` to write the file anew.
    #[test]
    fn the_guide_has_the_short_help_of_every_verb() {
        let mut text = String::new();
        let mut command = verb::command().term_width(100);
        command.build();
        let mut pages = vec![command.clone()];
        pages.extend(help::verbs(&command));
        for mut page in pages {
            let shown = page.render_help().to_string();
            text += shown.trim_end();
            let _ = write!(text, "\n\n{}\n\n", "-".repeat(100));
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/data/help.txt");
        if std::env::var_os("TIDEWIRE_WRITE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(kept == text, "docs/data/help.txt is old: TIDEWIRE_WRITE=1 cargo test -p tidewire-cli --lib help");
    }

    #[test]
    fn the_page_of_profiles_names_what_the_options_take() {
        let page = profiles();
        for named in Profile::NAMED {
            assert!(page.contains(named.example) && page.contains(named.summary));
        }
        for control in ["share", "cubic", "newreno", "aimd:1,80", "train", "fixed:25mbit", "open"] {
            assert!(control.parse::<tidewire::RateControl>().is_ok(), "{control}");
            let name = control.split(':').next().unwrap();
            assert!(page.contains(name), "{name}");
        }
    }
}
