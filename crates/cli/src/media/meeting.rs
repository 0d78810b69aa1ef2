//! How two ends of `live` meet: who sends, who receives, and with which latency.
//!
//! [`super::sender`] and [`super::receiver`] call it at the beginning of each session, on the first stream of
//! its connection. Invariant: after it, one end sends, the other receives, and both know the same latency.

use std::io;
use std::time::Duration;

use tidewire::{CloseCode, Connection, Stream};
use tidewire_command::exit::{Exit, Failure};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::wire::{Answer, Greeting, Side, read_answer, read_greeting, write_answer, write_greeting};
use crate::session;

/// Time for a greeting or its answer. It follows the handshake at once, so this leaves time to repair losses.
const PATIENCE: Duration = Duration::from_secs(10);

/// Greets as the end that connected.
///
/// # Errors
/// [`Exit::Other`] if the far end does the same as this one or is no `tidewire live`, [`Exit::Unreachable`]
/// if it does not answer.
pub async fn greet(connection: &Connection, side: Side, latency: Duration) -> Result<(Stream, Duration), Failure> {
    let greeting = async {
        let mut stream = connection.open().await?;
        write_greeting(&mut stream, Greeting { side, latency }).await?;
        let answer = read_answer(&mut stream).await?;
        io::Result::Ok((stream, answer))
    };
    match timeout(PATIENCE, greeting).await {
        Ok(Ok((stream, Answer::Ready(latency)))) => Ok((stream, latency)),
        Ok(Ok((_, answer))) => Err(Failure::message(Exit::Other, answer)),
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => Err(Failure::new(Exit::Other, error)),
        Ok(Err(error)) => Err(Failure::new(Exit::Unreachable, error)),
        Err(_) => Err(Failure::message(Exit::Unreachable, "the far side does not answer the greeting of live")),
    }
}

/// Answers the greeting as the end that listens.
///
/// # Errors
/// One sentence about why there is no session.
pub async fn answer(connection: &Connection, side: Side, latency: Duration) -> Result<(Stream, Duration), String> {
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
        Ok(Ok((stream, Answer::Ready(latency)))) => Ok((stream, latency)),
        Ok(Ok((mut stream, answer))) => {
            let _ = stream.shutdown().await;
            // The answer is on its way; the peer closes when it has it.
            let _ = timeout(session::CLOSE_WAIT, connection.closed()).await;
            connection.close(session::CUT_OFF, "");
            Err(answer.to_string())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => {
            connection.close(CloseCode::Protocol, "no greeting of live came");
            Err("no greeting of live came".into())
        }
    }
}
