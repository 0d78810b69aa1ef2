//! The recording: a consumer that writes its batches into a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidewire_recording::{Header, WriteError, Writer};

use crate::consumer::{Batch, Consumer, ConsumerError};

/// Greatest length of a recording if the user gives none. Chosen: hours of most jobs, and little of a disk.
const LIMIT: u64 = 1 << 30;

/// Writes a recording.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    /// `None` when the recording has ended.
    writer: Option<Writer<File>>,
    now: Duration,
}

impl Recorder {
    /// Creates the file. `job` names the job in its header. The recording ends at `limit` bytes, or at 1 GiB.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, limit: Option<u64>, job: &str) -> Result<Self, WriteError> {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = u64::try_from(began.as_millis()).unwrap_or(u64::MAX);
        let header = Header::new(env!("CARGO_PKG_VERSION"), job, began);
        let writer = Writer::new(File::create(path)?, &header, limit.unwrap_or(LIMIT))?;
        Ok(Self { path: path.to_owned(), writer: Some(writer), now: Duration::ZERO })
    }

    fn named(&self, error: &WriteError) -> ConsumerError {
        format!("`{}`: {error}", self.path.display()).into()
    }
}

impl Consumer for Recorder {
    fn name(&self) -> &'static str {
        "the recording"
    }

    fn take(&mut self, batch: &Batch, missed: u64) -> Result<(), ConsumerError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let mut write = || {
            if missed > 0 {
                writer.missed(self.now, missed)?;
            }
            batch.events.iter().try_for_each(|event| writer.push(event))?;
            writer.tick(batch.now)
        };
        let written = write();
        self.now = batch.now;
        written.map_err(|error| self.named(&error))
    }

    fn end(&mut self) -> Result<(), ConsumerError> {
        let ended = self.writer.take().map_or(Ok(()), |writer| writer.end().map(drop));
        ended.map_err(|error| self.named(&error))
    }
}
