//! The sending side: announces what [`scan`](super::scan) found, sends each file with its hash, and gathers the answers.
//!
//! Announcing and gathering run side by side over the two directions of the stream, so neither end can wait for the other
//! for ever. Between them stands one [`Ledger`]: an answer is accepted once, for an entry that was announced; a file that the
//! receiver refuses while it flows is cut short. Announcing begins when the receiver has said what it has of earlier
//! sessions ([`Offers`]).

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::sync::oneshot;

use super::kept::wire_time;
use super::offers::Offers;
use super::path::printable;
use super::record::{Entry, Kind, Record, RecordReader, RecordWriter};
use super::source::{Found, Source, check_kind, show};
use super::tree::{GROUP, Prefix, Tree};
use super::{Event, FileFailure, Key, Outcome, Reason, TransferError, Watch, blocking};

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
    let (ready, offers) = oneshot::channel();
    let sender = async {
        let mut records = RecordWriter::open(write).await?;
        watch(Event::Total { files: found.files, bytes: found.bytes });
        records.write(&Record::Total { files: found.files, bytes: found.bytes, job: found.job }).await?;
        // Without READY the gatherer fails, and its error is the one to tell.
        let Ok(offers) = offers.await else { return std::future::pending().await };
        let mut announcer = Announcer { records, ledger: &ledger, offers, watch, failures: Vec::new() };
        announcer.announce(found).await?;
        // A receiver that has read DONE reads no more: it may stop the stream before we say its end. TALLY tells how the transfer ended.
        let _ = announcer.records.close().await;
        Ok(announcer.failures)
    };
    let gatherer = gather(read, found, &ledger, ready, watch);
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
    offers: Offers,
    watch: Watch<'a>,
    failures: Vec<FileFailure>,
}

