//! Endpoints of the tests, pairs of them in one process, and plain sockets beside them.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tidewire::{Config, Connection, Credentials, Endpoint, Secret};
use tokio::net::UdpSocket;

use crate::places::{Place, outside};

/// Nothing here takes a second; only a fault takes as long as this.
const FAULT: Duration = Duration::from_secs(60);

pub async fn within<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(FAULT, work).await.expect("still waiting after a minute")
}

pub fn secret() -> Secret {
    Secret::new([7; 32])
}

/// An endpoint with these credentials at a place of its own.
pub fn bind(credentials: impl Into<Credentials>, config: Config) -> Endpoint {
    let place = Place::new();
    place.bind(SocketAddr::new(place.v4[0], 0), credentials, config).unwrap()
}

pub async fn endpoint(config: Config) -> Endpoint {
    bind(secret(), config)
}

/// A plain socket of a stranger or of a translator. Call it from the thread of the test.
pub async fn plain() -> UdpSocket {
    UdpSocket::bind((outside(), 0)).await.unwrap()
}

pub struct Pair {
    pub client: Endpoint,
    pub server: Endpoint,
    pub ours: Connection,
    pub theirs: Connection,
}

pub async fn pair(config: Config) -> Pair {
    between(endpoint(config.clone()).await, endpoint(config).await).await
}

/// Connects `client` to `server`.
pub async fn between(client: Endpoint, server: Endpoint) -> Pair {
    let (ours, theirs) = within(async { tokio::join!(client.connect(server.local_addr()), server.accept()) }).await;
    Pair { ours: ours.unwrap(), theirs: theirs.unwrap(), client, server }
}

/// Bytes that no mistake in order or place reproduces (xorshift64).
pub fn pseudo_random(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(len).collect()
}
