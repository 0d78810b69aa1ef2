//! Exit codes, one for each kind of failure, and the error that carries a code.
//!
//! Every verb returns `Result<(), Failure>`. `main` prints the failure as one line on stderr and ends with
//! its code. Nothing else in this crate ends the process, except a panic at the start of the runtime, so this
//! file alone decides what a script sees.

use std::fmt;
use std::process::ExitCode;

/// The exit codes, for scripts.
///
/// ```
/// use tidewire_command::exit::Exit;
/// let codes: Vec<u8> = Exit::TABLE.iter().map(|(exit, _)| exit.code()).collect();
/// assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 130]);
/// assert_eq!(Exit::Integrity.code(), 6);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The job is done.
    Done = 0,
    /// A failure without its own code.
    Other = 1,
    /// A wrong option, unit, link or argument.
    Usage = 2,
    /// Nothing answered, or the connection was lost.
    Unreachable = 3,
    /// The peer refused this key.
    Authentication = 4,
    /// The transfer was cut off. The same command continues it.
    Interrupted = 5,
    /// Received bytes differ from the sent bytes.
    Integrity = 6,
    /// A file or folder of this machine or of the peer is missing, unreadable or changed, or has no space.
    LocalIo = 7,
    /// A measured figure missed its requirement.
    TargetNotMet = 8,
    /// Ended by Ctrl-C (128 + SIGINT).
    Sigint = 130,
}

impl Exit {
    /// Every code with its meaning, as printed by `tidewire --help`.
    pub const TABLE: [(Self, &'static str); 10] = [
        (Self::Done, "done"),
        (Self::Other, "other failure"),
        (Self::Usage, "wrong option, unit or link"),
        (Self::Unreachable, "no answer, or connection lost"),
        (Self::Authentication, "refused by the peer"),
        (Self::Interrupted, "interrupted, can be resumed"),
        (Self::Integrity, "bytes arrived that were not sent"),
        (Self::LocalIo, "file or folder failed, here or at the peer"),
        (Self::TargetNotMet, "measured target not met"),
        (Self::Sigint, "stopped by Ctrl-C"),
    ];

    /// The number for the operating system.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The table as text, one code per line.
    pub fn help() -> String {
        let mut text = String::from("Exit codes:\n");
        for (exit, meaning) in Self::TABLE {
            text.push_str(&format!("  {:>3}  {meaning}\n", exit.code()));
        }
        text
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a verb failed: the message, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// What the process ends with.
    pub exit: Exit,
    /// What was wrong and what to do; `None` if everything was reported before.
    pub error: Option<anyhow::Error>,
}

impl Failure {
    /// From an error, with its causes.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: Some(error.into()) }
    }

    /// From a sentence for the user: what was wrong and what to do.
    pub fn message(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, error: Some(anyhow::anyhow!("{message}")) }
    }

    /// A failure that was reported before, for example file by file.
    pub fn reported(exit: Exit) -> Self {
        Self { exit, error: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(f, "{error:#}"),
            None => write!(f, "exit code {}", self.exit.code()),
        }
    }
}

/// Gives an error its exit code.
pub trait OrExit<T> {
    /// Turns the error into a [`Failure`] with this code.
    ///
    /// # Errors
    /// The failure, if `self` is an error.
    fn or_exit(self, exit: Exit) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(exit, error))
    }
}
