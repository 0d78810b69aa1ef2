//! What the receiver tells the sender, and what became of the files so far. The receiving and the comparing
//! side share it. Invariant: the outcome counts a file when its RESULT is written.

use tokio::io::AsyncWrite;
use tokio::sync::Mutex;

use crate::durable::Warning;
use crate::record::{Record, RecordWriter};
use crate::refusal::Refusal;
use crate::{Event, FileFailure, Outcome, PathText, Reason, TransferError, Watch};

/// The direction to the sender.
pub(super) struct Answers<'a, W> {
    state: Mutex<State<W>>,
    watch: Watch<'a>,
}

struct State<W> {
    records: RecordWriter<W>,
    outcome: Outcome,
    /// CLAIMs that were answered with RESULT.
    claims: u32,
    /// Whether a file failed for lack of space, on the disk or in the quota.
    full: bool,
}

impl<'a, W: AsyncWrite + Unpin> Answers<'a, W> {
    pub(super) fn new(records: RecordWriter<W>, watch: Watch<'a>) -> Self {
        let state = State { records, outcome: Outcome::default(), claims: 0, full: false };
        Self { state: Mutex::new(state), watch }
    }

    pub(super) async fn write(&self, record: &Record<'_>) -> Result<(), TransferError> {
        self.state.lock().await.records.write(record).await
    }

    /// Answers that an entry is kept. `resumed` of its `bytes` were there before.
    pub(super) async fn kept(
        &self,
        id: u32,
        name: &PathText,
        (bytes, resumed): (u64, u64),
        warning: Warning,
    ) -> Result<(), TransferError> {
        let mut state = self.state.lock().await;
        state.outcome.keep(name, bytes, resumed, warning.as_deref(), self.watch);
        state.records.write(&Record::Result { id, failure: None, detail: warning.as_deref().unwrap_or_default() }).await
    }

    /// Tells the user what happens beside the answers.
    pub(super) fn tell(&self, event: Event<'_>) {
        (self.watch)(event);
    }

    /// Answers that an entry is not kept.
    pub(super) async fn failed(&self, id: u32, name: &PathText, refusal: Refusal) -> Result<(), TransferError> {
        let mut state = self.state.lock().await;
        let (reason, detail) = refusal;
        state.full |= matches!(reason, Reason::NoSpace | Reason::OverQuota);
        let failure = FileFailure::new(name.clone(), reason, detail);
        state.outcome.fail(&failure, self.watch);
        state.records.write(&Record::Result { id, failure: Some(reason), detail: &failure.detail }).await
    }

    /// Counts a CLAIM that is answered with RESULT.
    pub(super) async fn count_claim(&self) {
        let mut state = self.state.lock().await;
        state.claims = state.claims.saturating_add(1);
    }

    pub(super) async fn claims_kept(&self) -> u32 {
        self.state.lock().await.claims
    }

    pub(super) async fn was_full(&self) -> bool {
        self.state.lock().await.full
    }

    pub(super) async fn outcome(&self) -> Outcome {
        self.state.lock().await.outcome.clone()
    }

    /// Writes TALLY and ends this direction.
    pub(super) async fn close(&self) -> Result<(), TransferError> {
        let mut state = self.state.lock().await;
        let Outcome { kept, failed, bytes, .. } = state.outcome;
        state.records.write(&Record::Tally { kept, failed, bytes }).await?;
        // The sender may close after it has read TALLY, before our end of the stream arrives.
        let _ = state.records.close().await;
        Ok(())
    }
}
