//! The part of the sender that writes: LOOKs ahead, CLAIMs as they are hashed, and the files that the
//! receiver lacks. A file that the receiver refuses while it is sent is cut short.

use std::fs::Metadata;
use std::io::{Seek, SeekFrom};

use tokio::io::AsyncWrite;

use super::ledger::{Hashed, Ledger};
use super::opening::{changed, open};
use crate::content::{Content, read_once};
use crate::record::{Entry, Kind, Link, Look, Record, RecordWriter};
use crate::source::{Found, Source, attributes, key};
use crate::tree::{Prefix, Tree};
use crate::{Encoding, Event, FileFailure, PathText, Reason, TransferError, Watch, blocking};

pub(super) struct Announcer<'a, W> {
    records: RecordWriter<W>,
    ledger: &'a Ledger,
    found: &'a Found,
    watch: Watch<'a>,
    failures: Vec<FileFailure>,
    /// ENTRYs that were sent, and entries that cannot be.
    announced: u32,
    unsent: u32,
}

/// A file that is being sent.
struct Sending<'a> {
    id: u32,
    name: PathText,
    source: &'a Source,
    content: Content,
    before: Metadata,
    size: u64,
    tree: Tree,
    /// What the receiver continues, until it was compared.
    beginning: Option<Prefix>,
}

/// The result of sending a file's bytes.
enum Sent {
    All,
    /// The receiver wants no more of them.
    Refused,
    Failed(Reason, String),
}

impl<'a, W: AsyncWrite + Unpin> Announcer<'a, W> {
    pub(super) fn new(records: RecordWriter<W>, ledger: &'a Ledger, found: &'a Found, watch: Watch<'a>) -> Self {
        let unsent = found.failures.len() as u32;
        Self { records, ledger, found, watch, failures: Vec::new(), announced: 0, unsent }
    }

    /// Announces everything. Returns the failures of this side.
    pub(super) async fn run(mut self) -> Result<Vec<FileFailure>, TransferError> {
        loop {
            self.ask_and_claim().await?;
            match self.ledger.next_wanted() {
                Some(id) => self.entry(id).await?,
                None if self.ledger.is_announced() => break,
                None => self.ledger.written().await,
            }
        }
        self.links().await?;
        let announced = self.announced + self.ledger.claims();
        self.records.write(&Record::Done { announced, unsent: self.unsent }).await?;
        // A receiver that has read DONE reads no more and may stop the stream before its end arrives. TALLY
        // tells how the transfer ended.
        let _ = self.records.close().await;
        Ok(self.failures)
    }

    /// Writes the LOOKs that may be open, and the CLAIMs that were hashed.
    async fn ask_and_claim(&mut self) -> Result<(), TransferError> {
        while let Some((id, hashed)) = self.ledger.next_hashed() {
            match hashed {
                Hashed::Claim(claim, _) => self.records.write(&Record::Claim(claim)).await?,
                Hashed::Changed => {}
                Hashed::Failed(failure) => self.skip(id, failure).await?,
            }
        }
        let asked = self.ledger.ask();
        if asked.is_empty() {
            return Ok(());
        }
        let looks = asked.clone().zip(&self.found.sources[asked.start as usize..]).map(|(id, source)| {
            let kind = if source.directory { Kind::Directory } else { Kind::File };
            let path = source.name.as_bytes();
            let encoding = Encoding::of(path);
            Record::Look(Look { id, kind, encoding, size: source.size, source: source.key, path: path.into() })
        });
        self.records.write_all(looks).await
    }

    /// Announces the links, which come last.
    async fn links(&mut self) -> Result<(), TransferError> {
        let first = self.found.sources.len() as u32;
        for (id, link) in (first..).zip(&self.found.links) {
            self.ledger.link(id);
            self.announced += 1;
            let path = link.name.as_bytes();
            let (encoding, path, target) = (Encoding::of(path), path.to_vec(), link.target.clone());
            self.records.write(&Record::Link(Link { id, encoding, path, target })).await?;
        }
        Ok(())
    }

    async fn skip(&mut self, id: u32, failure: FileFailure) -> Result<(), TransferError> {
        self.ledger.skip(id);
        self.unsent += 1;
        self.fail(failure);
        self.records.write(&Record::Skip(id)).await
    }

    async fn entry(&mut self, id: u32) -> Result<(), TransferError> {
        let source = &self.found.sources[id as usize];
        match blocking(|| open(source)) {
            Ok((_, metadata)) if source.directory => {
                let attributes = attributes(source, &metadata);
                self.announce(Entry { id, attributes, size: 0, offset: 0, source: source.key }).await
            }
            Ok((content, before)) => self.file(id, source, content, before).await,
            Err(failure) => self.skip(id, failure).await,
        }
    }

