//! Standard input and output as channels, each with a thread that blocks on it. [`super::run`] and
//! `forward -W` use one of each.
//!
//! They are plain threads because a read of a terminal cannot be cancelled. The runtime would wait for such a
//! read when the job ends otherwise, but the process does not wait for plain threads.

use std::io::{self, Read, Write};
use std::thread;

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
            let read = match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => {
                    buffer.truncate(length);
                    Ok(buffer)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
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
                stdout.write_all(&chunk)?;
                // Flush each chunk, because the reader may wait for it before it answers.
                stdout.flush()?;
            }
            Ok(())
        };
        let written = write_all().and_then(|()| close_stdout());
        let _ = ended.send(written);
    })?;
    Ok((sender, end))
}

/// Closes standard output by replacing it with another file, so that its reader sees the end while input goes
/// on.
fn close_stdout() -> io::Result<()> {
    let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stdout(nowhere)?)
}
