//! Tidewire carries byte streams and messages over UDP across paths that lose packets: in order, encrypted,
//! at low delay, without waiting a round trip for each loss. It mixes repair packets into the data. The
//! measured loss decides how many.
//!
//! ```
//! use tidewire::{CloseCode, Config, Endpoint, new_secret};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let secret = new_secret()?;
//! let server = Endpoint::bind("127.0.0.1:0".parse()?, secret.clone(), Config::default())?;
//! let client = Endpoint::bind("127.0.0.1:0".parse()?, secret, Config::default())?;
//! let (theirs, ours) = tokio::join!(server.accept(), client.connect(server.local_addr()));
//! let (theirs, ours) = (theirs?, ours?);
//!
//! let mut stream = ours.open().await?;
//! stream.write_all(b"across a path that loses packets").await?;
//! stream.shutdown().await?;
//!
//! let mut received = String::new();
//! theirs.accept().await?.read_to_string(&mut received).await?;
//! assert_eq!(received, "across a path that loses packets");
//! theirs.close(CloseCode::Done, "thank you");
//! println!("{}", ours.closed().await);
//! # Ok(())
//! # }
//! ```
//!
//! Messages with a deadline, as live video sends them. A message that cannot arrive within 200 ms is given
//! up.
//!
//! ```
//! # use tidewire::{Config, Endpoint, new_secret};
//! use std::time::Duration;
//! use tidewire::LaneConfig;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let secret = new_secret()?;
//! # let server = Endpoint::bind("127.0.0.1:0".parse()?, secret.clone(), Config::default())?;
//! # let client = Endpoint::bind("127.0.0.1:0".parse()?, secret, Config::default())?;
//! # let (theirs, ours) = tokio::join!(server.accept(), client.connect(server.local_addr()));
//! # let (theirs, ours) = (theirs?, ours?);
//! let video = ours.open_lane(&LaneConfig::default())?;
//! let frame = vec![7; 30_000];
//! ours.send_message(video, &frame, Duration::from_millis(200)).await?;
//!
//! let message = theirs.receive_message().await?;
//! assert_eq!((message.lane, message.data), (video, frame));
//! # Ok(())
//! # }
//! ```
//!
//! # What to know
//! - **Authentication.** Both sides know the same secret of 32 bytes ([`Secret`], made by [`new_secret`]). Or
//!   each has a key pair ([`PrivateKey`], made by [`new_private_key`]): the side that connects names the
//!   [`PublicKey`] of its peer ([`Endpoint::connect_to`]), and the side that listens lists the keys that it
//!   admits ([`KeyCredentials::authorized`]). Other peers get no answer at all.
//! - **Both directions.** Every [`Endpoint`] can accept and connect. Both sides of a [`Connection`] can open
//!   streams.
//! - **Streams** implement [`tokio::io::AsyncRead`] and [`tokio::io::AsyncWrite`]. A loss delays only the
//!   streams whose bytes were lost. An application that does not read a stream stops the writer of that
//!   stream when its window is full ([`ConfigBuilder::stream_window`]). Streams share the path evenly. Either
//!   half of a stream can be given up ([`Stream::reset`], [`Stream::stop`]).
//! - **Messages** have a lifetime and use lanes of their own ([`Connection::open_lane`]). A message of at
//!   most 256 KiB arrives whole, or not at all when its lifetime is over. Messages and streams share the path
//!   evenly, by bytes.
//! - **Settings.** [`Config::builder`] changes settings and checks them. The profile
//!   ([`ConfigBuilder::profile`]) says how data is coded, repaired and paced; the default adapts by itself.
//! - **Closing** tells the peer at once and does not wait until written data has arrived. So the side that
//!   receives the last data should close, or it should answer before the other side closes.
//! - **Statistics** ([`Connection::stats`]) count packets, symbols and the in-order delay of what arrived.
//! - **Logs.** If the program has set a subscriber of the crate `tracing`, connections are logged to it
//!   ([`Log`]). A program that wants the events itself sets a [`Trace`] ([`ConfigBuilder::trace`]).
//!
//! # What drives it
//! Each socket has one task on the tokio runtime in which it was bound. The task ends when the endpoint and
//! all its connections are dropped. Reads and writes call the protocol directly, without a channel or a
//! further copy. On Linux, datagrams are sent and received in batches (GSO, GRO) with their ECN
//! marks. The crate `tidewire-proto` is the protocol alone, without sockets and clock.
#![cfg_attr(not(feature = "xdp"), forbid(unsafe_code))]
#![cfg_attr(feature = "xdp", deny(unsafe_code))]
#![warn(clippy::exhaustive_enums)]

#[cfg(any(target_os = "linux", target_os = "android"))]
mod alarm;
mod arrival;
mod clock;
mod connection;
mod driver;
mod endpoint;
pub mod link;
mod log;
mod mail;
pub mod names;
mod placement;
mod port;
mod relay;
mod shared;
mod socket;
mod stream;
mod sync;
#[cfg(test)]
mod tests;
mod workers;

use std::io;

pub use connection::{Connection, ConnectionLost, EndpointEnded};
pub use endpoint::{ConnectError, Endpoint};
pub use log::Log;
pub use relay::{Hop, Relay, RelayCounts};
#[cfg(all(feature = "xdp", target_os = "linux"))]
pub use socket::xdp::{XdpConfig, XdpMode};
pub use stream::{ReadHalf, Stream, StreamError, WriteHalf};
pub use tidewire_codec::{Code, SourceId};
pub use tidewire_proto::config::{Config, ConfigBuilder, ConfigError};
pub use tidewire_proto::connection::{
    CloseCode, CloseReason, LaneConfig, LaneError, LaneId, Message, MessageError, Outgoing, SendFailure,
};
pub use tidewire_proto::crypto::{
    Aead, KeyLog, LoggedKey, PrivateKey, PublicKey, Sealer, Secret, TextError, TextFault, TextKind,
};
pub use tidewire_proto::endpoint::EndpointStats;
pub use tidewire_proto::handshake::{Credentials, KeyCredentials, PeerKeyError, ResponderStats, Unauthorized};
pub use tidewire_proto::profile::{BadProfile, Delivery, Layout, Mismatch, Profile};
pub use tidewire_proto::rate::{self, RateControl};
pub use tidewire_proto::recode::{RelayStats, Relaying};
pub use tidewire_proto::redundancy::plan::{Nearest, Plan, Target};
pub use tidewire_proto::redundancy::{self, Redundancy};
pub use tidewire_proto::relay::Report;
pub use tidewire_proto::stats::{
    AtOwnRate, ByteStats, DelayHistogram, LossRuns, LossStats, MessageStats, PacketStats, RateStats, RttStats, Stats,
    SymbolStats,
};
pub use tidewire_proto::trace::{self, Trace, TraceEvent};
pub use tidewire_proto::{Custom, Time};

/// A secret from the operating system's random source.
pub fn new_secret() -> io::Result<Secret> {
    random().map(Secret::new)
}

/// A private key from the operating system's random source.
pub fn new_private_key() -> io::Result<PrivateKey> {
    random().map(PrivateKey::new)
}

/// Bytes from the operating system's random source. The error names the random source, because the system's
/// own text would read like the error of a file.
pub(crate) fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| io::Error::other(format!("the system gives no random bytes: {error}")))?;
    Ok(bytes)
}

/// The examples of the README are compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
