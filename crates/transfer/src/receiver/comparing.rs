//! Reads what is at the destination already, while the receiver writes other bytes: files that stand are
//! compared with the CLAIMs of the sender, and the beginning of a part with the state that was stored for it.
//!
//! It works in steps that share the task with the receiving side and the time with all sessions of the
//! destination. Invariant: a file that stands is changed only after its hash was found equal, and then only
//! its mode and time.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::sync::Mutex;

use cap_std::fs::Dir;
use tokio::io::AsyncWrite;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;

use super::answers::Answers;
use super::lock;
use crate::content::read_once;
use crate::delivered::{Note, open_standing};
use crate::durable::{Warning, flush_file};
use crate::growth::Copying;
use crate::part::{join, set_attributes};
use crate::record::{Attributes, Claim, Look, Record};
use crate::refusal::{Refusal, refusal};
use crate::session::Session;
use crate::tree::{Comparison, Prefix};
use crate::{Destination, Event, Key, PathText, RelativePath, TransferError, blocking};

/// Bytes that are hashed in one step: about a millisecond.
const STEP: usize = 1 << 20;

/// The comparing side.
pub(super) struct Comparing<'a, 's, W> {
    pub(super) destination: &'a Destination,
    pub(super) session: &'a Mutex<Session<'s>>,
    pub(super) answers: &'a Answers<'a, W>,
}

impl<W: AsyncWrite + Unpin> Comparing<'_, '_, W> {
    /// Answers each CLAIM, until the receiving side has ended.
    pub(super) async fn run(
        &self,
        mut claims: mpsc::Receiver<(Claim, Look, RelativePath)>,
    ) -> Result<(), TransferError> {
        let mut buffer = vec![0; STEP];
        while let Some((claim, look, path)) = claims.recv().await {
            match self.compare(&claim, &look, path, &mut buffer).await {
                Some(standing) => self.accept(&claim, &look, standing).await?,
                None => {
                    lock(self.session).reopen(look);
                    self.answers.write(&Record::Differs(claim.id)).await?;
                }
            }
        }
        Ok(())
    }

    /// Tells of each beginning whether it is what its state says, until the receiving side has ended.
    pub(super) async fn prove(&self, mut beginnings: mpsc::Receiver<Beginning>) -> Result<(), TransferError> {
        let mut buffer = vec![0; STEP];
        while let Some(Beginning { mut file, prefix, mut copying, verdict }) = beginnings.recv().await {
            let (end, mut comparison) = (prefix.offset(), Comparison::new(prefix));
            let mut refused = None;
            while comparison.room() > 0 {
                let most = usize::try_from(comparison.room()).map_or(STEP, |room| room.min(STEP));
                let turn = self.destination.claims().turn().await;
                // Nobody waits for the verdict on a file that has failed meanwhile, or that went back.
                if verdict.is_closed() {
                    break;
                }
                let bytes = turn.spend(|| {
                    blocking(|| {
                        let bytes = read_once(&mut file, &mut buffer[..most]).unwrap_or_default();
                        let same = bytes > 0 && comparison.update(&buffer[..bytes]);
                        let write = |copying: &mut Copying| copying.write(&buffer[..bytes]).map_err(refusal);
                        copying.as_mut().filter(|_| same).map_or(Ok(()), write)?;
                        Ok(if same { bytes } else { 0 })
                    })
                });
                match bytes {
                    Ok(bytes @ 1..) => self.answers.tell(Event::Compared(bytes as u64)),
                    Ok(0) => break,
                    Err(refusal) => {
                        refused = Some(refusal);
                        break;
                    }
                }
                yield_now().await;
            }
            let whole = comparison.equal() == end;
            if let Some(copying) = copying.filter(|_| whole && refused.is_none()) {
                copying.finish();
            }
            let _ = verdict.send(match refused {
                Some(refusal) => Err(refusal),
                None => Ok(whole),
            });
        }
        Ok(())
    }

