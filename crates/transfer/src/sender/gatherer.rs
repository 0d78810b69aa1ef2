//! Reads what the receiver has, and the result of each entry, until TALLY.

use tokio::io::AsyncRead;

use super::ledger::Ledger;
use crate::record::{Record, RecordReader};
use crate::source::Found;
use crate::{Event, FileFailure, Outcome, Reason, TransferError, Watch};

/// Reads until TALLY. Entries that the sender aborted are its own failures and are not counted here.
pub(super) async fn gather(
    read: impl AsyncRead + Unpin,
    found: &Found,
    ledger: &Ledger,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    let mut records = RecordReader::open(read).await?;
    let mut outcome = Outcome::default();
    loop {
        match records.next().await? {
            Record::Have { id, have } => ledger.have(id, have)?,
            Record::Differs(id) => ledger.differs(id)?,
            Record::Result { id, failure, detail } => {
                let answered = ledger.answer(id, failure.is_none()).ok_or(TransferError::Unexpected("RESULT"))?;
                let path = found.name(id).text();
                match failure {
                    None => {
                        let size = answered.bytes;
                        if answered.claimed {
                            watch(Event::Resumed { path: &path, offset: size, size });
                        }
                        let warning = (!detail.is_empty()).then(|| format!("at the receiver: {detail}"));
                        outcome.keep(&path, size, answered.resumed, warning.as_deref(), watch);
                    }
                    Some(Reason::Aborted) => {}
                    Some(reason) => {
                        let detail = format!("at the receiver: {detail}");
                        outcome.fail(&FileFailure::new(path, reason, detail), watch);
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
