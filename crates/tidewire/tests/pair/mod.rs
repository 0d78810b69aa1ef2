//! Two endpoints in one process and a connection between them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::future::Future;
use std::time::Duration;

use tidewire::{Config, Connection, Endpoint, Secret};

/// Nothing here takes a second; only a fault takes as long as this.
const FAULT: Duration = Duration::from_secs(60);

pub async fn within<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(FAULT, work).await.expect("still waiting after a minute")
}

pub fn secret() -> Secret {
    Secret::new([7; 32])
}

pub async fn endpoint(config: Config) -> Endpoint {
    Endpoint::bind("127.0.0.1:0".parse().unwrap(), secret(), config).unwrap()
}

pub struct Pair {
    pub client: Endpoint,
    pub server: Endpoint,
    pub ours: Connection,
    pub theirs: Connection,
}

pub async fn pair(config: Config) -> Pair {
    let (client, server) = (endpoint(config.clone()).await, endpoint(config).await);
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
