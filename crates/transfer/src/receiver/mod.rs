//! The receiving side: answers LOOKs, reads entries, writes them through [`Destination`], and answers each
//! with its result.
//!
//! It does not trust the sender: paths are checked, sizes are counted, and hashes are computed from the
//! written bytes. A file that fails is answered at once, and the rest of its bytes are dropped, so one bad
//! file delays no other. Files that stand already are compared beside it (`comparing`).

mod answers;
mod comparing;

use std::sync::{Mutex, MutexGuard, PoisonError};

use tidewire::PublicKey;
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::sync::{mpsc, oneshot};

use self::answers::Answers;
use self::comparing::{Beginning, Comparing, Verdict};
use super::destination::Destination;
use super::part::Part;
use super::record::{Claim, Entry, Kind, Link, Look, Record, RecordReader, RecordWriter};
use super::refusal::Refusal;
use super::session::{Session, WINDOW, path};
use super::{Event, Key, Outcome, PathText, Reason, RelativePath, TransferError, Watch, blocking};

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
    let answers = RecordWriter::open(write).await?;
    let mut records = RecordReader::open(read).await?;
    let Record::Total { files, bytes, job } = records.next().await? else {
        return Err(TransferError::Unexpected("first"));
    };
    watch(Event::Total { files, bytes });
    let session = Mutex::new(blocking(|| Session::begin(destination, Key::of_peer(peer), job)));
    let answers = Answers::new(answers, watch);
    let ((claims, claimed), (beginnings, begun)) = (mpsc::channel(WINDOW), mpsc::channel(1));
    let comparing = Comparing { destination, session: &session, answers: &answers };
    let (answering, under_way) = (&answers, None);
    let receiver = Receiver {
        answers: answering,
        watch,
        claims,
        beginnings,
        under_way,
        session: &session,
        announced: 0,
        linking: false,
    };
    tokio::try_join!(receiver.run(records, destination), comparing.run(claimed), comparing.prove(begun))?;
    Ok(answers.outcome().await)
}

/// Locks the session. Its changes do not depend on each other, so a poisoned one is still consistent.
fn lock<'l, 's>(session: &'l Mutex<Session<'s>>) -> MutexGuard<'l, Session<'s>> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file whose bytes arrive now.
struct UnderWay {
    look: Look,
    entry: Entry,
    name: PathText,
    /// `None` once it has failed and was answered. Its bytes are then dropped.
    part: Option<Part>,
    /// Whether the beginning that it continues is what was written, if it does.
    proof: Option<oneshot::Receiver<Verdict>>,
}

struct Receiver<'a, 's, W> {
    answers: &'a Answers<'a, W>,
    watch: Watch<'a>,
    /// To the comparing side.
    claims: mpsc::Sender<(Claim, Look, RelativePath)>,
    beginnings: mpsc::Sender<Beginning>,
    // Dropped before the session, which removes the folder of parts if it is empty.
    under_way: Option<UnderWay>,
    session: &'a Mutex<Session<'s>>,
    announced: u32,
    /// Whether LINKs have begun. Only they and DONE may then follow.
    linking: bool,
}

impl<W: AsyncWrite + Unpin> Receiver<'_, '_, W> {
    async fn run<R: AsyncRead + Unpin>(
        mut self,
        mut records: RecordReader<R>,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        loop {
            let record = records.next().await?;
            if self.linking && !matches!(record, Record::Link(_) | Record::Done { .. }) {
                return Err(TransferError::Unexpected("file after LINK"));
            }
            match record {
                Record::Link(link) => self.link(link).await?,
                Record::Look(look) => self.look(look).await?,
                Record::Claim(claim) => self.claim(claim)?,
                Record::Skip(id) => lock(self.session).skip(id)?,
                Record::Entry(entry) => self.begin(entry).await?,
                Record::Chunk(bytes) => {
                    let length = bytes.len() as u64;
                    self.feed("CHUNK", length, |part, size| part.write(bytes, size)).await?;
                }
                Record::Zeros(length) => {
                    let turn = destination.holes().turn().await;
                    let skip = |part: &mut Part, size| turn.spend(|| part.skip(length, size));
                    self.feed("ZEROS", u64::from(length), skip).await?;
                }
                Record::Mark(value) => self.feed("MARK", 0, |part, size| part.mark(value, size)).await?,
                Record::Back(offset) => self.back(offset).await?,
                Record::End(hash) => self.end(hash).await?,
                Record::Abort(reason) => self.abort(reason).await?,
                Record::Done { announced, unsent: _ } => return self.done(announced).await,
                Record::Total { .. } => return Err(TransferError::Unexpected("TOTAL")),
                Record::Have { .. } => return Err(TransferError::Unexpected("HAVE")),
                Record::Differs(_) => return Err(TransferError::Unexpected("DIFFERS")),
                Record::Result { .. } => return Err(TransferError::Unexpected("RESULT")),
                Record::Tally { .. } => return Err(TransferError::Unexpected("TALLY")),
            }
        }
    }

    async fn look(&mut self, look: Look) -> Result<(), TransferError> {
        let id = look.id;
        let have = blocking(|| lock(self.session).look(look))?;
        match have {
            Some(have) => self.answers.write(&Record::Have { id, have }).await,
            None => Ok(()),
        }
    }

    fn claim(&mut self, claim: Claim) -> Result<(), TransferError> {
        let (look, standing) = lock(self.session).claim(&claim)?;
        // There is room for each open LOOK, and the other side ends when this one has.
        let _ = self.claims.try_send((claim, look, standing));
        Ok(())
    }

