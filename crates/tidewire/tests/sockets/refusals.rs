//! Row S11 of `docs/survival.md` on a real system: a port where nobody listens.

use std::time::Duration;

use tidewire::{Config, ConnectError};

use crate::pair::{Pair, endpoint, pair, plain, within};

#[tokio::test]
async fn s11_a_closed_port_is_no_answer() {
    let closed = plain().await.local_addr().unwrap();
    let config = Config::builder().handshake_timeout(Duration::from_secs(1)).build().expect("in range");
    let client = endpoint(config).await;
    assert_eq!(within(client.connect(closed)).await.err(), Some(ConnectError::NoAnswer));
    // The socket still works.
    let Pair { ours, .. } = pair(Config::default()).await;
    assert_eq!(ours.stats().packets.refused, 0);
}
