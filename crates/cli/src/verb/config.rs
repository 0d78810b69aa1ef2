//! `tidewire config check` and `config show`: checks the settings, and shows which of them are in force.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgMatches;
use clap::parser::ValueSource;
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::stdout;

use crate::settings::{Settings, options, verbs};

/// The verbs of the configuration.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Check a settings file, or the settings in force
    Check {
        /// File to check. The default is $TIDEWIRE_CONFIG, or ~/.config/tidewire/config.toml and
        /// /etc/tidewire/config.toml
        file: Option<PathBuf>,
    },
    /// Show each option of a verb with its value and origin [example: tidewire config show receive --max-rate
    /// 5mbit]
    Show {
        /// Verb whose options are shown
        verb: String,
        /// Options of the verb, as on its command line
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
}

/// Checks or shows.
///
/// # Errors
/// [`Exit::Usage`] for a wrong setting or verb.
pub fn run(command: &Command) -> Result<(), Failure> {
    let text = match command {
        Command::Check { file: Some(file) } => {
            format!("{} settings, all right\n", Settings::of_file(file, &super::command()).or_exit(Exit::Usage)?.len())
        }
        Command::Check { file: None } => {
            format!("{} settings, all right\n", Settings::load(&super::command()).or_exit(Exit::Usage)?.len())
        }
        Command::Show { verb, options } => show(verb, options)?,
    };
    stdout::write(&text);
    Ok(())
}

/// Makes a line for each option, with its value and origin.
fn show(verb: &str, typed: &[OsString]) -> Result<String, Failure> {
    let settings = Settings::load(&super::command()).or_exit(Exit::Usage)?;
    let mut command = settings.apply(super::command());
    let names = verbs(&command);
    let known = names.iter().any(|name| name == verb).then(|| command.find_subcommand(verb).cloned()).flatten();
    let known = known.ok_or_else(|| {
        Failure::message(Exit::Usage, format_args!("`{verb}` has no options to show; verbs: {}", names.join(" ")))
    })?;
    command = command.ignore_errors(true);
    let arguments = ["tidewire", verb].into_iter().map(OsString::from).chain(typed.iter().cloned());
    let matches = command.try_get_matches_from(arguments).or_exit(Exit::Usage)?;
    let matches = matches.subcommand_matches(verb);
    let mut out = String::new();
    for (long, arg) in options(&known) {
        let id = arg.get_id().as_str();
        let source = matches.and_then(|matches| matches.value_source(id));
        let value = matches.and_then(|matches| values(matches, id)).unwrap_or_else(|| "-".into());
        let origin = match (source, settings.find(verb, long)) {
            (Some(ValueSource::CommandLine), _) => "command line".to_owned(),
            (_, Some(setting)) => setting.origin.to_string(),
            (_, None) => "default".to_owned(),
        };
        out.push_str(&format!("{long:<16} {value:<24} {origin}\n"));
    }
    Ok(out)
}

fn values(matches: &ArgMatches, id: &str) -> Option<String> {
    let values: Vec<_> = matches.get_raw(id)?.map(|value| value.to_string_lossy().into_owned()).collect();
    Some(values.join(", "))
}