    async fn link(&mut self, link: Link) -> Result<(), TransferError> {
        if self.under_way.is_some() {
            return Err(TransferError::Unexpected("LINK"));
        }
        lock(self.session).next_link(link.id)?;
        (self.linking, self.announced) = (true, self.announced.saturating_add(1));
        let name = PathText::of(&link.path);
        match blocking(|| lock(self.session).make_link(&link)) {
            Ok(warning) => self.answers.kept(link.id, &name, (0, 0), warning).await,
            Err(refusal) => self.answers.failed(link.id, &name, refusal).await,
        }
    }

    async fn begin(&mut self, entry: Entry) -> Result<(), TransferError> {
        if self.under_way.is_some() {
            return Err(TransferError::Unexpected("ENTRY"));
        }
        let look = lock(self.session).close(entry.id, "ENTRY")?;
        self.announced = self.announced.saturating_add(1);
        let name = PathText::of(&look.path);
        match blocking(|| open(&mut lock(self.session), &look, &entry)) {
            Ok(Opened::Directory) => self.answers.kept(entry.id, &name, (0, 0), None).await,
            Ok(Opened::Part(part)) => {
                if entry.offset > 0 {
                    (self.watch)(Event::Resumed { path: &name, offset: entry.offset, size: entry.size });
                }
                let proof = self.prove(&part, entry.offset).await;
                self.under_way = Some(UnderWay { look, entry, name, part: Some(part), proof });
                Ok(())
            }
            Err(refusal) => {
                self.answers.failed(entry.id, &name, refusal).await?;
                if look.kind == Kind::File {
                    self.under_way = Some(UnderWay { look, entry, name, part: None, proof: None });
                }
                Ok(())
            }
        }
    }

    /// Has the first bytes of a part, which this session continues, read again.
    async fn prove(&mut self, part: &Part, bytes: u64) -> Option<oneshot::Receiver<Verdict>> {
        let (verdict, proof) = oneshot::channel();
        // What cannot be read is not proven. The other side ends when this one has.
        if bytes > 0
            && let Some((file, prefix, copying)) = blocking(|| part.beginning())
        {
            let _ = self.beginnings.send(Beginning { file, prefix, copying, verdict }).await;
        }
        (bytes > 0).then_some(proof)
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
                self.answers.failed(id, &name, refusal).await?;
            }
        }
        Ok(())
    }

    async fn back(&mut self, offset: u64) -> Result<(), TransferError> {
        self.feed("BACK", 0, |part, size| part.back(offset, size)).await?;
        let Some(mut under_way) = self.under_way.take() else { return Ok(()) };
        if let Some(part) = &under_way.part {
            under_way.proof = self.prove(part, offset).await;
            let (path, size) = (&under_way.name, under_way.entry.size);
            let withdrawn = under_way.entry.offset.saturating_sub(offset);
            (self.watch)(Event::Changed { path, offset, withdrawn, size });
            under_way.entry.offset = offset;
        }
        self.under_way = Some(under_way);
        Ok(())
    }

    async fn end(&mut self, hash: [u8; 32]) -> Result<(), TransferError> {
        let UnderWay { look, entry, name, part, proof } =
            self.under_way.take().ok_or(TransferError::Unexpected("END"))?;
        let Some(part) = part else { return Ok(()) };
        let proven = match proof {
            Some(proof) => proof.await.unwrap_or(Ok(false)),
            None => Ok(true),
        };
        let ended = blocking(|| {
            if !proven? {
                part.discard();
                return Err((Reason::Mismatch, "what was there of it is damaged; send it again".into()));
            }
            let path = path(&look)?;
            lock(self.session).keep(part, &path, &entry, hash)
        });
        match ended {
            Ok(warning) => self.answers.kept(entry.id, &name, (entry.size, entry.offset), warning).await,
            Err(refusal) => self.answers.failed(entry.id, &name, refusal).await,
        }
    }

    async fn abort(&mut self, reason: Reason) -> Result<(), TransferError> {
        let UnderWay { entry, name, part, .. } = self.under_way.take().ok_or(TransferError::Unexpected("ABORT"))?;
        let Some(part) = part else { return Ok(()) };
        blocking(|| part.discard());
        let refusal = (Reason::Aborted, format!("at the sender: {}", reason.name()));
        self.answers.failed(entry.id, &name, refusal).await
    }

    async fn done(self, announced: u32) -> Result<(), TransferError> {
        let comparing = lock(self.session).is_comparing();
        let claimed = self.answers.claims_kept().await;
        if self.under_way.is_some() || comparing || announced != self.announced.saturating_add(claimed) {
            return Err(TransferError::Unexpected("DONE"));
        }
        // A user who has made room can send the rest again. Other failures would repeat.
        if !self.answers.was_full().await {
            blocking(|| lock(self.session).done());
        }
        self.answers.close().await
    }
}

/// The result of opening an entry.
enum Opened {
    Directory,
    Part(Part),
}

/// Checks `entry` and creates what its LOOK names.
fn open(session: &mut Session<'_>, look: &Look, entry: &Entry) -> Result<Opened, Refusal> {
    let path = path(look)?;
    match look.kind {
        Kind::Directory => session.create_directory(&path, entry.attributes.mode).map(|()| Opened::Directory),
        Kind::File => session.open(&path, entry).map(Opened::Part),
        Kind::Other(kind) => Err((Reason::NotAFile, format!("entry of kind {kind}"))),
    }
}
