//! The sending side: announces what [`scan`](super::scan) found, sends each file with its hash, and gathers the answers.
//!
//! Announcing and gathering run side by side over the two directions of the stream, so neither end can wait for the other
//! for ever. Between them stands one [`Ledger`]: an answer is accepted once, for an entry that was announced; a file that the
//! receiver refuses while it flows is cut short.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::io::{AsyncRead, AsyncWrite, split};

use super::path::printable;
use super::record::{Entry, Kind, Record, RecordReader, RecordWriter};
use super::source::{Found, Source, check_kind, show};
use super::{Event, FileFailure, Outcome, Reason, TransferError, Watch, blocking};

/// Sends all of `found`, and waits until the receiver has said what became of each entry.
///
/// # Errors
/// When the stream ends early, fails, or the peer breaks the protocol.
pub async fn send<S: AsyncRead + AsyncWrite>(
    stream: S,
    found: &Found,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    let (read, write) = split(stream);
    let mut outcome = Outcome::default();
    for failure in &found.failures {
        outcome.fail(failure, watch);
    }
    let ledger = Ledger(Mutex::new(vec![Fate::Unannounced; found.sources.len()]));
    let sender = async {
        let mut announcer =
            Announcer { records: RecordWriter::open(write).await?, ledger: &ledger, watch, failures: Vec::new() };
        announcer.announce(found).await?;
        announcer.records.close().await?;
        Ok(announcer.failures)
    };
    let gatherer = gather(read, found, &ledger, watch);
    let (failures, gathered) = tokio::try_join!(sender, gatherer)?;
    outcome.kept += gathered.kept;
    outcome.bytes += gathered.bytes;
    outcome.failed += gathered.failed + failures.len() as u32;
    outcome.mismatch |= gathered.mismatch;
    Ok(outcome)
}

/// What is known of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Unannounced,
    /// With its size.
    Announced(u64),
    Kept,
    Refused,
}

/// The fate of each entry, by id.
struct Ledger(Mutex<Vec<Fate>>);

impl Ledger {
    fn fates(&self) -> MutexGuard<'_, Vec<Fate>> {
        // Every change is one store: a poisoned ledger is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, id: u32, size: u64) {
        self.fates()[id as usize] = Fate::Announced(size);
    }

    fn refused(&self, id: u32) -> bool {
        self.fates()[id as usize] == Fate::Refused
    }

    /// The size of entry `id` if it awaits an answer, which this is.
    fn answer(&self, id: u32, fate: Fate) -> Option<u64> {
        let mut fates = self.fates();
        let slot = fates.get_mut(id as usize)?;
        let Fate::Announced(size) = *slot else { return None };
        *slot = fate;
        Some(size)
    }

    fn all_answered(&self) -> bool {
        !self.fates().iter().any(|fate| matches!(fate, Fate::Announced(_)))
    }
}

struct Announcer<'a, W> {
    records: RecordWriter<W>,
    ledger: &'a Ledger,
    watch: Watch<'a>,
    failures: Vec<FileFailure>,
}

impl<W: AsyncWrite + Unpin> Announcer<'_, W> {
    async fn announce(&mut self, found: &Found) -> Result<(), TransferError> {
        (self.watch)(Event::Total { files: found.files, bytes: found.bytes });
        self.records.write(&Record::Total { files: found.files, bytes: found.bytes }).await?;
        let (mut announced, mut unsent) = (0, found.failures.len() as u32);
        for (id, source) in (0..).zip(&found.sources) {
            if source.directory {
                announced += 1;
                self.ledger.announce(id, 0);
                self.records.write(&Record::Entry(entry(id, source, Kind::Directory, None))).await?;
                continue;
            }
            match blocking(|| open(source)) {
                Ok((file, before)) => {
                    announced += 1;
                    self.ledger.announce(id, before.len());
                    self.records.write(&Record::Entry(entry(id, source, Kind::File, Some(&before)))).await?;
                    self.file(id, source, file, &before).await?;
                }
                Err(failure) => {
                    unsent += 1;
                    self.fail(failure);
                }
            }
        }
        self.records.write(&Record::Done { announced, unsent }).await
    }

    /// Sends the bytes of one file, and its hash if they are what was announced.
    async fn file(&mut self, id: u32, source: &Source, mut file: File, before: &Metadata) -> Result<(), TransferError> {
        let mut hasher = blake3::Hasher::new();
        let mut left = before.len();
        while left > 0 {
            if self.ledger.refused(id) {
                // The receiver has named the failure; this only ends the entry.
                return self.records.write(&Record::Abort(Reason::Aborted)).await;
            }
            let failure = match self.records.write_chunk(left, |space| blocking(|| file.read(space))).await? {
                Ok([]) => FileFailure::new(show(&source.path), Reason::Changed, "it became shorter; send it again"),
                Ok(bytes) => {
                    hasher.update(bytes);
                    left -= bytes.len() as u64;
                    (self.watch)(Event::Bytes(bytes.len() as u64));
                    continue;
                }
                Err(error) => FileFailure::new(show(&source.path), Reason::Unreadable, error),
            };
            return self.abort(failure).await;
        }
        match blocking(|| changed(&file, before)) {
            None => self.records.write(&Record::End(hasher.finalize().into())).await,
            Some(detail) => self.abort(FileFailure::new(show(&source.path), Reason::Changed, detail)).await,
        }
    }

    async fn abort(&mut self, failure: FileFailure) -> Result<(), TransferError> {
        let reason = failure.reason;
        self.fail(failure);
        self.records.write(&Record::Abort(reason)).await
    }

    fn fail(&mut self, failure: FileFailure) {
        (self.watch)(Event::Failed(&failure));
        self.failures.push(failure);
    }
}

