//! Another address for the near end: what an address translator, another network or a journey does to it.
//!
//! [`Pair`](crate::pair::Pair) applies a [`Rebinding`]. Datagrams to an address that the near end no longer
//! has are lost; those from it that are on their way still arrive.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebound {
    /// An address translator gives the near end another port, and tells nobody.
    Port,
    /// An address translator gives it another address, in turns of IPv6 and IPv4, and tells nobody.
    Host,
    /// The near end changes networks itself, and so knows of it.
    Roams,
}

/// A schedule of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebinding {
    /// What changes.
    pub what: Rebound,
    /// How often; the first time after as long.
    pub every: Duration,
}

impl Rebound {
    /// The address after `old` at the `nth` change, from 1; none comes twice before 60,000 of them.
    pub(crate) fn next(self, old: SocketAddr, nth: u16) -> SocketAddr {
        let [high, low] = nth.to_be_bytes();
        match self {
            Self::Port => SocketAddr::new(old.ip(), old.port().wrapping_add(1).max(1_024)),
            Self::Host | Self::Roams if nth.is_multiple_of(2) => (Ipv4Addr::new(10, 1, high, low), old.port()).into(),
            Self::Host | Self::Roams => (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, nth), old.port()).into(),
        }
    }
}
