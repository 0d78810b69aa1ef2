//! Settings from files and the environment.
//!
//! `main` loads them before it parses the command line. They become the defaults of the options, so each
//! option parses its own values and the command line overrides them. Precedence: command line, environment
//! (such as `TIDEWIRE_KEY`), the user's file, the system's file, built-in default. Invariant: a wrong setting
//! ends the program before a verb runs, with file, line and the allowed values. No setting is ignored.

mod file;

use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Arg, Command};
use tidewire_units::unknown_key;

/// Environment variable that names a file to read in place of the user's file and the system's file.
pub const FILE_VARIABLE: &str = "TIDEWIRE_CONFIG";
/// Keys that apply to every verb with the option. Each can also be set in the environment. The section of a
/// verb may hold any option of that verb.
const SHARED: [&str; 17] = [
    "profile",
    "code",
    "redundancy",
    "rate-control",
    "max-rate",
    "max-overhead",
    "workers",
    "latency",
    "deliver",
    "listen",
    "host",
    "key",
    "authorized-keys",
    "max-connections",
    "max-memory",
    "json",
    "quiet",
];
const SYSTEM_FILE: &str = "/etc/tidewire/config.toml";

/// The place where a setting was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In this environment variable.
    Environment(String),
    /// In this file, at this line.
    File(PathBuf, usize),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(name) => f.write_str(name),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// One setting: a key and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The verb of its section, or `None` for all verbs.
    verb: Option<String>,
    key: String,
    /// The values. Only an option that may be repeated has more than one.
    values: Vec<String>,
    /// The place where it was found.
    pub origin: Origin,
}

/// All settings. If two are for the same option, the first one counts.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<Setting>);

impl Settings {
    /// Loads the settings of the environment and of the files that exist.
    ///
    /// # Errors
    /// Returns the first wrong setting.
    pub fn load(command: &Command) -> Result<Self, SettingsError> {
        let mut settings = environment();
        for path in files() {
            settings.extend(file::read(&path)?);
        }
        Self(settings).checked(command)
    }

    /// Loads the settings of one file.
    ///
    /// # Errors
    /// Returns the first wrong setting.
    pub fn of_file(path: &Path, command: &Command) -> Result<Self, SettingsError> {
        Self(file::read(path)?).checked(command)
    }

    /// Returns the number of settings.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Finds the setting of an option of a verb. Within one file, the section of the verb has precedence over
    /// the settings for all verbs.
    pub fn find(&self, verb: &str, option: &str) -> Option<&Setting> {
        let mut fit = self.0.iter().filter(|setting| {
            setting.key == option && setting.verb.as_deref().map_or(SHARED.contains(&option), |of| of == verb)
        });
        let first = fit.next()?;
        match (&first.verb, &first.origin) {
            (None, Origin::File(path, _)) => {
                let own = fit.find(|s| s.verb.is_some() && matches!(&s.origin, Origin::File(of, _) if of == path));
                own.or(Some(first))
            }
            _ => Some(first),
        }
    }

    /// Makes these settings the defaults of the options of `command`.
    pub fn apply(&self, mut command: Command) -> Command {
        for name in verbs(&command) {
            command = command.mut_subcommand(&name, |mut verb| {
                let options: Vec<_> =
                    options(&verb).map(|(long, arg)| (long.to_owned(), arg.get_id().clone())).collect();
                for (long, id) in options {
                    if let Some(setting) = self.find(&name, &long) {
                        verb = verb.mut_arg(id, |arg| arg.required(false).default_values(setting.values.clone()));
                    }
                }
                verb
            });
        }
        command
    }

    fn checked(self, command: &Command) -> Result<Self, SettingsError> {
        self.0.iter().try_for_each(|setting| setting.check(command))?;
        for verb in verbs(command).iter().filter_map(|name| command.find_subcommand(name)) {
            let on = |arg: &&Arg| {
                let setting = arg.get_long().and_then(|long| self.find(verb.get_name(), long));
                setting.filter(|setting| setting.values == ["true"])
            };
            for (_, arg) in options(verb) {
                let Some(setting) = on(&arg) else { continue };
                if let Some(other) = verb.get_arg_conflicts_with(arg).into_iter().find(|other| on(other).is_some()) {
                    let contradicts = format!("it contradicts {}: remove one", other.get_long().unwrap_or_default());
                    return Err(setting.error(contradicts));
                }
            }
        }
        Ok(self)
    }
}

