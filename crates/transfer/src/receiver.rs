//! The receiving side: reads entries, writes them through [`Destination`], and answers each with its result.
//!
//! It does not trust the sender: paths are checked, sizes are counted, and hashes are computed from the
//! written bytes. A file that fails is answered at once, and the rest of its bytes are dropped, so one bad
//! file delays no other.

use tidewire::PublicKey;
use tokio::io::{AsyncRead, AsyncWrite, split};

use super::destination::{Destination, PARTS};
use super::part::Part;
use super::record::{Entry, Kind, Record, RecordReader, RecordWriter};
use super::refusal::Refusal;
use super::session::Session;
use super::{Event, FileFailure, Key, Outcome, Reason, RelativePath, TransferError, Watch, blocking};

/// Receives one transfer into `destination` from `peer`, whose key is `None` if both sides share a secret.
///
/// # Errors
/// Fails if the stream ends early or fails, or the peer breaks the protocol. Complete files stay, and so does
/// what a later session can continue of the current file.
pub async fn receive<S: AsyncRead + AsyncWrite>(
    stream: S,
    destination: &Destination,
    peer: Option<&PublicKey>,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    let (read, write) = split(stream);
    let mut answers = RecordWriter::open(write).await?;
    let mut records = RecordReader::open(read).await?;
    let Record::Total { files, bytes, job } = records.next().await? else {
        return Err(TransferError::Unexpected("first"));
    };
    watch(Event::Total { files, bytes });
    let session = blocking(|| Session::begin(destination, Key::of_peer(peer), job));
    for have in session.haves() {
        answers.write(&Record::Have(have)).await?;
    }
    answers.write(&Record::Ready).await?;
    let mut receiver = Receiver {
        answers,
        watch,
        under_way: None,
        session,
        next_id: 0,
        announced: 0,
        full: false,
        outcome: Outcome::default(),
    };
    loop {
        match records.next().await? {
            Record::Entry(entry) => receiver.begin(entry).await?,
            Record::Chunk(bytes) => {
                let length = bytes.len() as u64;
                receiver.feed("CHUNK", length, |part, size| part.write(bytes, size)).await?;
            }
            Record::Zeros(length) => {
                let turn = destination.holes().turn().await;
                let skip = |part: &mut Part, size| turn.spend(|| part.skip(length, size));
                receiver.feed("ZEROS", u64::from(length), skip).await?;
            }
            Record::Mark(value) => receiver.feed("MARK", 0, |part, size| part.mark(value, size)).await?,
            Record::End(hash) => receiver.end(hash).await?,
            Record::Abort(reason) => receiver.abort(reason).await?,
            Record::Done { announced, unsent: _ } => return receiver.done(announced).await,
            Record::Total { .. } => return Err(TransferError::Unexpected("TOTAL")),
            Record::Have(_) => return Err(TransferError::Unexpected("HAVE")),
            Record::Ready => return Err(TransferError::Unexpected("READY")),
            Record::Result { .. } => return Err(TransferError::Unexpected("RESULT")),
            Record::Tally { .. } => return Err(TransferError::Unexpected("TALLY")),
        }
    }
}

/// The file whose bytes arrive now.
struct UnderWay {
    entry: Entry,
    name: String,
    /// `None` once it has failed and was answered. Its bytes are then dropped.
    part: Option<Part>,
}

struct Receiver<'a, W> {
    answers: RecordWriter<W>,
    watch: Watch<'a>,
    // Dropped before the session, which removes the folder of parts if it is empty.
    under_way: Option<UnderWay>,
    session: Session<'a>,
    /// Least id of the next entry.
    next_id: u64,
    announced: u32,
    /// Whether a file failed for lack of space, on the disk or in the quota.
    full: bool,
    outcome: Outcome,
}

