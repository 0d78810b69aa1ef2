//! The switch that ends the sessions of an end.

use tokio::sync::watch;

/// Whether an end was stopped, or its inputs have ended. Clones are one switch.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Ends all sessions, as if the inputs had ended.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Whether that has happened.
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Runs `work`; `None` if the end was stopped first.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stopped = self.0.subscribe();
        tokio::select! {
            done = work => Some(done),
            _ = stopped.wait_for(|stopped| *stopped) => None,
        }
    }
}
