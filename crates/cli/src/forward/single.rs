//! One connection over standard input and output (`-W`), as ssh's `ProxyCommand` wants it.
//!
//! [`client`](super::client) calls [`run`] once. Invariant: success means that standard output has all bytes
//! of the target, and that the target's socket has all bytes of standard input.

use std::future::Future;
use std::io;
use std::pin::pin;

use tidewire::{Connection, ReadHalf, Stream, WriteHalf};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::abandon;
use super::client::{drained, refused};
use super::header::{Request, read_answer, write_request};
use super::target::Target;
use crate::pipe::stdio;
use crate::session::CLOSE_WAIT;

/// Size of a read. Two such buffers wait in each direction between a thread and the stream.
const BUFFER: usize = 64 << 10;

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

/// Carries standard input to `target` and its bytes to standard output, until both have ended.
///
/// # Errors
/// [`Exit::Authentication`] if the target is not allowed; [`Exit::Unreachable`] if it cannot be reached or
/// resets, or the connection is lost; [`Exit::LocalIo`] if standard input or output fails.
pub async fn run(connection: &Connection, target: &Target) -> Result<(), Failure> {
    let stream: Stream = connection.open().await.or_exit(Exit::Unreachable)?;
    let (reader, writer) = stream.split();
    let mut halves = Halves { reader, writer, is_whole: false };
    let Halves { reader, writer, is_whole } = &mut halves;
    both(input(writer, target), output(reader, target)).await?;
    *is_whole = true;
    // A close would overtake bytes that the far side has not written yet.
    drained(connection).await.map_err(|error| refused(target, error))
}

/// Runs both directions to their ends. A far side that refuses stops reading before its answer is read, so
/// the answer is awaited when writing fails.
async fn both(
    there: impl Future<Output = Result<(), Failure>>,
    back: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
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
        Err(failure) if failure.exit == Exit::LocalIo => Err(failure),
        Err(failure) => Err(timeout(CLOSE_WAIT, back).await.ok().and_then(Result::err).unwrap_or(failure)),
    }
}

/// Copies standard input after the request.
async fn input(to: &mut WriteHalf, target: &Target) -> Result<(), Failure> {
    write_request(to, &Request::Connect(target.clone())).await.or_exit(Exit::Unreachable)?;
    let mut chunks = stdio::input(BUFFER);
    while let Some(chunk) = chunks.recv().await {
        let chunk = chunk.map_err(|error| local("cannot read standard input", &error))?;
        to.write_all(&chunk).await.or_exit(Exit::Unreachable)?;
    }
    to.shutdown().await.or_exit(Exit::Unreachable)
}

/// Copies what follows the answer to standard output, and closes that at its end.
async fn output(from: &mut ReadHalf, target: &Target) -> Result<(), Failure> {
    let answer = read_answer(from).await.map_err(|error| refused(target, error))?;
    if !answer.is_ready() {
        return Err(refused(target, io::Error::other(answer)));
    }
    let (chunks, written) = stdio::output();
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer).await.or_exit(Exit::Unreachable)?;
        // The writer stops early only if it failed, and returns its error below.
        if length == 0 || chunks.send(buffer[..length].to_vec()).await.is_err() {
            break;
        }
    }
    drop(chunks);
    match written.await {
        Ok(ended) => ended.map_err(|error| local("cannot write to standard output", &error)),
        Err(_) => Err(Failure::message(Exit::Other, "the writer of standard output panicked")),
    }
}

fn local(what: &str, error: &io::Error) -> Failure {
    Failure::message(Exit::LocalIo, format_args!("{what}: {error}"))
}
