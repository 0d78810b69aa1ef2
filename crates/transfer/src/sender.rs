//! The sending side: announces the files that [`scan`](super::scan) found, sends each file with its hash, and
//! collects the answers.
//!
//! Announcing and collecting run concurrently over the two directions of the stream, so neither end can wait
//! for the other for ever. They share one [`Ledger`]: an answer is accepted once, for an announced entry. A
//! file that the receiver refuses while it is sent is cut short. Announcing begins when the receiver has
//! listed what it has of earlier sessions ([`Offers`]).

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::sync::oneshot;

use super::content::Content;
use super::kept::wire_time;
use super::offers::Offers;
use super::record::{Entry, Kind, Record, RecordReader, RecordWriter};
use super::source::{Found, Source, check_kind, show, unopened};
use super::tree::{GROUP, Prefix, Tree};
use super::{Event, FileFailure, Key, Outcome, Reason, TransferError, Watch, blocking, mode};

/// Sends everything in `found`, and waits for the result of each entry.
///
/// # Errors
/// Fails if the stream ends early or fails, or the peer breaks the protocol.
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
    let ledger = Ledger(Mutex::new(vec![Progress::Unannounced; found.sources.len()]));
    let (ready, offers) = oneshot::channel();
    let sender = async {
        let mut records = RecordWriter::open(write).await?;
        watch(Event::Total { files: found.files, bytes: found.bytes });
        records.write(&Record::Total { files: found.files, bytes: found.bytes, job: found.job }).await?;
        // Without READY the collecting side fails, and its error is the one to report.
        let Ok(offers) = offers.await else { return std::future::pending().await };
        let mut announcer = Announcer { records, ledger: &ledger, offers, watch, failures: Vec::new() };
        announcer.announce(found).await?;
        // A receiver that has read DONE reads no more and may stop the stream before its end arrives. TALLY
        // tells how the transfer ended.
        let _ = announcer.records.close().await;
        Ok(announcer.failures)
    };
    let gatherer = gather(read, found, &ledger, ready, watch);
    let (failures, gathered) = tokio::try_join!(sender, gatherer)?;
    outcome.kept += gathered.kept;
    outcome.bytes += gathered.bytes;
    outcome.resumed += gathered.resumed;
    outcome.failed += gathered.failed + failures.len() as u32;
    outcome.mismatch |= gathered.mismatch;
    Ok(outcome)
}

/// The state of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Unannounced,
    /// Announced, with its size and the offset of its first byte.
    Announced(u64, u64),
    Kept,
    Refused,
}

/// The state of each entry, by id.
struct Ledger(Mutex<Vec<Progress>>);

