//! A tunnel: IP packets of a TUN device over Tidewire connections, for each of several peers, as
//! `docs/tunnel.md` says. It needs Linux; on other systems this crate is empty.
//!
//! The caller makes the connections. A [`Device`] and its [`Routes`] belong to a [`Hub`], which has a queue
//! for each peer and knows who has which addresses. As long as the tunnel is up, [`Hub::read_device`] moves
//! packets from the device to the queues, and [`Routes::keep`] restores what other programs remove from the
//! kernel. The end that connected calls [`greet`], the other [`admit`], and both then [`Hub::carry`], which
//! carries packets until the connection is lost. The caller connects again and calls the same; meanwhile the
//! device stays up, and packets wait in the queue. [`Hub::counts`] and [`Hub::peers`] tell what happened;
//! nothing else needs to be told. `examples/pair.rs` has both ends.
//!
//! The code repairs losses before the flows inside notice. Invariant: a peer sends only from, and receives
//! only for, the addresses that the user gave it.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod addresses;
mod barrier;
mod changes;
mod counts;
mod device;
mod greeting;
mod hub;
mod icmp;
mod interface;
mod keep;
mod meeting;
mod netlink;
mod outbox;
mod packet;
mod peers;
mod route;
mod routes;
mod rules;
mod unheard;

use tidewire::{CloseCode, Config, ConfigError};
use tidewire_proto::tunnel;

pub use addresses::{
    Entry, LineError, NetworkError, Overlap, PeersError, only_peer, parse_address, parse_network, read_peers,
};
pub use counts::{Carried, Counts, Dropped};
pub use device::{Device, DeviceError};
pub use greeting::Answer;
pub use hub::Hub;
pub use interface::{Beside, Part};
pub use keep::{KeepError, Restored};
pub use meeting::{AdmitError, GreetError, admit, greet};
pub use peers::{Listed, Peer, Peers};
pub use routes::{RouteError, Routes};
pub use rules::Outer;
pub use tidewire_proto::tunnel::DEFAULT_MTU;

/// Close code of a connection whose peer has connected again. At the end that connected, another end has
/// taken over with the same key or secret.
pub const REPLACED: CloseCode = CloseCode::Application(258);

/// Least MTU: that of IPv6 (RFC 8200 section 5). The most is a jumbo frame.
pub const MTUS: std::ops::RangeInclusive<u16> = 1_280..=9_000;

/// The transport's settings for a tunnel.
///
/// # Errors
/// See [`ConfigError`].
pub fn configure(config: &Config) -> Result<Config, ConfigError> {
    tunnel::configure(config.to_builder()).build()
}
