//! What a consumer is given, and what it promises.

use std::error::Error;
use std::time::Duration;

pub use tidewire_recording::Entry as Observed;

/// Why a consumer ends, as a sentence without a full stop.
pub type ConsumerError = Box<dyn Error + Send + Sync>;

/// What happened within a few milliseconds.
#[derive(Debug)]
pub struct Batch {
    /// Time since the job began, when the batch was made. At least the time of every event before.
    pub now: Duration,
    /// The events. There may be none: batches come at least ten times a second.
    pub events: Vec<Observed>,
    /// Number of events since the batch before that found the queue of the fan-out full.
    pub dropped: u64,
}

/// Turns events into something that people or programs read. Each consumer has a thread of its own, so it may
/// block. Batches that find its queue full are dropped and counted.
pub trait Consumer: Send {
    /// Names the consumer in warnings, as "the recording".
    fn name(&self) -> &'static str;

    /// Takes a batch. `missed` is the number of events that this consumer has missed since the batch before,
    /// those of [`Batch::dropped`] included.
    ///
    /// # Errors
    /// The reason why the consumer ends. It is told once, and the connections go on.
    fn take(&mut self, batch: &Batch, missed: u64) -> Result<(), ConsumerError>;

    /// Called once, after the last batch, when the connections are over.
    ///
    /// # Errors
    /// The same as for [`Self::take`].
    fn end(&mut self) -> Result<(), ConsumerError> {
        Ok(())
    }
}