    /// The file that stands under `path`, if it has the content that `claim` names for `look`.
    async fn compare(&self, claim: &Claim, look: &Look, path: RelativePath, buffer: &mut [u8]) -> Option<Standing> {
        let mut standing = blocking(|| Standing::open(self.destination, path)).ok()?;
        let (mut hasher, mut bytes) = (blake3::Hasher::new(), 0);
        loop {
            let turn = self.destination.claims().turn().await;
            let read = turn.spend(|| blocking(|| standing.read(buffer, &mut hasher))).ok()?;
            bytes += read as u64;
            self.answers.tell(Event::Compared(read as u64));
            if read == 0 || bytes > look.size {
                break;
            }
            yield_now().await;
        }
        (bytes == look.size && hasher.finalize() == blake3::Hash::from_bytes(claim.hash)).then_some(standing)
    }

    /// Answers that the file is there already.
    async fn accept(&self, claim: &Claim, look: &Look, standing: Standing) -> Result<(), TransferError> {
        let name = PathText::of(&look.path);
        let accepted = blocking(|| {
            let key = Key::of_path(&look.path);
            lock(self.session).accept(|known| {
                known.check(&standing.directory, standing.name(), key)?;
                let (there, warning) = standing.finish(claim.attributes, key)?;
                known.insert(&there, key);
                Ok(warning)
            })
        });
        self.answers.count_claim().await;
        match accepted {
            Ok(warning) => {
                self.answers.tell(Event::Resumed { path: &name, offset: look.size, size: look.size });
                self.answers.kept(claim.id, &name, (look.size, look.size), warning).await
            }
            Err(refusal) => self.answers.failed(claim.id, &name, refusal).await,
        }
    }
}

/// Whether a beginning is what was written.
pub(super) type Verdict = Result<bool, Refusal>;

/// The beginning of a part that is continued.
pub(super) struct Beginning {
    pub(super) file: File,
    pub(super) prefix: Prefix,
    /// The copy into the part, if the file is another one.
    pub(super) copying: Option<Copying>,
    /// Told whether the bytes are those of the state, or why they could not be copied.
    pub(super) verdict: oneshot::Sender<Verdict>,
}

/// A file that stands at the destination, while it is compared.
struct Standing {
    directory: Dir,
    path: RelativePath,
    file: File,
    before: Metadata,
}

impl Standing {
    fn open(destination: &Destination, path: RelativePath) -> io::Result<Self> {
        let (directory, name) = destination.find(&path)?;
        let file = open_standing(&directory, name)?;
        let before = file.metadata()?;
        Ok(Self { directory, path, file, before })
    }

    fn name(&self) -> &OsStr {
        self.path.split().1
    }

    /// Reads and hashes the next bytes.
    fn read(&mut self, buffer: &mut [u8], hasher: &mut blake3::Hasher) -> io::Result<usize> {
        let read = read_once(&mut self.file, buffer)?;
        hasher.update(&buffer[..read]);
        Ok(read)
    }

    /// Gives the file the attributes of the sender's, and flushes it. Returns what could not be done.
    fn finish(&self, attributes: Attributes, path: Key) -> Result<(cap_std::fs::Metadata, Warning), Refusal> {
        let after = self.file.metadata().map_err(refusal)?;
        let written = after.len() != self.before.len() || after.modified().ok() != self.before.modified().ok();
        if written {
            return Err((crate::Reason::Changed, "it was written to meanwhile at the receiver; send it again".into()));
        }
        let noted = Note::read(&self.file, path).ok().flatten();
        let of_attributes = set_attributes(&self.file, attributes)?;
        // The note names the time of the file. It stays with the peer that delivered it: to know the
        // content is not enough.
        if let Some(noted) = noted {
            noted.write(&self.file);
        }
        let of_bytes = flush_file(&self.file)?;
        let there = self.directory.symlink_metadata(self.name()).map_err(refusal)?;
        Ok((there, join([of_attributes, of_bytes])))
    }
}
