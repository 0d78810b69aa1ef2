//! Standard input and output across a connection, like netcat (`docs/pipe.md`).
//!
//! The verb `pipe` calls [`run`] once, on either side. Each direction ends by itself; the job is done when
//! both sides know that all they read was written at the other. Invariant: exit code 0 at either side means
//! that the bytes of both directions arrived and were written.

mod stdio;

use std::io;
use std::time::Duration;

use tidewire::{CloseCode, CloseReason, Connection, ConnectionLost, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

use crate::exit::{Exit, Failure, OrExit};
use crate::session::{CLOSE_WAIT, CUT_OFF, DONE};

/// First bytes of each direction: a name and the version.
const HEAD: &[u8; 8] = b"TWPIPED\x01";
/// First byte of a further stream; those with another are of later versions.
const CONFIRMATION: u8 = 1;
/// Code of a close because nobody reads our output any more.
const OUTPUT_GONE: CloseCode = CloseCode::Application(257);
/// Bytes read at once; two such wait on each way between a thread and the stream.
const BUFFER: usize = 64 << 10;
/// A peer that closed for good reason said so before the idle timeout; the stream's error comes a moment
/// earlier.
const REASON_WAIT: Duration = Duration::from_millis(100);

/// Which side this is; only the order of the last words depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Opened the connection, and opens the stream.
    Connects,
    /// Waited for it.
    Listens,
}

/// Bytes that were moved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    /// Read here and written at the peer.
    pub sent: u64,
    /// Read at the peer and written here.
    pub received: u64,
}

/// Moves standard input there and the peer's here, until both have ended; then closes the connection.
///
/// # Errors
/// [`Exit::LocalIo`] when this side's input or the output of either side fails, [`Exit::Unreachable`] when
/// the connection is lost, [`Exit::Integrity`] when the peer wrote another number of bytes than were sent.
pub async fn run(connection: &Connection, side: Side) -> Result<Moved, Failure> {
    let ended = exchange(connection, side).await;
    let Err(failure) = ended else { return ended };
    if failure.exit == Exit::LocalIo {
        connection.close(OUTPUT_GONE, "");
        return Err(failure);
    }
    // A peer that gives up stops its streams first: why is in its CLOSE, which follows.
    let reason = timeout(REASON_WAIT, connection.closed()).await;
    connection.close(CUT_OFF, "");
    match reason {
        Ok(CloseReason::Peer { code: OUTPUT_GONE, .. }) => {
            Err(Failure::message(Exit::LocalIo, "nobody reads the output at the other side any more"))
        }
        _ => Err(failure),
    }
}

async fn exchange(connection: &Connection, side: Side) -> Result<Moved, Failure> {
    let stream = match side {
        Side::Connects => connection.open().await.or_exit(Exit::Unreachable)?,
        Side::Listens => accept(connection).await?,
    };
    let (reader, writer) = tokio::io::split(stream);
    let receive = async {
        let received = output(reader).await?;
        if side == Side::Listens {
            confirm(connection, received).await.or_exit(Exit::Unreachable)?;
        }
        Ok(received)
    };
    let (sent, received, confirmed) = tokio::try_join!(input(writer), receive, confirmation(connection))?;
    if confirmed != sent {
        let wrong = format_args!("{sent} bytes were sent, and {confirmed} written at the other side");
        return Err(Failure::message(Exit::Integrity, wrong));
    }
    // The listener has now heard all; it closes when it has. The other waits for that, or its last word could
    // be cut off.
    if side == Side::Connects {
        let said = confirm(connection, received).await;
        match timeout(CLOSE_WAIT, connection.closed()).await {
            Ok(CloseReason::Peer { code: DONE, .. }) => {}
            // A peer that failed ended its stream early: the bytes here may be a part of what it had to send.
            Ok(reason) => return Err(Failure::new(Exit::Unreachable, ConnectionLost(reason))),
            Err(_) => said.or_exit(Exit::Unreachable)?,
        }
    }
    connection.close(DONE, "");
    Ok(Moved { sent, received })
}

async fn accept(connection: &Connection) -> Result<Stream, Failure> {
    match connection.accept().await {
        Some(stream) => Ok(stream),
        None => Err(Failure::new(Exit::Unreachable, ConnectionLost(connection.closed().await))),
    }
}

/// Standard input to the stream; bytes sent.
async fn input(mut to: WriteHalf<Stream>) -> Result<u64, Failure> {
    to.write_all(HEAD).await.or_exit(Exit::Unreachable)?;
    let mut chunks = stdio::input();
    let mut sent = 0;
    while let Some(chunk) = chunks.recv().await {
        let chunk = chunk.map_err(|error| local("cannot read standard input", &error))?;
        to.write_all(&chunk).await.or_exit(Exit::Unreachable)?;
        sent += chunk.len() as u64;
    }
    to.shutdown().await.or_exit(Exit::Unreachable)?;
    Ok(sent)
}

/// The stream to standard output, which is then closed; bytes written.
async fn output(mut from: ReadHalf<Stream>) -> Result<u64, Failure> {
    let mut head = [0; HEAD.len()];
    from.read_exact(&mut head).await.or_exit(Exit::Unreachable)?;
    if head != *HEAD {
        return Err(Failure::message(Exit::Other, "the other side is not `tidewire pipe` of this version"));
    }
    let (chunks, written) = stdio::output();
    let mut buffer = vec![0; BUFFER];
    let mut received = 0;
    loop {
        let length = from.read(&mut buffer).await.or_exit(Exit::Unreachable)?;
        // The writer gives up before its end only when it failed: it says below why.
        if length == 0 || chunks.send(buffer[..length].to_vec()).await.is_err() {
            break;
        }
        received += length as u64;
    }
    drop(chunks);
    match written.await {
        Ok(Ok(())) => Ok(received),
        Ok(Err(error)) => Err(local("cannot write to standard output", &error)),
        Err(_) => Err(Failure::message(Exit::Other, "the writer of standard output panicked")),
    }
}

fn local(what: &str, error: &io::Error) -> Failure {
    Failure::message(Exit::LocalIo, format_args!("{what}: {error}"))
}

/// Tells the peer that its end was read and all before it written.
async fn confirm(connection: &Connection, written: u64) -> io::Result<()> {
    let mut stream = connection.open().await?;
    stream.write_u8(CONFIRMATION).await?;
    stream.write_u64(written).await?;
    stream.shutdown().await
}

/// What the peer confirms.
async fn confirmation(connection: &Connection) -> Result<u64, Failure> {
    loop {
        let mut stream = accept(connection).await?;
        if stream.read_u8().await.or_exit(Exit::Unreachable)? == CONFIRMATION {
            let written = stream.read_u64().await.or_exit(Exit::Unreachable)?;
            // To the end of the stream: dropping it earlier would stop it, and the peer's last write would
            // fail.
            stream.read(&mut [0]).await.or_exit(Exit::Unreachable)?;
            return Ok(written);
        }
    }
}
