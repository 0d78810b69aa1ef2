//! One connection over a pair of byte sequences, mostly standard input and output (`-W`), as ssh's
//! `ProxyCommand` wants it.
//!
//! The caller runs it once over a connection. Invariant: success means that the output has all bytes of the
//! target, and that the target's socket has all bytes of the input.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use tidewire::{Connection, ReadHalf, Stream, WriteHalf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::abandon;
use crate::error::{Asked, ForwardError};
use crate::header::{Request, read_answer, write_request};
use crate::near::drained;
use crate::target::Target;

/// Time to wait for the answer of a far side that has stopped reading. Chosen: three round trips of the
/// slowest satellite link.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// Size of a piece of the output, and the best size of a piece of the input.
pub const PIECE: usize = 64 << 10;

/// The byte sequences of this side. They come and go over channels, because threads that may block on a
/// terminal read and write them.
#[derive(Debug)]
pub struct Pieces {
    /// What the target gets, until the sender is dropped.
    pub input: mpsc::Receiver<io::Result<Vec<u8>>>,
    /// Takes what the target sends. It is dropped at the end.
    pub output: mpsc::Sender<Vec<u8>>,
    /// Whether all of the output was written. It is awaited after `output` was dropped.
    pub written: oneshot::Receiver<io::Result<()>>,
}

/// A stream that is given up in both directions unless both have ended in order.
struct Halves {
    reader: ReadHalf,
    writer: WriteHalf,
    is_whole: bool,
}

impl Drop for Halves {
    fn drop(&mut self) {
        if !self.is_whole {
            abandon(&mut self.reader, &mut self.writer);
        }
    }
}

/// Carries the input to `target` and its bytes to the output, until both have ended.
///
/// # Errors
/// [`ForwardError::Refused`] if the target is not allowed, cannot be reached or resets;
/// [`ForwardError::Lost`] if the connection is lost; [`ForwardError::Input`] or [`ForwardError::Output`] if
/// that side fails.
pub async fn carry(connection: &Connection, target: &Target, pieces: Pieces) -> Result<(), ForwardError> {
    let stream: Stream = connection.open().await.map_err(|error| lost(error.into()))?;
    let (reader, writer) = stream.split();
    let mut halves = Halves { reader, writer, is_whole: false };
    let Halves { reader, writer, is_whole } = &mut halves;
    let Pieces { input: from, output: to, written } = pieces;
    both(input(from, writer, target), output(reader, target, to, written)).await?;
    *is_whole = true;
    // A close would overtake bytes that the far side has not written yet.
    drained(connection).await.map_err(|error| of(target, error))
}

/// Runs both directions to their ends. A far side that refuses stops reading before its answer is read, so
/// the answer is awaited when writing fails.
async fn both(
    there: impl Future<Output = Result<(), ForwardError>>,
    back: impl Future<Output = Result<(), ForwardError>>,
) -> Result<(), ForwardError> {
    let (mut there, mut back) = (pin!(there), pin!(back));
    let sent = tokio::select! {
        sent = &mut there => sent,
        received = &mut back => {
            received?;
            return there.await;
        }
    };
    match sent {
        Ok(()) => back.await,
        Err(failure @ ForwardError::Input(_)) => Err(failure),
        Err(failure) => Err(timeout(ANSWER_PATIENCE, back).await.ok().and_then(Result::err).unwrap_or(failure)),
    }
}

/// Copies the input after the request.
async fn input(
    mut from: mpsc::Receiver<io::Result<Vec<u8>>>,
    to: &mut WriteHalf,
    target: &Target,
) -> Result<(), ForwardError> {
    write_request(to, &Request::Connect(target.clone())).await.map_err(lost)?;
    while let Some(piece) = from.recv().await {
        to.write_all(&piece.map_err(ForwardError::Input)?).await.map_err(lost)?;
    }
    to.shutdown().await.map_err(lost)
}

/// Copies what follows the answer to the output, and ends that at its end.
async fn output(
    from: &mut ReadHalf,
    target: &Target,
    to: mpsc::Sender<Vec<u8>>,
    written: oneshot::Receiver<io::Result<()>>,
) -> Result<(), ForwardError> {
    let answer = read_answer(from).await.map_err(|error| of(target, error))?;
    if !answer.is_ready() {
        return Err(of(target, io::Error::other(answer)));
    }
    let mut buffer = vec![0; PIECE];
    loop {
        let length = from.read(&mut buffer).await.map_err(lost)?;
        // The writer stops early only if it failed, and returns its error below.
        if length == 0 || to.send(buffer[..length].to_vec()).await.is_err() {
            break;
        }
    }
    drop(to);
    let written = written.await.unwrap_or_else(|_| Err(io::Error::other("its writer has stopped")));
    written.map_err(ForwardError::Output)
}

fn of(target: &Target, error: io::Error) -> ForwardError {
    ForwardError::of(Asked::Target(target.clone()), error)
}

/// Whatever the error is: the stream has no answer of the far side in it.
fn lost(error: io::Error) -> ForwardError {
    ForwardError::Lost(error)
}
