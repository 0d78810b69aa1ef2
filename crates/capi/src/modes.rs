//! The options that can change at any time: blocking or not, and how long calls wait.

use std::time::{Duration, Instant};

/// See the module. An accepted socket begins with those of its listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modes {
    pub is_blocking: bool,
    pub receive_timeout: Option<Duration>,
    pub send_timeout: Option<Duration>,
    /// How long closing waits until the peer has everything.
    pub linger: Duration,
}

impl Default for Modes {
    fn default() -> Self {
        Self { is_blocking: true, receive_timeout: None, send_timeout: None, linger: LINGER }
    }
}

impl Modes {
    /// When a receive that begins now gives up.
    pub fn receive_deadline(&self) -> Option<Instant> {
        self.receive_timeout.map(|timeout| Instant::now() + timeout)
    }

    /// When a send that begins now gives up.
    pub fn send_deadline(&self) -> Option<Instant> {
        self.send_timeout.map(|timeout| Instant::now() + timeout)
    }
}

/// Chosen: some round trips of the slowest satellite link, and short for a person who waits at a terminal.
const LINGER: Duration = Duration::from_secs(5);
