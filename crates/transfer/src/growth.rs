//! Copies the beginning of a file that stands into the part of a longer version of it (`docs/transfer.md`
//! section 3), while the rest arrives.
//!
//! [`part`](super::part) has it for a part, and the comparing side of the receiver copies what it has
//! compared. Invariant: until all of the beginning was copied and found equal, no state of the part is
//! written.

use std::fs::File;
use std::io::{self, Seek};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the beginning of a part comes from.
#[derive(Debug)]
pub(super) struct Growth {
    from: File,
    done: Arc<AtomicBool>,
}

/// A copy in progress.
#[derive(Debug)]
pub(super) struct Copying {
    #[cfg_attr(not(unix), expect(dead_code, reason = "no file grows there"))]
    to: File,
    at: u64,
    done: Arc<AtomicBool>,
}

impl Growth {
    pub(super) fn new(from: File) -> Self {
        Self { from, done: Arc::default() }
    }

    /// Whether everything was copied.
    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// The file to read from its beginning on, and the copy into `part`.
    pub(super) fn begin(&self, part: &File) -> io::Result<(File, Copying)> {
        let mut from = self.from.try_clone()?;
        from.rewind()?;
        Ok((from, Copying { to: part.try_clone()?, at: 0, done: Arc::clone(&self.done) }))
    }
}

impl Copying {
    /// Writes the next bytes. Zeros stay a hole. The position of the part is not moved.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.iter().any(|&byte| byte != 0) {
            self.write_at(bytes)?;
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    #[cfg(unix)]
    fn write_at(&self, bytes: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.to, bytes, self.at)
    }

    /// Files tell there of no delivery, so none grows.
    #[cfg(not(unix))]
    fn write_at(&self, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// All bytes were copied and are the right ones.
    pub(super) fn finish(self) {
        self.done.store(true, Ordering::Relaxed);
    }
}
