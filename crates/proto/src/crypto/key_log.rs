//! Reports the packet keys of a session to the application, so that a person can read its own traffic in a
//! packet analyser (docs/wireshark.md).
//!
//! Whoever has such a report reads and forges every packet of the session. Nothing is reported unless the
//! application sets [`crate::config::ConfigBuilder::key_log`]. Invariant: each key is reported before the
//! first packet under it is sent or handled. A key for the peer's next phase is reported in advance, and
//! again if fresh keys replace it: the last report of a phase counts.

use core::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::Aead;
use crate::wire::ConnectionId;

/// Receives the packet keys of all connections of an endpoint.
///
/// The endpoint calls it during the handshake and when a key changes, so it must return quickly and must not
/// call the endpoint.
pub trait KeyLog: fmt::Debug + Send + Sync {
    /// Called with each key of each direction.
    fn record(&self, key: &LoggedKey<'_>);
}

/// The end that seals with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sealer {
    /// The end that sent the HELLO.
    Initiator,
    /// The end that sent the REPLY.
    Responder,
}

/// The key of one direction in one key phase. `Display` writes the line of a key log, without a newline.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct LoggedKey<'a> {
    /// Source id of the HELLO.
    pub initiator: ConnectionId,
    /// Source id of the REPLY.
    pub responder: ConnectionId,
    /// Who seals with the key.
    pub sealer: Sealer,
    /// The key phase, from 0.
    pub phase: u64,
    /// The cipher.
    pub aead: Aead,
    /// The header key, the same in all phases.
    pub header: &'a [u8; 32],
    /// The packet key.
    pub key: &'a [u8; 32],
    /// The iv, from which nonces are made.
    pub iv: &'a [u8; 12],
}

impl fmt::Display for LoggedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TIDEWIRE_KEY ")?;
        hex(f, &self.initiator.0)?;
        f.write_str(" ")?;
        hex(f, &self.responder.0)?;
        let sealer = match self.sealer {
            Sealer::Initiator => 'I',
            Sealer::Responder => 'R',
        };
        write!(f, " {sealer} {} {} ", self.phase, self.aead)?;
        hex(f, self.header)?;
        f.write_str(" ")?;
        hex(f, self.key)?;
        f.write_str(" ")?;
        hex(f, self.iv)
    }
}

impl fmt::Debug for LoggedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedKey").field("sealer", &self.sealer).field("phase", &self.phase).finish_non_exhaustive()
    }
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Where the keys of one session are reported.
#[derive(Clone)]
pub(crate) struct SessionLog {
    pub(crate) log: Arc<dyn KeyLog>,
    pub(crate) initiator: ConnectionId,
    pub(crate) responder: ConnectionId,
}

/// Where the keys of one direction are reported.
pub(super) struct DirectionLog {
    session: SessionLog,
    sealer: Sealer,
    aead: Aead,
    header: Zeroizing<[u8; 32]>,
}

impl DirectionLog {
    pub(super) fn new(session: SessionLog, sealer: Sealer, aead: Aead, header: Zeroizing<[u8; 32]>) -> Self {
        Self { session, sealer, aead, header }
    }

    pub(super) fn record(&self, phase: u64, key: &[u8; 32], iv: &[u8; 12]) {
        let SessionLog { log, initiator, responder } = &self.session;
        log.record(&LoggedKey {
            initiator: *initiator,
            responder: *responder,
            sealer: self.sealer,
            phase,
            aead: self.aead,
            header: &self.header,
            key,
            iv,
        });
    }
}
