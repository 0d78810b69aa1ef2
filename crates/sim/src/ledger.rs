//! Counts the bytes between the far end and each address. It checks for every datagram that an unproven
//! address gets at most three times what came from it.
//!
//! [`Pair`](crate::pair::Pair) reports every datagram. An address is proven when a datagram arrives from it
//! after a datagram was delivered to it. The ledger knows nothing about the protocol, so it judges any rule
//! by which an endpoint takes an address for proven.

use core::net::SocketAddr;
use std::collections::BTreeMap;

/// Bytes that an unproven address may get for each byte that came from it (RFC 9000 section 8.1).
const AMPLIFICATION: usize = 3;

/// Bytes of UDP payload from and to one address.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    received: usize,
    sent: usize,
    /// True if a datagram that was sent to the address arrived.
    reached: bool,
    proven: bool,
}

/// The counts of all addresses; see the module.
#[derive(Debug, Default)]
pub(crate) struct Ledger(BTreeMap<SocketAddr, Account>);

impl Ledger {
    /// Called when the far end received `len` bytes with source address `from`.
    pub(crate) fn on_received(&mut self, from: SocketAddr, len: usize) {
        let account = self.0.entry(from).or_default();
        account.received += len;
        account.proven |= account.reached;
    }

    /// Called when a datagram of the far end arrived at `to`.
    pub(crate) fn on_delivered(&mut self, to: SocketAddr) {
        self.0.entry(to).or_default().reached = true;
    }

    /// Called when the far end sent `len` bytes to `to`.
    ///
    /// # Panics
    /// Panics if that is more than it may send to this address.
    pub(crate) fn on_sent(&mut self, to: SocketAddr, len: usize) {
        let account = self.0.entry(to).or_default();
        account.sent += len;
        let Account { received, sent, proven, .. } = *account;
        assert!(
            proven || sent <= AMPLIFICATION * received,
            "{sent} bytes to {to}, which sent {received} and is not proven"
        );
    }

    /// Bytes sent to an address.
    pub(crate) fn sent(&self, to: SocketAddr) -> usize {
        self.0.get(&to).map_or(0, |account| account.sent)
    }
}
