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
mod queue;
pub mod state;

use std::time::Duration;

use tidewire::{CloseCode, Config, ConfigError};

use crate::session::KEEP_ALIVE;

/// Close code of a connection whose peer has connected again.
const REPLACED: CloseCode = CloseCode::Application(258);

/// Default of the longest packet. One packet and its headers then fit into a datagram of 1,472 bytes, the
/// payload of UDP over Ethernet.
pub const DEFAULT_MTU: u16 = 1_420;
/// Least MTU: that of IPv6 (RFC 8200 section 5). The most is a jumbo frame.
pub const MTUS: std::ops::RangeInclusive<i64> = 1_280..=9_000;

/// Ring of the lane: the packets of a lifetime and their repair, at 1 Gbit/s over 100 ms.
const RING: usize = 32 << 20;

/// Lifetime of a packet in round trips: enough for an answer to the peer's feedback, and for a second one.
/// With one round trip only proactive repair counts, and what it misses is a loss for the flows inside:
/// `docs/tunnel.md` section 4 has the measurement.
const LIFETIME: u32 = 3;
/// Least lifetime of a packet. Chosen: a reordering or a short gap of the radio passes within this time.
const LEAST_LIFETIME: Duration = Duration::from_millis(50);

/// How long a packet is of use from the moment at which it leaves the queue.
fn lifetime(rtt: Duration) -> Duration {
    (rtt * LIFETIME).max(LEAST_LIFETIME)
}

/// The transport's settings for a tunnel.
///
/// # Errors
/// See [`ConfigError`].
pub fn configure(config: &Config) -> Result<Config, ConfigError> {
    config.to_builder().message_memory(RING).keep_alive(Some(KEEP_ALIVE)).build()
}