    async fn announce(&mut self, entry: Entry) -> Result<(), TransferError> {
        self.ledger.announce(entry.id, entry.size, entry.offset);
        self.announced += 1;
        self.records.write(&Record::Entry(entry)).await
    }

    /// Announces a file and sends the bytes that the receiver lacks.
    async fn file(
        &mut self,
        id: u32,
        source: &'a Source,
        content: Content,
        before: Metadata,
    ) -> Result<(), TransferError> {
        let (size, now, name) = (source.announced(content.size(&before)), key(source, &before), source.name.text());
        let (offered, other_version) = self.ledger.beginning(id);
        let beginning = offered.filter(|prefix| now == source.key && prefix.offset() < size);
        let offset = beginning.as_ref().map_or(0, Prefix::offset);
        if offset > 0 {
            (self.watch)(Event::Resumed { path: &name, offset, size });
        } else if other_version {
            (self.watch)(Event::Changed { path: &name, offset, withdrawn: 0, size });
        }
        self.announce(Entry { id, attributes: attributes(source, &before), size, offset, source: now }).await?;
        if let Some(prefix) = &beginning {
            self.ledger.compare(id, prefix.clone());
        }
        let tree = Tree::new(beginning.as_ref());
        let mut sending = Sending { id, name, source, content, before, size, tree, beginning };
        let sent = match blocking(|| sending.content.seek(SeekFrom::Start(offset))) {
            Ok(_) => self.bytes(&mut sending).await?,
            Err(error) => Sent::Failed(Reason::Unreadable, error.to_string()),
        };
        self.ledger.end_comparison();
        let Sending { source, content, before, tree, .. } = sending;
        match sent {
            Sent::Refused => self.records.write(&Record::Abort(Reason::Aborted)).await,
            Sent::Failed(reason, detail) => self.abort(FileFailure::of(&source.path, reason, detail)).await,
            Sent::All => match (blocking(|| changed(source, &content, &before)), tree.finish()) {
                (None, Some(hash)) => self.records.write(&Record::End(hash.into())).await,
                (detail, _) => {
                    let detail = detail.unwrap_or_default();
                    self.abort(FileFailure::of(&source.path, Reason::Changed, detail)).await
                }
            },
        }
    }

    /// Sends the bytes of a file from its position on, and waits until its beginning was compared.
    async fn bytes(&mut self, sending: &mut Sending<'_>) -> Result<Sent, TransferError> {
        let size = sending.size;
        loop {
            if self.ledger.is_refused(sending.id) {
                // The receiver has reported the failure. This only ends the entry.
                return Ok(Sent::Refused);
            }
            if sending.beginning.is_some()
                && let Some(equal) = self.ledger.take_compared()
            {
                self.compared(sending, equal).await?;
            }
            self.ask_and_claim().await?;
            let Sending { content, tree, beginning, .. } = sending;
            if tree.bytes() >= size {
                match beginning {
                    None => return Ok(Sent::All),
                    Some(_) => self.ledger.written().await,
                }
                continue;
            }
            if tree.room() == 0 {
                let mark = tree.close_group();
                self.records.write(&Record::Mark(mark)).await?;
            }
            let most = tree.room().min(size - tree.bytes());
            match self.records.write_chunk(most, |space| blocking(|| read_once(content, space))).await? {
                Ok([]) => return Ok(Sent::Failed(Reason::Changed, "it became shorter; send it again".into())),
                Ok(bytes) => {
                    tree.update(bytes);
                    (self.watch)(Event::Bytes(bytes.len() as u64));
                }
                Err(error) => return Ok(Sent::Failed(Reason::Unreadable, error.to_string())),
            }
        }
    }

    /// Goes back to where the receiver's beginning differs, if it does.
    async fn compared(&mut self, sending: &mut Sending<'_>, equal: u64) -> Result<(), TransferError> {
        let Some(beginning) = sending.beginning.take().filter(|prefix| equal < prefix.offset()) else { return Ok(()) };
        let (id, size) = (sending.id, sending.size);
        sending.tree = Tree::new(beginning.cut(equal).as_ref());
        // If this fails, the wrong bytes are read and their number or hash shows it.
        let _ = blocking(|| sending.content.seek(SeekFrom::Start(equal)));
        self.ledger.announce(id, size, equal);
        let withdrawn = beginning.offset() - equal;
        (self.watch)(Event::Changed { path: &sending.name, offset: equal, withdrawn, size });
        self.records.write(&Record::Back(equal)).await
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
