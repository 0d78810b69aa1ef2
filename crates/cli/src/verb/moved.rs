//! Verbs that this command had: each answers by name with what to write instead.

use std::ffi::OsString;

use tidewire_command::exit::{Exit, Failure};

/// The verbs of the laboratory, which is a command of its own.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    #[command(hide = true, disable_help_flag = true)]
    Lab(Words),
    #[command(hide = true, disable_help_flag = true)]
    Sim(Words),
    #[command(hide = true, disable_help_flag = true)]
    Papers(Words),
}

/// Whatever stands behind the verb.
#[derive(Debug, clap::Args)]
pub struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Verb {
    /// Says where the verb is now.
    ///
    /// # Errors
    /// Always [`Exit::Usage`].
    pub fn refuse(&self) -> Result<(), Failure> {
        let (verb, now, words) = match self {
            Self::Lab(Words { words }) => ("lab", "tidewire-lab", words),
            Self::Sim(Words { words }) => ("sim", "tidewire-lab sim", words),
            Self::Papers(Words { words }) => ("papers", "tidewire-lab papers", words),
        };
        let line = words.iter().fold(now.to_owned(), |line, word| format!("{line} {}", word.to_string_lossy()));
        Err(Failure::message(Exit::Usage, format_args!("`tidewire {verb}` is a command of its own now: write {line}")))
    }
}
