//! Who sent the far end how much, and what it sent them: the promise about addresses that are not proven,
//! checked for every datagram.
//!
//! [`Pair`](crate::pair::Pair) tells it of every datagram. An address is proven once something was sent from
//! it after something had been delivered there. The ledger knows nothing of the protocol, so it holds for any
//! rule by which an endpoint takes an address for proven.

use core::net::SocketAddr;
use std::collections::BTreeMap;

/// Bytes that an address may get for each that came from it (RFC 9000 section 8.1).
const AMPLIFICATION: usize = 3;

/// Bytes of UDP payload from and to one address.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    received: usize,
    sent: usize,
    /// Something that was sent there arrived.
    reached: bool,
    proven: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ledger(BTreeMap<SocketAddr, Account>);

impl Ledger {
    /// The far end got `len` bytes that say they came from `from`.
    pub(crate) fn on_received(&mut self, from: SocketAddr, len: usize) {
        let account = self.0.entry(from).or_default();
        account.received += len;
        account.proven |= account.reached;
    }

    /// What the far end sent to `to` arrived there.
    pub(crate) fn on_delivered(&mut self, to: SocketAddr) {
        self.0.entry(to).or_default().reached = true;
    }

    /// The far end sent `len` bytes to `to`.
    ///
    /// # Panics
    /// When that is more than it may send there.
    pub(crate) fn on_sent(&mut self, to: SocketAddr, len: usize) {
        let account = self.0.entry(to).or_default();
        account.sent += len;
        let Account { received, sent, proven, .. } = *account;
        assert!(
            proven || sent <= AMPLIFICATION * received,
            "{sent} bytes to {to}, which sent {received} and is not proven"
        );
    }

    /// Bytes that were sent to an address.
    pub(crate) fn sent(&self, to: SocketAddr) -> usize {
        self.0.get(&to).map_or(0, |account| account.sent)
    }
}