impl Setting {
    fn error(&self, problem: impl Into<String>) -> SettingsError {
        let key = self.verb.iter().chain([&self.key]).map(String::as_str).collect::<Vec<_>>().join(".");
        SettingsError { origin: self.origin.to_string(), key, problem: problem.into() }
    }

    /// Checks that a verb has this option and that the option accepts the values.
    fn check(&self, command: &Command) -> Result<(), SettingsError> {
        let names = verbs(command);
        let verbs: Vec<&Command> = match &self.verb {
            None => names.iter().filter_map(|name| command.find_subcommand(name)).collect(),
            Some(verb) if ["sim", "papers"].contains(&verb.as_str()) => {
                let moved = "it is a verb of tidewire-lab, which reads no settings: remove the section";
                return Err(SettingsError { key: verb.clone(), ..self.error(moved) });
            }
            Some(verb) if names.contains(verb) => command.find_subcommand(verb).into_iter().collect(),
            Some(verb) => {
                return Err(SettingsError { key: verb.clone(), ..self.error(unknown(verb, &names)) });
            }
        };
        let mut known: Vec<String> =
            verbs.iter().flat_map(|verb| options(verb)).map(|(long, _)| long.to_owned()).collect();
        if self.verb.is_none() {
            known = SHARED.map(str::to_owned).to_vec();
        }
        if !known.contains(&self.key) {
            return Err(self.error(unknown(&self.key, &known)));
        }
        let takers = verbs.iter().flat_map(|verb| options(verb)).filter(|(long, _)| *long == self.key);
        for (_, arg) in takers {
            self.check_for(arg)?;
        }
        Ok(())
    }

    fn check_for(&self, arg: &Arg) -> Result<(), SettingsError> {
        if !arg.get_action().takes_values() {
            let switch = matches!(&self.values[..], [value] if value == "true" || value == "false");
            return if switch { Ok(()) } else { Err(self.error("write true or false")) };
        }
        // The option is parsed alone, because its verb may require other options.
        let alone = Arg::new("value").long(self.key.clone()).value_parser(arg.get_value_parser().clone());
        let alone = alone.action(arg.get_action().clone());
        let typed = self.values.iter().map(|value| format!("--{}={value}", self.key));
        let parsed = Command::new("tidewire")
            .arg(alone)
            .try_get_matches_from([String::from("tidewire")].into_iter().chain(typed));
        parsed.map(|_| ()).map_err(|error| {
            let text = error.to_string();
            self.error(text.lines().next().unwrap_or_default().trim_start_matches("error: "))
        })
    }
}

/// Returns the names of the verbs that have options.
pub fn verbs(command: &Command) -> Vec<String> {
    let verbs = command.get_subcommands().filter(|verb| !verb.has_subcommands() && verb.get_name() != "help");
    verbs.map(|verb| verb.get_name().to_owned()).collect()
}

/// Returns the long options of a verb.
pub fn options(verb: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let named = verb.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg)));
    named.filter(|(long, _)| !matches!(*long, "help" | "version"))
}

/// The files that are read if none is named, the user's first. A named file must exist.
fn files() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os(FILE_VARIABLE) {
        return vec![path.into()];
    }
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
    let user = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let user = user.map(|folder| folder.join("tidewire/config.toml"));
    user.into_iter().chain([PathBuf::from(SYSTEM_FILE)]).filter(|path| path.exists()).collect()
}

fn environment() -> Vec<Setting> {
    let setting = |key: &str| {
        let name = format!("TIDEWIRE_{}", key.replace('-', "_").to_uppercase());
        let value = std::env::var(&name).ok()?;
        let value = match value.as_str() {
            "1" => "true".to_owned(),
            "0" => "false".to_owned(),
            _ => value,
        };
        Some(Setting { verb: None, key: key.to_owned(), values: vec![value], origin: Origin::Environment(name) })
    };
    SHARED.iter().filter_map(|key| setting(key)).collect()
}

