//! A tunnel: IP packets of a TUN device over a tidewire connection, for each of several peers
//! (`docs/tunnel.md`).
//!
//! The verb `tunnel` calls [`dialer`] at the end that has a link, and [`listener`] at the other. Both carry
//! packets with a [`hub::Hub`]: the device, a queue for each peer, and who has which addresses. The code
//! repairs losses before the flows inside notice. Invariant: a peer sends only from, and receives only for,
//! the addresses that the user gave it.

pub mod addresses;
pub mod counts;
pub mod device;
pub mod dialer;
mod greeting;
pub mod hub;
mod icmp;
pub mod listener;
mod packet;
pub mod peers;
pub mod routes;
pub mod state;
mod unheard;

use tidewire::{CloseCode, Config, ConfigError};
use tidewire_proto::tunnel;

pub use tidewire_proto::tunnel::DEFAULT_MTU;

/// Close code of a connection whose peer has connected again.
const REPLACED: CloseCode = CloseCode::Application(258);

/// Least MTU: that of IPv6 (RFC 8200 section 5). The most is a jumbo frame.
pub const MTUS: std::ops::RangeInclusive<i64> = 1_280..=9_000;

/// The transport's settings for a tunnel.
///
/// # Errors
/// See [`ConfigError`].
pub fn configure(config: &Config) -> Result<Config, ConfigError> {
    tunnel::configure(config.to_builder()).build()
}
