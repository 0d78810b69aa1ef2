//! Connects standard input and output of two machines, like netcat (`docs/pipe.md`).
//!
//! The verb `pipe` calls [`run`] once on each side. Each direction ends by itself. The job is done when both
//! sides know that the other side has written all that they read. Invariant: exit code 0 at either side means
//! that the bytes of both directions arrived and were written.

pub(crate) mod stdio;

use std::io;
use std::time::Duration;

use tidewire::{CloseCode, CloseReason, Connection, ConnectionLost, Stream};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

use crate::session::{CLOSE_WAIT, CUT_OFF, DONE};

/// First bytes of each direction: a name and the version.
const HEAD: &[u8; 8] = b"TWPIPED\x01";
/// First byte of the stream of a confirmation. Other values are left to later versions.
const CONFIRMATION: u8 = 1;
/// Close code of a side whose standard output is closed or whose standard input fails.
const OUTPUT_GONE: CloseCode = CloseCode::Application(257);
/// Size of a read. Two such buffers wait in each direction between a thread and the stream.
const BUFFER: usize = 64 << 10;
/// Time to wait for the CLOSE of a peer whose stream failed: the error of the stream arrives a moment before
/// it.
const REASON_WAIT: Duration = Duration::from_millis(100);

/// The role of this side. It only decides the order of the confirmations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeEnd {
    /// This side opened the connection, and opens the stream.
    Connects,
    /// This side waited for the connection.
    Listens,
}

/// Counts of the bytes of both directions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    /// Bytes read here and written at the peer.
    pub sent: u64,
    /// Bytes read at the peer and written here.
    pub received: u64,
}

/// Copies standard input to the peer and the input of the peer to standard output, until both have ended.
/// Then it closes the connection.
///
/// # Errors
/// [`Exit::LocalIo`] if the input of this side or the output of either side fails, [`Exit::Unreachable`] if
/// the connection is lost, [`Exit::Integrity`] if the peer wrote another number of bytes than were sent.
pub async fn run(connection: &Connection, side: PipeEnd) -> Result<Moved, Failure> {
    let ended = exchange(connection, side).await;
    let Err(failure) = ended else { return ended };
    if failure.exit == Exit::LocalIo {
        connection.close(OUTPUT_GONE, "");
        return Err(failure);
    }
    // A peer that gives up stops its streams first. The reason is in its CLOSE, which follows.
    let reason = timeout(REASON_WAIT, connection.closed()).await;
    connection.close(CUT_OFF, "");
    match reason {
        Ok(CloseReason::Peer { code: OUTPUT_GONE, .. }) => {
            Err(Failure::message(Exit::LocalIo, "standard output of the other side is closed, or its input failed"))
        }
        _ => Err(failure),
    }
}

async fn exchange(connection: &Connection, side: PipeEnd) -> Result<Moved, Failure> {
    let stream = match side {
        PipeEnd::Connects => connection.open().await.or_exit(Exit::Unreachable)?,
        PipeEnd::Listens => connection.accept().await.or_exit(Exit::Unreachable)?,
    };
    let (reader, writer) = tokio::io::split(stream);
    let receive = async {
        let received = output(reader).await?;
        if side == PipeEnd::Listens {
            confirm(connection, received).await.or_exit(Exit::Unreachable)?;
        }
        Ok(received)
    };
    let (sent, received, confirmed) = tokio::try_join!(input(writer), receive, confirmation(connection))?;
    if confirmed != sent {
        let wrong = format_args!("{sent} bytes were sent, but the other side wrote {confirmed}");
        return Err(Failure::message(Exit::Integrity, wrong));
    }
    // The listener has both confirmations now, and closes after it has read the last one. The connecting side
    // waits for that close, because closing first could cut its confirmation off.
    if side == PipeEnd::Connects {
        let said = confirm(connection, received).await;
        match timeout(CLOSE_WAIT, connection.closed()).await {
            Ok(CloseReason::Peer { code: DONE, .. }) => {}
            // A peer that failed ends its stream early, so the bytes received here may be incomplete.
            Ok(reason) => return Err(Failure::new(Exit::Unreachable, ConnectionLost(reason))),
            Err(_) => said.or_exit(Exit::Unreachable)?,
        }
    }
    connection.close(DONE, "");
    Ok(Moved { sent, received })
}

/// Copies standard input to the stream, and returns the number of bytes sent.
async fn input(mut to: WriteHalf<Stream>) -> Result<u64, Failure> {
    to.write_all(HEAD).await.or_exit(Exit::Unreachable)?;
    let mut chunks = stdio::input(BUFFER).map_err(|error| no_thread(&error))?;
    let mut sent = 0;
    while let Some(chunk) = chunks.recv().await {
        let chunk = chunk.map_err(|error| local("cannot read standard input", &error))?;
        to.write_all(&chunk).await.or_exit(Exit::Unreachable)?;
        sent += chunk.len() as u64;
    }
    to.shutdown().await.or_exit(Exit::Unreachable)?;
    Ok(sent)
}

/// Copies the stream to standard output, closes that, and returns the number of bytes written.
async fn output(mut from: ReadHalf<Stream>) -> Result<u64, Failure> {
    let mut head = [0; HEAD.len()];
    from.read_exact(&mut head).await.or_exit(Exit::Unreachable)?;
    if head != *HEAD {
        return Err(Failure::message(
            Exit::Other,
            "the other side is not `tidewire pipe` of this version; run the same release of `tidewire pipe` there",
        ));
    }
    let (chunks, written) = stdio::output().map_err(|error| no_thread(&error))?;
    let mut buffer = vec![0; BUFFER];
    let mut received = 0;
    loop {
        let length = from.read(&mut buffer).await.or_exit(Exit::Unreachable)?;
        // The writer stops early only if it failed, and returns its error below.
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

/// The failure of a job whose standard input or output gets no thread.
pub(crate) fn no_thread(error: &io::Error) -> Failure {
    Failure::message(Exit::Other, format_args!("the system refuses a thread: {error}; allow more (ulimit -u)"))
}

fn local(what: &str, error: &io::Error) -> Failure {
    Failure::message(Exit::LocalIo, format_args!("{what}: {error}"))
}

/// Tells the peer that its whole input was read and written.
async fn confirm(connection: &Connection, written: u64) -> io::Result<()> {
    let mut stream = connection.open().await?;
    stream.write_u8(CONFIRMATION).await?;
    stream.write_u64(written).await?;
    stream.shutdown().await
}

/// Waits for the confirmation of the peer, and returns the number of bytes that it wrote.
async fn confirmation(connection: &Connection) -> Result<u64, Failure> {
    loop {
        let mut stream = connection.accept().await.or_exit(Exit::Unreachable)?;
        if stream.read_u8().await.or_exit(Exit::Unreachable)? == CONFIRMATION {
            let written = stream.read_u64().await.or_exit(Exit::Unreachable)?;
            // Read to the end of the stream: dropping it earlier would stop it, and the last write of the
            // peer would fail.
            stream.read(&mut [0]).await.or_exit(Exit::Unreachable)?;
            return Ok(written);
        }
    }
}
