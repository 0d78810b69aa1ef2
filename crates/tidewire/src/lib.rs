//! Tidewire carries byte streams over UDP across paths that lose packets: in order, encrypted, at low delay,
//! without waiting a round trip for each loss. It mixes repair packets into what it sends, as many as what it
//! measures asks for.
//!
//! ```
//! use tidewire::{CloseCode, Config, Endpoint, new_secret};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let secret = new_secret()?;
//! let server = Endpoint::bind("127.0.0.1:0".parse()?, secret.clone(), Config::default()).await?;
//! let client = Endpoint::bind("127.0.0.1:0".parse()?, secret, Config::default()).await?;
//! let (theirs, ours) = tokio::join!(server.accept(), client.connect(server.local_addr()));
//! let (theirs, ours) = (theirs.expect("the endpoint is open"), ours?);
//!
//! let mut stream = ours.open().await?;
//! stream.write_all(b"across a path that loses packets").await?;
//! stream.shutdown().await?;
//!
//! let mut received = String::new();
//! theirs.accept().await.expect("the connection is open").read_to_string(&mut received).await?;
//! assert_eq!(received, "across a path that loses packets");
//! theirs.close(CloseCode::Done, "thank you");
//! println!("{}", ours.closed().await);
//! # Ok(())
//! # }
//! ```
//!
//! Messages with a deadline, as live video sends them: what cannot be there in 200 ms is not sent any more.
//!
//! ```
//! # use tidewire::{Config, Endpoint, new_secret};
//! use std::time::Duration;
//! use tidewire::LaneConfig;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let secret = new_secret()?;
//! # let server = Endpoint::bind("127.0.0.1:0".parse()?, secret.clone(), Config::default()).await?;
//! # let client = Endpoint::bind("127.0.0.1:0".parse()?, secret, Config::default()).await?;
//! # let (theirs, ours) = tokio::join!(server.accept(), client.connect(server.local_addr()));
//! # let (theirs, ours) = (theirs.expect("the endpoint is open"), ours?);
//! let video = ours.open_lane(&LaneConfig::default())?;
//! let frame = vec![7; 30_000];
//! ours.send_message(video, &frame, Duration::from_millis(200)).await?;
//!
//! let message = theirs.receive_message().await.expect("the connection is open");
//! assert_eq!((message.lane, message.data), (video, frame));
//! # Ok(())
//! # }
//! ```
//!
//! # What to know
//! - **Secret.** Both sides hold the same 32 bytes ([`Secret`]; [`new_secret`] makes one). To who does not,
//!   an endpoint is silent. Or each has a key pair ([`PrivateKey`]; [`new_private_key`] makes one): then the
//!   one that connects names the other's [`PublicKey`] ([`Endpoint::connect_to`]), and the one that listens
//!   those it lets in ([`KeyCredentials::authorized`]).
//! - **Both ways.** Every [`Endpoint`] accepts and connects; either side of a [`Connection`] opens streams.
//! - **Streams** are [`tokio::io::AsyncRead`] and [`tokio::io::AsyncWrite`]. They do not wait for each other:
//!   what is missing of one holds up only that one. A reader that does not read stops its own writer, once
//!   [`Config::stream_window`] is full. Writers share the path evenly, and one that writes little is next.
//!   Either half may be given up: [`Stream::reset`], [`Stream::stop`].
//! - **Messages** have a lifetime and lanes of their own ([`Connection::open_lane`]): each comes whole or,
//!   when its time is over, not at all. Up to 256 KiB long, they share the path with the streams by bytes.
//! - The **profile** ([`Config::profile`]) says how data is coded, repaired and paced. The default adapts by
//!   itself. [`Config`] is built by changing fields of [`Config::default`].
//! - **Closing** tells the peer at once and does not wait for what was written to arrive. The side that
//!   *received* last closes, or answers so that the other may.
//! - **Stats** ([`Connection::stats`]) count packets, symbols and the in-order delay of everything received.
//!
//! # What drives it
//! Each endpoint has one task on the tokio runtime it was bound in, which owns the socket (one for each
//! socket: [`Endpoint::bind_sharded`]); dropping the endpoint and all its connections ends it. Writing and
//! reading call straight into the protocol: no channel, no further copy. On Linux datagrams are sent and
//! received in batches (GSO, GRO) with their congestion marks (ECN). The protocol itself, without sockets and
//! clock, is the crate `tidewire-proto`.
#![forbid(unsafe_code)]

mod clock;
mod connection;
mod driver;
mod endpoint;
mod mail;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod shards;
mod shared;
mod socket;
mod stream;
mod sync;
mod workers;

use std::io;

pub use connection::{Connection, ConnectionLost};
pub use endpoint::{ConnectError, Endpoint};
pub use stream::{ReadHalf, Stream, StreamError, WriteHalf};
pub use tidewire_codec::Code;
pub use tidewire_codec::SourceId;
pub use tidewire_proto::config::{Config, ConfigError};
pub use tidewire_proto::connection::{CloseCode, CloseReason, LaneConfig, LaneError, Message, MessageError};
pub use tidewire_proto::crypto::{PrivateKey, PublicKey, Secret, TextError, TextFault, TextKind};
pub use tidewire_proto::endpoint::EndpointStats;
pub use tidewire_proto::handshake::{Credentials, KeyCredentials, PeerKeyError, Unauthorized};
pub use tidewire_proto::profile::{BadProfile, Delivery, Profile};
pub use tidewire_proto::rate::{self, RateControl};
pub use tidewire_proto::redundancy::plan::{Nearest, Plan, Target};
pub use tidewire_proto::redundancy::{self, Redundancy};
pub use tidewire_proto::stats::{DelayHistogram, MessageStats, PacketStats, Stats, SymbolStats};
pub use tidewire_proto::{Custom, Time};

/// A secret from the operating system's random source.
pub fn new_secret() -> io::Result<Secret> {
    random().map(Secret::new)
}

/// A private key from the operating system's random source.
pub fn new_private_key() -> io::Result<PrivateKey> {
    random().map(PrivateKey::new)
}

/// Bytes from the operating system's random source. Its error says what failed: alone it would read as one of
/// a file.
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