impl<W: AsyncWrite + Unpin> Announcer<'_, W> {
    async fn announce(&mut self, found: &Found) -> Result<(), TransferError> {
        let (mut announced, mut unsent) = (0, found.failures.len() as u32);
        for (id, source) in (0..).zip(&found.sources) {
            if source.directory {
                announced += 1;
                self.ledger.announce(id, 0);
                self.records.write(&Record::Entry(entry(id, source, None))).await?;
                continue;
            }
            match blocking(|| open(source)) {
                Ok((file, before)) => {
                    announced += 1;
                    self.ledger.announce(id, before.len());
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

    /// Announces one file and sends what the receiver has not.
    async fn file(&mut self, id: u32, source: &Source, mut file: File, before: &Metadata) -> Result<(), TransferError> {
        let mut entry = entry(id, source, Some(before));
        let (name, size) = (source.name.to_string(), before.len());
        let path = Key::of_path(&entry.path);
        entry.kept = self.offers.has(path, entry.source);
        if entry.kept {
            entry.offset = size;
            (self.watch)(Event::Resumed { path: &name, offset: size, size });
            return self.records.write(&Record::Entry(entry)).await;
        }
        let offered = self.offers.part(entry.source, size);
        let part = offered.filter(|prefix| blocking(|| still_ends(&mut file, prefix)));
        match &part {
            Some(prefix) => {
                entry.offset = prefix.offset();
                (self.watch)(Event::Resumed { path: &name, offset: entry.offset, size });
            }
            None if self.offers.has_begun(path) => (self.watch)(Event::Changed { path: &name, size }),
            None => {}
        }
        self.records.write(&Record::Entry(entry)).await?;
        let mut tree = Tree::new(part.as_ref());
        match self.bytes(id, &mut file, &mut tree, size).await? {
            Sent::Refused => self.records.write(&Record::Abort(Reason::Aborted)).await,
            Sent::Failed(reason, detail) => self.abort(FileFailure::new(show(&source.path), reason, detail)).await,
            Sent::All => match (blocking(|| changed(&file, before)), tree.finish()) {
                (None, Some(hash)) => self.records.write(&Record::End(hash.into())).await,
                (detail, _) => {
                    let detail = detail.unwrap_or_default();
                    self.abort(FileFailure::new(show(&source.path), Reason::Changed, detail)).await
                }
            },
        }
    }

    /// Sends the bytes of `file` from where it stands and `tree` ends, up to `size`.
    async fn bytes(&mut self, id: u32, file: &mut File, tree: &mut Tree, size: u64) -> Result<Sent, TransferError> {
        while tree.bytes() < size {
            if self.ledger.refused(id) {
                // The receiver has named the failure; this only ends the entry.
                return Ok(Sent::Refused);
            }
            if tree.room() == 0 {
                let mark = *tree.close_group().last();
                self.records.write(&Record::Mark(mark)).await?;
            }
            let most = tree.room().min(size - tree.bytes());
            match self.records.write_chunk(most, |space| blocking(|| file.read(space))).await? {
                Ok([]) => return Ok(Sent::Failed(Reason::Changed, "it became shorter; send it again".into())),
                Ok(bytes) => {
                    tree.update(bytes);
                    (self.watch)(Event::Bytes(bytes.len() as u64));
                }
                Err(error) => return Ok(Sent::Failed(Reason::Unreadable, error.to_string())),
            }
        }
        Ok(Sent::All)
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

/// What became of a file's bytes.
enum Sent {
    All,
    /// The receiver does not want more of them.
    Refused,
    Failed(Reason, String),
}

/// Reads what the receiver has, and tells `ready`; then its answers until its tally. Entries that the sender aborted are its own failures and not counted here.
async fn gather(
    read: impl AsyncRead + Unpin,
    found: &Found,
    ledger: &Ledger,
    ready: oneshot::Sender<Offers>,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    let mut records = RecordReader::open(read).await?;
    let mut outcome = Outcome::default();
    let mut offers = Offers::default();
    loop {
        match records.next().await? {
            Record::Have(have) => offers.add(have, found.sources.len())?,
            Record::Ready => break,
            _ => return Err(TransferError::Unexpected("sender's, or early")),
        }
    }
    // The writing side waits for it, or has failed and ends this.
    let _ = ready.send(offers);
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

/// Whether the last group of `prefix` is what `file` has there; leaves the file at its end if so, else at its beginning.
fn still_ends(file: &mut File, prefix: &Prefix) -> bool {
    let mut group = Vec::new();
    let read = file
        .seek(SeekFrom::Start(prefix.offset() - GROUP))
        .and_then(|_| file.by_ref().take(GROUP).read_to_end(&mut group));
    let same = read.is_ok() && prefix.ends_in(&group);
    if !same {
        // A file that cannot even be rewound is not read whole, and the hash says so.
        let _ = file.rewind();
    }
    same
}

/// The ENTRY of a file, or of a directory, which has no metadata.
fn entry(id: u32, source: &Source, metadata: Option<&Metadata>) -> Entry {
    let executable = metadata.is_some_and(executable);
    let modified = metadata.and_then(|metadata| metadata.modified().ok()).map_or((0, 0), wire_time);
    let size = metadata.map_or(0, Metadata::len);
    Entry {
        id,
        kind: if metadata.is_some() { Kind::File } else { Kind::Directory },
        executable,
        kept: false,
        modified,
        size,
        offset: 0,
        source: metadata
            .map_or_else(Key::default, |metadata| Key::of_source(inode(metadata), size, modified, executable)),
        path: source.name.as_str().into(),
    }
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

/// There the time of creation tells files apart.
#[cfg(not(unix))]
fn inode(metadata: &Metadata) -> u64 {
    let created = metadata.created().map(wire_time).unwrap_or_default();
    (created.0 as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(created.1))
}

#[cfg(unix)]
fn executable(metadata: &Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o100 != 0
}

#[cfg(not(unix))]
fn executable(_: &Metadata) -> bool {
    false
}