impl<W: AsyncWrite + Unpin> Receiver<'_, W> {
    async fn begin(&mut self, entry: Entry) -> Result<(), TransferError> {
        if self.under_way.is_some() || u64::from(entry.id) < self.next_id {
            return Err(TransferError::Unexpected("ENTRY"));
        }
        self.next_id = u64::from(entry.id) + 1;
        self.announced = self.announced.saturating_add(1);
        let name = String::from_utf8_lossy(&entry.path).into_owned();
        match blocking(|| open(&mut self.session, &entry)) {
            Ok(Opened::Stands) => {
                (self.watch)(Event::Resumed { path: &name, offset: entry.size, size: entry.size });
                self.kept(entry.id, &name, entry.size, entry.size, None).await
            }
            Ok(Opened::Directory) => self.kept(entry.id, &name, 0, 0, None).await,
            Ok(Opened::Part(part)) => {
                if entry.offset > 0 {
                    (self.watch)(Event::Resumed { path: &name, offset: entry.offset, size: entry.size });
                }
                self.under_way = Some(UnderWay { entry, name, part: Some(part) });
                Ok(())
            }
            Err(refusal) => {
                self.failed(entry.id, &name, refusal).await?;
                if entry.kind == Kind::File && !entry.kept {
                    self.under_way = Some(UnderWay { entry, name, part: None });
                }
                Ok(())
            }
        }
    }

    /// Handles a record of type `name` with `length` bytes for the current part.
    async fn feed(
        &mut self,
        name: &'static str,
        length: u64,
        work: impl FnOnce(&mut Part, u64) -> Result<(), Refusal>,
    ) -> Result<(), TransferError> {
        let under_way = self.under_way.as_mut().ok_or(TransferError::Unexpected(name))?;
        if length > 0 {
            (self.watch)(Event::Bytes(length));
        }
        let Some(mut part) = under_way.part.take() else { return Ok(()) };
        match blocking(|| work(&mut part, under_way.entry.size)) {
            Ok(()) => under_way.part = Some(part),
            Err(refusal) => {
                // A part with wrong bytes must not be continued. After any other failure it may be.
                blocking(|| if refusal.0 == Reason::Mismatch { part.discard() } else { drop(part) });
                let (id, name) = (under_way.entry.id, under_way.name.clone());
                self.failed(id, &name, refusal).await?;
            }
        }
        Ok(())
    }

    async fn end(&mut self, hash: [u8; 32]) -> Result<(), TransferError> {
        let UnderWay { entry, name, part } = self.under_way.take().ok_or(TransferError::Unexpected("END"))?;
        let Some(part) = part else { return Ok(()) };
        let ended = blocking(|| {
            let path = path(&entry)?;
            self.session.keep(part, path, &entry, hash)
        });
        match ended {
            Ok(warning) => self.kept(entry.id, &name, entry.size, entry.offset, warning.as_deref()).await,
            Err(refusal) => self.failed(entry.id, &name, refusal).await,
        }
    }

    async fn abort(&mut self, reason: Reason) -> Result<(), TransferError> {
        let UnderWay { entry, name, part } = self.under_way.take().ok_or(TransferError::Unexpected("ABORT"))?;
        let Some(part) = part else { return Ok(()) };
        blocking(|| part.discard());
        self.failed(entry.id, &name, (Reason::Aborted, format!("at the sender: {}", reason.name()))).await
    }

    async fn done(mut self, announced: u32) -> Result<Outcome, TransferError> {
        if self.under_way.is_some() || announced != self.announced {
            return Err(TransferError::Unexpected("DONE"));
        }
        let Outcome { kept, failed, bytes, .. } = self.outcome;
        // A user who has made room can send the rest again. Other failures would repeat.
        if !self.full {
            blocking(|| self.session.done());
        }
        self.answers.write(&Record::Tally { kept, failed, bytes }).await?;
        // The sender may close after it has read TALLY, before our end of the stream arrives.
        let _ = self.answers.close().await;
        Ok(self.outcome)
    }

    /// Answers that an entry is kept. `resumed` of its `bytes` were there before. `warning` says what could
    /// not be done for it.
    async fn kept(
        &mut self,
        id: u32,
        name: &str,
        bytes: u64,
        resumed: u64,
        warning: Option<&str>,
    ) -> Result<(), TransferError> {
        self.outcome.keep(name, bytes, resumed, warning, self.watch);
        self.answers.write(&Record::Result { id, failure: None, detail: warning.unwrap_or_default() }).await
    }

    async fn failed(&mut self, id: u32, name: &str, (reason, detail): Refusal) -> Result<(), TransferError> {
        self.full |= matches!(reason, Reason::NoSpace | Reason::OverQuota);
        let failure = FileFailure::new(name, reason, detail);
        self.outcome.fail(&failure, self.watch);
        self.answers.write(&Record::Result { id, failure: Some(reason), detail: &failure.detail }).await
    }
}

/// The result of opening an entry.
enum Opened {
    Directory,
    Part(Part),
    /// A file that was kept before.
    Stands,
}

/// Checks `entry` and creates what it names.
fn open(session: &mut Session<'_>, entry: &Entry) -> Result<Opened, Refusal> {
    let path = path(entry)?;
    match entry.kind {
        Kind::Directory => session.create_directory(&path, entry.mode).map(|()| Opened::Directory),
        Kind::File if entry.kept && session.has(entry) => Ok(Opened::Stands),
        Kind::File if entry.kept => Err((Reason::Unwritable, "it is not there any more; send it again".into())),
        Kind::File => session.open(&path, entry).map(Opened::Part),
        Kind::Other(kind) => Err((Reason::NotAFile, format!("entry of kind {kind}"))),
    }
}

/// The path of `entry`, if it may be written to.
fn path(entry: &Entry) -> Result<RelativePath, Refusal> {
    let path = RelativePath::parse(&entry.path).map_err(|error| (Reason::PathRefused, error.to_string()))?;
    let first = path.as_str().split('/').next().unwrap_or_default();
    if first.eq_ignore_ascii_case(PARTS) {
        return Err((Reason::PathRefused, format!("`{PARTS}` is where files under way are kept")));
    }
    Ok(path)
}
