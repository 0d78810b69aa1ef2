//! Hashes files whose content the receiver may have: whole ones for CLAIMs, and beginnings that it continues.
//!
//! Each step blocks for about a millisecond, and lets the parts that read and write go on. Invariant: what is
//! said of a file's content was read in this session.

use std::io::Seek;

use tokio::task::yield_now;

use super::ledger::{Hashed, Ledger};
use super::opening::{changed, open};
use crate::content::{Content, read_once};
use crate::record::Claim;
use crate::source::{Found, Source, attributes, key};
use crate::tree::Comparison;
use crate::{Event, FileFailure, Reason, Watch, blocking};

/// Bytes of a step.
const STEP: usize = 1 << 20;

/// Hashes each candidate for a CLAIM, until the ledger is closed.
pub(super) async fn claim_all(ledger: &Ledger, found: &Found, watch: Watch<'_>) {
    let mut buffer = vec![0; STEP];
    while let Some(id) = ledger.next_candidate().await {
        let hashed = claim(id, &found.sources[id as usize], &mut buffer, watch).await.unwrap_or_else(Hashed::Failed);
        ledger.hashed(id, hashed);
    }
}

async fn claim(id: u32, source: &Source, buffer: &mut [u8], watch: Watch<'_>) -> Result<Hashed, FileFailure> {
    let (mut content, before) = blocking(|| open(source))?;
    let (mut hasher, mut bytes) = (blake3::Hasher::new(), 0);
    loop {
        // Of a file that grows, no more than was announced.
        let room = if source.growing { source.size.saturating_sub(bytes) } else { u64::MAX };
        let most = usize::try_from(room).map_or(STEP, |room| room.min(STEP));
        let step = blocking(|| {
            let read = read_once(&mut content, &mut buffer[..most])?;
            hasher.update(&buffer[..read]);
            Ok::<_, std::io::Error>(read)
        });
        match step.map_err(|error| FileFailure::of(&source.path, Reason::Unreadable, error))? {
            0 => break,
            read => {
                bytes += read as u64;
                watch(Event::Compared(read as u64));
            }
        }
        yield_now().await;
    }
    if bytes != source.size || blocking(|| changed(source, &content, &before)).is_some() {
        return Ok(Hashed::Changed);
    }
    let hash = hasher.finalize().into();
    Ok(Hashed::Claim(Claim { id, attributes: attributes(source, &before), hash }, bytes))
}

/// Compares each beginning, until the ledger is closed.
pub(super) async fn compare_all(ledger: &Ledger, found: &Found, watch: Watch<'_>) {
    let mut buffer = vec![0; STEP];
    while let Some((id, prefix)) = ledger.next_beginning().await {
        let begun = Comparison::new(prefix);
        let equal = compare(ledger, (id, &found.sources[id as usize]), begun, &mut buffer, watch).await;
        ledger.compared(id, equal);
    }
}

/// The offset up to which the file has the content of the beginning.
async fn compare(
    ledger: &Ledger,
    (id, source): (u32, &Source),
    mut comparison: Comparison,
    buffer: &mut [u8],
    watch: Watch<'_>,
) -> u64 {
    // The announcer has the same file open, and moves the position of its own handle.
    let Some(mut content) = blocking(|| reopen(source)) else { return 0 };
    while comparison.room() > 0 && ledger.is_comparing(id) {
        let most = usize::try_from(comparison.room()).map_or(STEP, |room| room.min(STEP));
        let same = blocking(|| match read_once(&mut content, &mut buffer[..most]) {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                watch(Event::Compared(read as u64));
                comparison.update(&buffer[..read])
            }
        });
        if !same {
            break;
        }
        yield_now().await;
    }
    comparison.equal()
}

/// Opens the file once more, if it is still the same.
fn reopen(source: &Source) -> Option<Content> {
    let (mut content, metadata) = open(source).ok()?;
    (key(source, &metadata) == source.key && content.rewind().is_ok()).then_some(content)
}
