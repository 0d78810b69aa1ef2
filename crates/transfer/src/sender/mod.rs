//! The sending side: asks what the receiver has of the files that [`scan`](super::scan) found, sends the rest
//! with the hashes, and collects the results.
//!
//! Four parts run concurrently in one task: the announcer writes, the gatherer reads, and two parts hash
//! files whose content the receiver may have. So no end waits for the other for ever, and hashing delays no
//! file. The parts share one [`Ledger`].

mod announcer;
mod gatherer;
mod hashing;
mod ledger;
mod opening;

use tokio::io::{AsyncRead, AsyncWrite, split};

use self::announcer::Announcer;
use self::gatherer::gather;
use self::hashing::{claim_all, compare_all};
use self::ledger::Ledger;
use super::record::{Record, RecordWriter};
use super::source::Found;
use super::{Event, Outcome, TransferError, Watch};

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
    let ledger = Ledger::new(found);
    let announcing = async {
        let mut records = RecordWriter::open(write).await?;
        watch(Event::Total { files: found.files, bytes: found.bytes });
        records.write(&Record::Total { files: found.files, bytes: found.bytes, job: found.job }).await?;
        let failures = Announcer::new(records, &ledger, found, watch).run().await;
        ledger.close();
        failures
    };
    let hashing = async {
        tokio::join!(claim_all(&ledger, found, watch), compare_all(&ledger, found, watch));
        Ok(())
    };
    let gathering = gather(read, found, &ledger, watch);
    let (failures, gathered, ()) = tokio::try_join!(announcing, gathering, hashing)?;
    outcome.kept += gathered.kept;
    outcome.bytes += gathered.bytes;
    outcome.resumed += gathered.resumed;
    outcome.failed += gathered.failed + failures.len() as u32;
    outcome.mismatch |= gathered.mismatch;
    Ok(outcome)
}
