//! How two ends meet: who sends, who receives, and with which latency.
//!
//! It happens at the beginning of each session, on the first stream of its connection. Invariant: after it,
//! one end sends, the other receives, and both know the same latency.

use std::fmt;
use std::io;
use std::time::Duration;

use tidewire::{CloseCode, Connection, Stream};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::wire::{Answer, Greeting, Side, read_answer, read_greeting, write_answer, write_greeting};
use super::{CLOSE_WAIT, CUT_OFF};

/// Time for a greeting or its answer. It follows the handshake at once, so this leaves time to repair losses.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection whose ends have met.
#[derive(Debug)]
pub struct Session {
    pub(crate) connection: Connection,
    pub(crate) stream: Stream,
    pub(crate) latency: Duration,
}

/// Why two ends did not meet.
#[derive(Debug)]
#[non_exhaustive]
pub enum MeetError {
    /// Both ends do the same, or one does not understand the other.
    Refused(Answer),
    /// The far end does not speak this protocol.
    Foreign(io::Error),
    /// The connection was lost meanwhile.
    Stream(io::Error),
    /// The end that was connected to does not answer.
    NoAnswer,
    /// The end that connected says nothing.
    NoGreeting,
}

impl fmt::Display for MeetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(answer) => answer.fmt(f),
            Self::Foreign(error) | Self::Stream(error) => error.fmt(f),
            Self::NoAnswer => f.write_str("the far side does not answer the greeting of live"),
            Self::NoGreeting => f.write_str("no greeting of live came"),
        }
    }
}

impl std::error::Error for MeetError {}

impl From<io::Error> for MeetError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData { Self::Foreign(error) } else { Self::Stream(error) }
    }
}

impl Session {
    /// Greets as the end that connected, and asks for a latency. The longer of both ends' is used.
    ///
    /// # Errors
    /// See [`MeetError`].
    pub async fn greet(connection: &Connection, side: Side, latency: Duration) -> Result<Self, MeetError> {
        let greeting = async {
            let mut stream = connection.open().await?;
            write_greeting(&mut stream, Greeting { side, latency }).await?;
            let answer = read_answer(&mut stream).await?;
            io::Result::Ok((stream, answer))
        };
        match timeout(PATIENCE, greeting).await {
            Ok(Ok((stream, Answer::Ready(latency)))) => Ok(Self { connection: connection.clone(), stream, latency }),
            Ok(Ok((_, answer))) => Err(MeetError::Refused(answer)),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(MeetError::NoAnswer),
        }
    }

    /// Answers the greeting as the end that listens. A connection whose ends did not meet is closed.
    ///
    /// # Errors
    /// See [`MeetError`].
    pub async fn answer(connection: &Connection, side: Side, latency: Duration) -> Result<Self, MeetError> {
        let answering = async {
            let mut stream = connection.accept().await?;
            let answer = match read_greeting(&mut stream).await? {
                Ok(greeting) if greeting.side == side => Answer::SameSide,
                Ok(greeting) => Answer::Ready(greeting.latency.max(latency)),
                Err(answer) => answer,
            };
            write_answer(&mut stream, answer).await?;
            io::Result::Ok((stream, answer))
        };
        match timeout(PATIENCE, answering).await {
            Ok(Ok((stream, Answer::Ready(latency)))) => Ok(Self { connection: connection.clone(), stream, latency }),
            Ok(Ok((mut stream, answer))) => {
                let _ = stream.shutdown().await;
                // The answer is on its way; the peer closes when it has it.
                let _ = timeout(CLOSE_WAIT, connection.closed()).await;
                connection.close(CUT_OFF, "");
                Err(MeetError::Refused(answer))
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => {
                connection.close(CloseCode::Protocol, "no greeting of live came");
                Err(MeetError::NoGreeting)
            }
        }
    }
}