/// Reads the receiver's answers until its tally. Entries that the sender aborted are its own failures and not counted here.
async fn gather(
    read: impl AsyncRead + Unpin,
    found: &Found,
    ledger: &Ledger,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    let mut records = RecordReader::open(read).await?;
    let mut outcome = Outcome::default();
    loop {
        match records.next().await? {
            Record::Result { id, failure, detail } => {
                let fate = if failure.is_none() { Fate::Kept } else { Fate::Refused };
                let size = ledger.answer(id, fate).ok_or(TransferError::Unexpected("RESULT"))?;
                let name = &found.sources[id as usize].name;
                match failure {
                    None => outcome.keep(&name.to_string(), size, watch),
                    Some(Reason::Aborted) => {}
                    Some(reason) => {
                        let detail = format!("at the receiver: {}", printable(detail));
                        outcome.fail(&FileFailure::new(name, reason, detail), watch);
                    }
                }
            }
            Record::Tally { kept, bytes, .. }
                if kept == outcome.kept && bytes == outcome.bytes && ledger.all_answered() =>
            {
                return Ok(outcome);
            }
            Record::Tally { .. } => return Err(TransferError::Unexpected("TALLY")),
            _ => return Err(TransferError::Unexpected("sender's")),
        }
    }
}

/// Opens a file and looks at what was opened, not at what was found earlier.
fn open(source: &Source) -> Result<(File, Metadata), FileFailure> {
    let failed = |reason, error: io::Error| FileFailure::new(show(&source.path), reason, error);
    let mut options = OpenOptions::new();
    options.read(true);
    // Never through a link planted since the scan; never waiting for the other end of a pipe planted since.
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
        options.custom_flags(flags.bits() as i32);
    }
    let file = options.open(&source.path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => failed(Reason::Vanished, error),
        // What the open says of a link planted since depends on the system; the link itself says it best.
        _ => match std::fs::symlink_metadata(&source.path).map(|now| check_kind(&source.path, &now)) {
            Ok(Err(failure)) => failure,
            _ => failed(Reason::Unreadable, error),
        },
    })?;
    let metadata = file.metadata().map_err(|error| failed(Reason::Unreadable, error))?;
    check_kind(&source.path, &metadata)?;
    Ok((file, metadata))
}

/// In what way the file is no longer what was announced, now that all its bytes are read.
fn changed(file: &File, before: &Metadata) -> Option<String> {
    let after = match file.metadata() {
        Ok(after) => after,
        Err(error) => return Some(error.to_string()),
    };
    if after.len() != before.len() {
        return Some(format!("it had {} bytes and now has {}; send it again", before.len(), after.len()));
    }
    let touched = matches!((before.modified(), after.modified()), (Ok(before), Ok(after)) if before != after);
    touched.then(|| "it was written to meanwhile; send it again".into())
}

fn entry(id: u32, source: &Source, kind: Kind, metadata: Option<&Metadata>) -> Entry {
    Entry {
        id,
        kind,
        executable: metadata.is_some_and(executable),
        modified: metadata.and_then(|metadata| metadata.modified().ok()).map_or((0, 0), wire_time),
        size: metadata.map_or(0, Metadata::len),
        offset: 0,
        path: source.name.as_str().into(),
    }
}

#[cfg(unix)]
fn executable(metadata: &Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o100 != 0
}

#[cfg(not(unix))]
fn executable(_: &Metadata) -> bool {
    false
}

/// Seconds (rounded down) and nanoseconds since 1970.
fn wire_time(time: SystemTime) -> (i64, u32) {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-(before.as_secs() as i64), 0),
                nanos => (-(before.as_secs() as i64) - 1, 1_000_000_000 - nanos),
            }
        }
    }
}
