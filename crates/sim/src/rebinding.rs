//! Changes of the near end's address, as caused by an address translator or a change of network.
//!
//! [`Pair`](crate::pair::Pair) applies a [`Rebinding`]. Datagrams to an address that the near end no longer
//! has are lost. Datagrams from it that are in flight still arrive.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebound {
    /// An address translator gives the near end another port. Nobody is told.
    Port,
    /// An address translator gives the near end another address, alternately IPv6 and IPv4. Nobody is told.
    Host,
    /// The near end changes networks itself and knows about it.
    Roams,
}

/// A schedule of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebinding {
    /// What changes.
    pub what: Rebound,
    /// Interval between two changes, and until the first.
    pub every: Duration,
}

impl Rebound {
    /// The address after `old` at change number `nth`, from 1. None is repeated within 60,000 changes.
    pub(crate) fn next(self, old: SocketAddr, nth: u16) -> SocketAddr {
        let [high, low] = nth.to_be_bytes();
        match self {
            Self::Port => SocketAddr::new(old.ip(), old.port().wrapping_add(1).max(1_024)),
            Self::Host | Self::Roams if nth.is_multiple_of(2) => (Ipv4Addr::new(10, 1, high, low), old.port()).into(),
            Self::Host | Self::Roams => (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, nth), old.port()).into(),
        }
    }
}
