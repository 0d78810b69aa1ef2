//! Why forwarding, or one TCP connection, fails.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::header::{Answer, Code};
use crate::target::Target;

/// Why the near end cannot forward.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// A port of this side cannot be opened.
    #[error("cannot listen on {address}: {error}; try another port")]
    Listen {
        /// The port.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The far side refuses what this side asked for.
    #[error("{asked}: {answer}")]
    Refused {
        /// What this side asked for.
        asked: Asked,
        /// The far side's answer.
        answer: Answer,
    },
    /// The far side does not forward.
    #[error(transparent)]
    NotForwarding(io::Error),
    /// The connection, or the stream, is lost.
    #[error(transparent)]
    Lost(io::Error),
    /// The bytes for the target cannot be read.
    #[error("cannot read standard input: {0}")]
    Input(io::Error),
    /// The bytes of the target cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

/// What the near end asks the far side for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Whether it connects to this target.
    Target(Target),
    /// Whether it forwards at all, for ports of `-D`.
    Socks,
    /// To open this port (`-R`).
    Port(SocketAddr),
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(target) => target.fmt(f),
            Self::Socks => f.write_str("-D"),
            Self::Port(address) => write!(f, "-R {address}"),
        }
    }
}

impl ForwardError {
    /// For an answer, or for a stream that ended before it.
    pub(crate) fn of(asked: Asked, error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Answer>()) {
            Some(answer) => Self::Refused { asked, answer: answer.clone() },
            None if error.kind() == io::ErrorKind::InvalidData => Self::NotForwarding(error),
            None => Self::Lost(error),
        }
    }
}

/// Why a TCP connection was not carried to its end.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    /// This side refuses it, or cannot reach its target.
    #[error("{}", refusal(.0))]
    Refused(Answer),
    /// This side cannot open the port that the peer asked for.
    #[error("cannot be opened: {0}")]
    NotOpened(String),
    /// The TCP connection or the stream failed, or the other end refused: the error then has its [`Answer`].
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// The words for an answer at the end that gives it.
fn refusal(answer: &Answer) -> String {
    match (answer.is(Code::NotAllowed), answer.detail.as_str()) {
        (true, "") => "not allowed: no --allow covers it".to_owned(),
        (true, detail) => format!("not allowed: {detail}"),
        (false, _) => answer.to_string(),
    }
}
