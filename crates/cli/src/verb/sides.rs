//! Refuses options that say nothing on this command line: those of a side that listens where the verb
//! connects, the reverse, and those of ssh where the far side has a link.
//!
//! [`super::parse`] calls it. Settings of files and the environment hold for every verb with the option, so
//! only the command line is judged. Invariant: what a user types has an effect, or is refused.

use clap::ArgMatches;
use clap::parser::ValueSource;
use tidewire_command::exit::{Exit, Failure};

use crate::link;

/// Options that only a side that waits for the other can use.
const LISTENING: [&str; 7] =
    ["host", "authorized_keys", "max_connections", "max_memory", "threads", "relayed", "hop_key"];
/// Options that only a side that connects can use.
const CONNECTING: [&str; 1] = ["via"];
/// The same for `bench`, whose client also chooses the load.
const LOAD: [&str; 7] = ["via", "time", "bitrate", "reverse", "parallel", "length", "interval"];
/// Options that start the far side.
const SSH: [&str; 4] = ["ssh", "program", "remote_port", "linger"];

/// Refuses what the verb cannot use.
///
/// # Errors
/// [`Exit::Usage`] with the first such option.
pub fn check(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((verb, mut args)) = matches.subcommand() else { return Ok(()) };
    if let Some((_, inner)) = args.subcommand() {
        args = inner;
    }
    let (unusable, belongs) = unusable(verb, args);
    let is_typed = |id: &&str| {
        matches!(args.try_contains_id(id), Ok(true)) && args.value_source(id) == Some(ValueSource::CommandLine)
    };
    let Some(option) = unusable.into_iter().find(is_typed) else { return Ok(()) };
    let option = if option == "program" { "remote".to_owned() } else { option.replace('_', "-") };
    Err(Failure::message(Exit::Usage, format_args!("--{option} is for {belongs}: leave it out here")))
}

/// The options that this command line cannot use, and what they are for.
fn unusable(verb: &str, args: &ArgMatches) -> (Vec<&'static str>, &'static str) {
    let (listens, connects) =
        ("the side that listens, and this one connects", "the side that connects, and this one listens");
    match verb {
        "pipe" | "tunnel" if args.contains_id("listen") => (CONNECTING.into(), connects),
        "pipe" | "tunnel" => (LISTENING.into(), listens),
        "bench" if args.get_flag("server") => (LOAD.into(), connects),
        "bench" => (LISTENING.into_iter().chain(["listen"]).collect(), listens),
        "live" if texts(args, "places").any(|place| is_far_link(&place)) => (LISTENING.into(), listens),
        "send" if texts(args, "arguments").last().is_some_and(|last| link::is_link(&last)) => (SSH.into(), OVER_SSH),
        "forward" if texts(args, "link").all(|link| link::is_link(&link)) => (SSH.into(), OVER_SSH),
        _ => (Vec::new(), ""),
    }
}

const OVER_SSH: &str = "a far side that ssh starts, and this one has a link";

/// The values of an argument.
fn texts<'a>(args: &'a ArgMatches, id: &str) -> impl Iterator<Item = String> + 'a {
    args.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy().into_owned())
}

/// Whether a place of `live` is the link of a side that listens. Without a secret or key, it is an address to
/// listen on.
fn is_far_link(place: &str) -> bool {
    link::is_link(place) && (place.starts_with('@') || place.contains('#'))
}

#[cfg(test)]
mod tests {
    use crate::verb;

    #[test]
    fn what_has_no_use_is_refused() {
        let said = |line: &str| {
            let matches = verb::command().try_get_matches_from(line.split_whitespace()).expect(line);
            super::check(&matches).err().map(|failure| failure.to_string()).unwrap_or_default()
        };
        for (line, option) in [
            ("tidewire pipe LINK --threads 2", "--threads is for the side that listens"),
            ("tidewire pipe LINK --max-memory 1GiB", "--max-memory is for the side that listens"),
            ("tidewire pipe --listen 0.0.0.0:1 --via x", "--via is for the side that connects"),
            ("tidewire tunnel up LINK --address 10.0.0.1/24 --max-connections 3", "--max-connections"),
            ("tidewire bench -c LINK --listen 0.0.0.0:1", "--listen is for the side that listens"),
            ("tidewire bench -c LINK --authorized-keys x", "--authorized-keys"),
            ("tidewire bench -s -t 5", "--time is for the side that connects"),
            ("tidewire bench -s -b 5mbit", "--bitrate is for the side that connects"),
            ("tidewire live udp://:1 LINK --host x", "--host is for the side that listens"),
            ("tidewire send f LINK --linger 1h", "--linger is for a far side that ssh starts"),
            ("tidewire forward -D 1 --remote x", "--remote is for a far side that ssh starts"),
        ] {
            let line = line.replace("LINK", "tidewire://h:1/#tws1");
            assert!(said(&line).starts_with(option), "{line}: {}", said(&line));
        }
        for line in [
            "tidewire pipe LINK --via x",
            "tidewire bench -c LINK -t 5 -b 5mbit",
            "tidewire bench -s --listen 0.0.0.0:1 --threads 2",
            "tidewire live tidewire://0.0.0.0:1 udp://:1 --max-connections 2",
            "tidewire receive --max-connections 2",
            "tidewire send f host:inbox --linger 1h",
            "tidewire forward -D 1 ann@host --remote x",
        ] {
            assert_eq!(said(&line.replace("LINK", "tidewire://h:1/#tws1")), "");
        }
    }

    #[test]
    fn a_settings_file_may_hold_what_one_side_uses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, "max-connections = 5\nhost = \"a\"\n").unwrap();
        let settings = crate::settings::Settings::of_file(&path, &verb::command()).unwrap();
        let matches = settings.apply(verb::command());
        let matches = matches.try_get_matches_from(["tidewire", "pipe", "tidewire://h:1/#tws1"]);
        super::check(&matches.unwrap()).unwrap();
    }
}
