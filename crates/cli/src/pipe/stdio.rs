//! Standard input and output as channels, each with a thread that blocks on it. [`super::run`] and
//! `forward -W` use one of each.
//!
//! They are plain threads because a read of a terminal cannot be cancelled. The runtime would wait for such a
//! read when the job ends otherwise, but the process does not wait for plain threads. Invariant: a file that
//! another program has made non-blocking is waited for; no byte is lost there.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};

/// Buffers that wait in a channel: one is filled while the other is sent.
const DEPTH: usize = 2;

/// Reads standard input in chunks of at most `size` bytes until its end or an error.
///
/// # Errors
/// The system gives no thread.
pub fn input(size: usize) -> io::Result<mpsc::Receiver<io::Result<Vec<u8>>>> {
    let (chunks, receiver) = mpsc::channel(DEPTH);
    thread::Builder::new().name("stdin".into()).spawn(move || {
        let mut stdin = io::stdin().lock();
        loop {
            let mut buffer = vec![0; size];
            let read = match read(&mut stdin, &mut buffer) {
                Ok(0) => return,
                Ok(length) => {
                    buffer.truncate(length);
                    Ok(buffer)
                }
                Err(error) => Err(error),
            };
            let failed = read.is_err();
            if chunks.blocking_send(read).is_err() || failed {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// What to write to standard output, and how that ended.
pub type Output = (mpsc::Sender<Vec<u8>>, oneshot::Receiver<io::Result<()>>);

/// Writes what the sender is given to standard output. When the sender is dropped and all is written,
/// standard output is closed and the other channel returns the result.
///
/// # Errors
/// The system gives no thread.
pub fn output() -> io::Result<Output> {
    let (sender, mut chunks) = mpsc::channel::<Vec<u8>>(DEPTH);
    let (ended, end) = oneshot::channel();
    thread::Builder::new().name("stdout".into()).spawn(move || {
        let mut write_all = || {
            let mut stdout = io::stdout().lock();
            while let Some(chunk) = chunks.blocking_recv() {
                // It flushes each chunk, because the reader may wait for it before it answers.
                write(&mut stdout, &chunk)?;
            }
            Ok(())
        };
        let written = write_all().and_then(|()| close_stdout());
        let _ = ended.send(written);
    })?;
    Ok((sender, end))
}

/// Reads at least a byte, unless the file has ended.
fn read(from: &mut (impl Read + AsFd), buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) => until_ready(from, PollFlags::IN, error)?,
            read => return read,
        }
    }
}

/// Writes and flushes all bytes.
fn write(to: &mut (impl Write + AsFd), mut bytes: &[u8]) -> io::Result<()> {
    loop {
        let written = if bytes.is_empty() { to.flush().map(|()| 0) } else { to.write(bytes) };
        match written {
            Ok(_) if bytes.is_empty() => return Ok(()),
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(error) => until_ready(to, PollFlags::OUT, error)?,
        }
    }
}

/// Waits until the call that failed can be made again.
fn until_ready(file: &impl AsFd, flags: PollFlags, failed: io::Error) -> io::Result<()> {
    match failed.kind() {
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::WouldBlock => match poll(&mut [PollFd::new(file, flags)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        },
        _ => Err(failed),
    }
}

/// Closes standard output by replacing it with another file, so that its reader sees the end while input goes
/// on.
fn close_stdout() -> io::Result<()> {
    let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stdout(nowhere)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn files_that_do_not_block_are_waited_for() {
        let (mut far, mut near) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        // More than the kernel holds, so that the writer has to wait.
        let bytes: Vec<u8> = (0..4_000_000_u32).map(|n| n as u8).collect();
        let (sent, echoed) = (
            bytes.clone(),
            thread::spawn(move || {
                let mut came = vec![0; 4_000_000];
                far.read_exact(&mut came).unwrap();
                far.write_all(&came[..1_000]).unwrap();
                came
            }),
        );
        write(&mut near, &sent).unwrap();
        let mut echo = [0; 1_000];
        let length = read(&mut near, &mut echo).unwrap();
        assert!(length > 0 && echo[..length] == bytes[..length]);
        assert_eq!(echoed.join().unwrap(), bytes);
        assert_eq!(read(&mut near, &mut echo[length..]).unwrap(), 1_000 - length);
    }
}
