//! The receiving side: reads entries, writes them through [`Destination`], and answers each with what became of it.
//!
//! What the sender says is not trusted: paths are checked, sizes are counted, hashes are computed from what is written.
//! A file that fails is answered at once and the rest of its bytes are dropped, so one bad file holds up no other.

use tokio::io::{AsyncRead, AsyncWrite, split};

use super::destination::{Destination, Part, Refusal};
use super::path::printable;
use super::record::{Entry, Kind, Record, RecordReader, RecordWriter};
use super::{Event, FileFailure, Outcome, Reason, RelativePath, TransferError, Watch, blocking};

/// Receives one transfer into `destination`.
///
/// # Errors
/// When the stream ends early, fails, or the peer breaks the protocol. Files kept until then stay; the file under way is
/// removed.
pub async fn receive<S: AsyncRead + AsyncWrite>(
    stream: S,
    destination: &Destination,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    let (read, write) = split(stream);
    let answers = RecordWriter::open(write).await?;
    let mut records = RecordReader::open(read).await?;
    let mut receiver = Receiver {
        answers,
        destination,
        watch,
        under_way: None,
        next_id: 0,
        announced: 0,
        outcome: Outcome::default(),
    };
    loop {
        match records.next().await? {
            Record::Total { files, bytes } => watch(Event::Total { files, bytes }),
            Record::Entry(entry) => receiver.begin(entry).await?,
            Record::Chunk(bytes) => receiver.write(bytes).await?,
            Record::End(hash) => receiver.end(hash).await?,
            Record::Abort(reason) => receiver.abort(reason).await?,
            Record::Done { announced, unsent: _ } => return receiver.done(announced).await,
            Record::Result { .. } => return Err(TransferError::Unexpected("RESULT")),
            Record::Tally { .. } => return Err(TransferError::Unexpected("TALLY")),
        }
    }
}

/// The file whose bytes come now.
struct UnderWay {
    entry: Entry,
    name: String,
    /// `None` once it has failed and been answered: its bytes are dropped.
    part: Option<Part>,
}

struct Receiver<'a, W> {
    answers: RecordWriter<W>,
    destination: &'a Destination,
    watch: Watch<'a>,
    under_way: Option<UnderWay>,
    /// The least id that the next entry may have.
    next_id: u64,
    announced: u32,
    outcome: Outcome,
}

impl<W: AsyncWrite + Unpin> Receiver<'_, W> {
    async fn begin(&mut self, entry: Entry) -> Result<(), TransferError> {
        if self.under_way.is_some() || u64::from(entry.id) < self.next_id {
            return Err(TransferError::Unexpected("ENTRY"));
        }
        self.next_id = u64::from(entry.id) + 1;
        self.announced = self.announced.saturating_add(1);
        let name = printable(&String::from_utf8_lossy(&entry.path));
        let opened = blocking(|| open(self.destination, &entry));
        match opened {
            Ok(None) => self.kept(entry.id, &name, 0).await,
            Ok(Some(part)) => {
                self.under_way = Some(UnderWay { entry, name, part: Some(part) });
                Ok(())
            }
            Err(refusal) => {
                self.failed(entry.id, &name, refusal).await?;
                if entry.kind == Kind::File {
                    self.under_way = Some(UnderWay { entry, name, part: None });
                }
                Ok(())
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        let under_way = self.under_way.as_mut().ok_or(TransferError::Unexpected("CHUNK"))?;
        (self.watch)(Event::Bytes(bytes.len() as u64));
        let Some(part) = &mut under_way.part else { return Ok(()) };
        if let Err(refusal) = blocking(|| part.write(bytes, under_way.entry.size)) {
            under_way.part = None;
            let (id, name) = (under_way.entry.id, under_way.name.clone());
            self.failed(id, &name, refusal).await?;
        }
        Ok(())
    }

    async fn end(&mut self, hash: [u8; 32]) -> Result<(), TransferError> {
        let UnderWay { entry, name, part } = self.under_way.take().ok_or(TransferError::Unexpected("END"))?;
        let Some(part) = part else { return Ok(()) };
        match blocking(|| part.commit(&entry, hash)) {
            Ok(bytes) => self.kept(entry.id, &name, bytes).await,
            Err(refusal) => self.failed(entry.id, &name, refusal).await,
        }
    }

    async fn abort(&mut self, reason: Reason) -> Result<(), TransferError> {
        let UnderWay { entry, name, part } = self.under_way.take().ok_or(TransferError::Unexpected("ABORT"))?;
        let Some(part) = part else { return Ok(()) };
        blocking(|| drop(part));
        self.failed(entry.id, &name, (Reason::Aborted, format!("at the sender: {}", reason.name()))).await
    }

    async fn done(mut self, announced: u32) -> Result<Outcome, TransferError> {
        if self.under_way.is_some() || announced != self.announced {
            return Err(TransferError::Unexpected("DONE"));
        }
        let Outcome { kept, failed, bytes, .. } = self.outcome;
        self.answers.write(&Record::Tally { kept, failed, bytes }).await?;
        // The sender may close as soon as it has read TALLY, before our end of the stream was said: then nobody misses it.
        let _ = self.answers.close().await;
        Ok(self.outcome)
    }

    async fn kept(&mut self, id: u32, name: &str, bytes: u64) -> Result<(), TransferError> {
        self.outcome.keep(name, bytes, self.watch);
        self.answers.write(&Record::Result { id, failure: None, detail: "" }).await
    }

    async fn failed(&mut self, id: u32, name: &str, (reason, detail): Refusal) -> Result<(), TransferError> {
        let failure = FileFailure::new(name, reason, detail);
        self.outcome.fail(&failure, self.watch);
        self.answers.write(&Record::Result { id, failure: Some(reason), detail: &failure.detail }).await
    }
}

/// Checks `entry` and makes what it names: a directory (`None`) or the part of a file.
fn open(destination: &Destination, entry: &Entry) -> Result<Option<Part>, Refusal> {
    let path = RelativePath::parse(&entry.path).map_err(|error| (Reason::PathRefused, error.to_string()))?;
    match entry.kind {
        Kind::Directory => destination.create_directory(&path).map(|()| None),
        Kind::File if entry.offset != 0 => {
            Err((Reason::Unwritable, "the sender resumes, this version does not; send it again".into()))
        }
        Kind::File => destination.create_file(&path, entry).map(Some),
        Kind::Other(kind) => Err((Reason::NotAFile, format!("entry of kind {kind}"))),
    }
}