/// What an error says of an unknown key or section.
fn unknown(key: &str, known: &[String]) -> String {
    unknown_key(key, &known.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A wrong setting and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    origin: String,
    /// The key with its section; empty if the file is not TOML.
    key: String,
    problem: String,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}: {}", self.origin, self.problem),
            key => write!(f, "{}: {key}: {}", self.origin, self.problem),
        }
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use clap::error::ErrorKind;
    use proptest::prelude::*;

    use super::*;
    use crate::verb::command;

    fn settings(text: &str) -> Result<Settings, SettingsError> {
        Settings(file::parse(text, Path::new("c.toml"))?).checked(&command())
    }

    #[test]
    fn files_become_defaults_and_the_command_line_wins() {
        let settings =
            settings("max-rate = \"20mbit\"\n[serve]\nallow = [\"a:1\", \"b:2\"]\nmax-rate = \"5mbit\"\n").unwrap();
        let max_rate = |arguments: &[&str]| {
            let matches = settings.apply(command()).try_get_matches_from(arguments).unwrap();
            let (_, verb) = matches.subcommand().unwrap();
            verb.get_raw("max_rate").unwrap().map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(max_rate(&["tidewire", "receive"]), ["20mbit"]);
        assert_eq!(max_rate(&["tidewire", "receive", "--max-rate", "1mbit"]), ["1mbit"]);
        // The section of the verb has precedence, and satisfies a required option.
        assert_eq!(max_rate(&["tidewire", "serve"]), ["5mbit"]);
        assert_eq!(settings.find("serve", "max-rate").unwrap().origin, Origin::File("c.toml".into(), 4));
    }

    #[test]
    fn what_is_wrong_is_named_with_file_line_and_key() {
        for (text, wanted) in [
            ("max-rat = \"1mbit\"", "c.toml:1: max-rat: no such key; did you mean \"max-rate\"?"),
            ("\nmax-rate = \"20\"", "c.toml:2: max-rate: invalid value '20'"),
            ("[recieve]\ndir = \"x\"", "c.toml:2: recieve: no such key; did you mean \"receive\"?"),
            ("[sim]\nlatency = \"40ms\"", "c.toml:2: sim: it is a verb of tidewire-lab"),
            ("[receive]\nallow = \"a:1\"", "c.toml:2: receive.allow: no such key"),
            ("json = true\nquiet = true", "contradicts"),
            ("json = \"yes\"", "c.toml:1: json: write true or false"),
            ("json = [[1]]", "c.toml:1: json: write a text"),
            ("a b", "c.toml"),
            ("json = true\njson = true", "c.toml"),
        ] {
            let error = settings(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    /// Settings that some verb accepts.
    const RIGHT: [&str; 7] = [
        "max-rate = \"20mbit\"",
        "latency = \"80ms\"",
        "profile = \"arq\"",
        "json = true",
        "listen = \"127.0.0.1:0\"",
        "workers = 2",
        "key = \"a.key\"",
    ];

    /// A line of a file: a setting that is right, a section, any setting, any text.
    fn line() -> impl Strategy<Value = String> {
        let any_key = prop_oneof![prop::sample::select(SHARED.to_vec()).prop_map(str::to_owned), "[a-z-]{1,9}"];
        let any_value = r#"["\[\]{}a-z0-9.:=' -]{0,12}"#;
        prop_oneof![
            6 => prop::sample::select(&RIGHT[..]).prop_map(str::to_owned),
            1 => prop::sample::select(verbs(&command())).prop_map(|verb| format!("[{verb}]")),
            1 => (any_key, any_value).prop_map(|(key, value)| format!("{key} = {value}")),
            1 => "\\PC{0,20}",
        ]
    }

    proptest! {
        /// Any text as a file is refused with a reason, or the options accept all its settings.
        #[test]
        fn what_is_not_refused_is_accepted_by_the_options(lines in prop::collection::vec(line(), 1..4)) {
            static COMMAND: LazyLock<Command> = LazyLock::new(command);
            let parsed = file::parse(&lines.join("\n"), Path::new("c.toml")).map(Settings);
            let Ok(settings) = parsed.and_then(|settings| settings.checked(&COMMAND)) else { return Ok(()) };
            for verb in ["receive", "serve", "bench"] {
                let parsed = settings.apply(COMMAND.clone()).try_get_matches_from(["tidewire", verb]);
                let wrong = parsed.err().map(|error| error.kind());
                prop_assert!(
                    !matches!(
                        wrong,
                        Some(ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::UnknownArgument)
                    ),
                    "{lines:?}: {wrong:?}"
                );
            }
        }
    }
}