impl Ledger {
    fn fates(&self) -> MutexGuard<'_, Vec<Progress>> {
        // Every change is a single store, so a poisoned ledger is still consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, entry: &Entry) {
        self.fates()[entry.id as usize] = Progress::Announced(entry.size, entry.offset);
    }

    fn refused(&self, id: u32) -> bool {
        self.fates()[id as usize] == Progress::Refused
    }

    /// Records the answer for entry `id`. Returns its size and the offset of its first byte, if it was
    /// waiting for an answer.
    fn answer(&self, id: u32, fate: Progress) -> Option<(u64, u64)> {
        let mut fates = self.fates();
        let slot = fates.get_mut(id as usize)?;
        let Progress::Announced(size, offset) = *slot else { return None };
        *slot = fate;
        Some((size, offset))
    }

    fn all_answered(&self) -> bool {
        !self.fates().iter().any(|fate| matches!(fate, Progress::Announced(..)))
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
            match blocking(|| open(source)) {
                Ok((content, before)) => {
                    announced += 1;
                    let entry = entry(id, source, &content, &before);
                    match entry.kind {
                        Kind::Directory => self.announce_entry(entry).await?,
                        _ => self.file(entry, source, content, &before).await?,
                    }
                }
                Err(failure) => {
                    unsent += 1;
                    self.fail(failure);
                }
            }
        }
        self.records.write(&Record::Done { announced, unsent }).await
    }

    async fn announce_entry(&mut self, entry: Entry) -> Result<(), TransferError> {
        self.ledger.announce(&entry);
        self.records.write(&Record::Entry(entry)).await
    }

    /// Announces a file and sends the bytes that the receiver lacks.
    async fn file(
        &mut self,
        mut entry: Entry,
        source: &Source,
        mut content: Content,
        before: &Metadata,
    ) -> Result<(), TransferError> {
        let (id, name, size) = (entry.id, source.name.to_string(), entry.size);
        let path = Key::of_path(&entry.path);
        entry.kept = self.offers.has(path, entry.source);
        if entry.kept {
            entry.offset = size;
            (self.watch)(Event::Resumed { path: &name, offset: size, size });
            return self.announce_entry(entry).await;
        }
        let offered = self.offers.part(entry.source, size);
        let part = offered.filter(|prefix| blocking(|| still_ends(&mut content, prefix)));
        match &part {
            Some(prefix) => {
                entry.offset = prefix.offset();
                (self.watch)(Event::Resumed { path: &name, offset: entry.offset, size });
            }
            None if self.offers.has_begun(path) => (self.watch)(Event::Changed { path: &name, size }),
            None => {}
        }
        self.announce_entry(entry).await?;
        let mut tree = Tree::new(part.as_ref());
        match self.bytes(id, &mut content, &mut tree, size).await? {
            Sent::Refused => self.records.write(&Record::Abort(Reason::Aborted)).await,
            Sent::Failed(reason, detail) => self.abort(FileFailure::new(show(&source.path), reason, detail)).await,
            Sent::All => match (blocking(|| content.file().and_then(|file| changed(file, before))), tree.finish()) {
                (None, Some(hash)) => self.records.write(&Record::End(hash.into())).await,
                (detail, _) => {
                    let detail = detail.unwrap_or_default();
                    self.abort(FileFailure::new(show(&source.path), Reason::Changed, detail)).await
                }
            },
        }
    }

    /// Sends the bytes of a file from its position, where `tree` ends, up to `size`.
    async fn bytes(
        &mut self,
        id: u32,
        content: &mut Content,
        tree: &mut Tree,
        size: u64,
    ) -> Result<Sent, TransferError> {
        while tree.bytes() < size {
            if self.ledger.refused(id) {
                // The receiver has reported the failure. This only ends the entry.
                return Ok(Sent::Refused);
            }
            if tree.room() == 0 {
                let mark = *tree.close_group().last();
                self.records.write(&Record::Mark(mark)).await?;
            }
            let most = tree.room().min(size - tree.bytes());
            match self.records.write_chunk(most, |space| blocking(|| read(content, space))).await? {
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

/// The result of sending a file's bytes.
enum Sent {
    All,
    /// The receiver wants no more of them.
    Refused,
    Failed(Reason, String),
}

/// Reads what the receiver has and passes it to `ready`, then the answers until TALLY. Entries that the
/// sender aborted are its own failures and are not counted here.
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
    // The writing side waits for it, or has failed and ends this task.
    let _ = ready.send(offers);
    loop {
        match records.next().await? {
            Record::Result { id, failure, detail } => {
                let fate = if failure.is_none() { Progress::Kept } else { Progress::Refused };
                let (bytes, resumed) = ledger.answer(id, fate).ok_or(TransferError::Unexpected("RESULT"))?;
                let name = &found.sources[id as usize].name;
                match failure {
                    None => {
                        let warning = (!detail.is_empty()).then(|| format!("at the receiver: {detail}"));
                        outcome.keep(&name.to_string(), bytes, resumed, warning.as_deref(), watch);
                    }
                    Some(Reason::Aborted) => {}
                    Some(reason) => {
                        let detail = format!("at the receiver: {detail}");
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

/// Reads once. An interrupted call (on some network file systems) is no error of the file.
fn read(content: &mut Content, space: &mut [u8]) -> io::Result<usize> {
    loop {
        match content.read(space) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Opens a file or folder, and examines what was opened instead of what was found before.
fn open(source: &Source) -> Result<(Content, Metadata), FileFailure> {
    let file = source.root.read(&source.name).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            return unopened(&source.path, &error);
        }
        // The error for a link that was planted since depends on the system. The link itself is the better
        // reason.
        match std::fs::symlink_metadata(&source.path).map(|now| check_kind(&source.path, &now)) {
            Ok(Err(failure)) => failure,
            _ if is_behind_link(&error) => {
                let detail = "a folder on the way to it has become a symbolic link or a file";
                FileFailure::new(show(&source.path), Reason::NotAFile, detail)
            }
            _ => unopened(&source.path, &error),
        }
    })?;
    let metadata = file.metadata().map_err(|error| unopened(&source.path, &error))?;
    check_kind(&source.path, &metadata)?;
    if metadata.is_dir() != source.directory {
        let (is, was) = if source.directory { ("file", "folder") } else { ("folder", "file") };
        return Err(FileFailure::new(
            show(&source.path),
            Reason::Changed,
            format_args!("it was a {was}, now it is a {is}"),
        ));
    }
    if source.directory {
        return Ok((Content::File(file), metadata));
    }
    Content::of(file, metadata).map_err(|(reason, detail)| FileFailure::new(show(&source.path), reason, detail))
}

/// Whether a path was not followed because a part of it is a symbolic link, or no folder.
fn is_behind_link(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotADirectory) || error.raw_os_error() == Some(SYMBOLIC_LINK)
}

/// The system's error for a symbolic link that must not be followed.
#[cfg(unix)]
const SYMBOLIC_LINK: i32 = rustix::io::Errno::LOOP.raw_os_error();
/// `ERROR_CANT_ACCESS_FILE`.
#[cfg(not(unix))]
const SYMBOLIC_LINK: i32 = 1920;

/// How the file differs from what was announced, after all its bytes were read.
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

/// Whether `file` has the last group of `prefix` in its place. If so, the file's position is after it,
/// otherwise at the beginning.
fn still_ends(file: &mut Content, prefix: &Prefix) -> bool {
    let mut group = Vec::new();
    let read = file
        .seek(SeekFrom::Start(prefix.offset() - GROUP))
        .and_then(|_| file.by_ref().take(GROUP).read_to_end(&mut group));
    let same = read.is_ok() && prefix.ends_in(&group);
    if !same {
        // A file that cannot be rewound is not read completely, and its hash shows that.
        let _ = file.rewind();
    }
    same
}

/// The ENTRY of a file or directory, as it was opened.
fn entry(id: u32, source: &Source, content: &Content, metadata: &Metadata) -> Entry {
    let (mode, path) = (mode::of(metadata), source.name.as_str().into());
    if source.directory {
        let (kind, source) = (Kind::Directory, Key::default());
        return Entry { id, kind, mode, kept: false, modified: (0, 0), size: 0, offset: 0, source, path };
    }
    let modified = metadata.modified().map_or((0, 0), wire_time);
    let (inode, size) = match content.generated() {
        None => (inode(metadata), metadata.len()),
        // Neither the size nor the time of such a file tells whether its content has changed.
        Some(bytes) => {
            let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(bytes).as_bytes();
            (u64::from_be_bytes([a, b, c, d, e, f, g, h]), bytes.len() as u64)
        }
    };
    let source = Key::of_source(inode, size, modified, mode);
    Entry { id, kind: Kind::File, mode, kept: false, modified, size, offset: 0, source, path }
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

/// On these systems the time of creation distinguishes files.
#[cfg(not(unix))]
fn inode(metadata: &Metadata) -> u64 {
    let created = metadata.created().map(wire_time).unwrap_or_default();
    (created.0 as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(created.1))
}
