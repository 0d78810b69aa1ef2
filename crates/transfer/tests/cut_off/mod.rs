//! A transfer over a pipe in memory that is cut off: `existing`, `growing` and `trust` resume what it leaves.

use tidewire::PublicKey;
use tidewire_transfer::{Destination, Found, receive, send};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, duplex, split};

/// Sends as `peer` until `most` bytes have passed.
pub async fn cut_off(found: &Found, destination: &Destination, peer: Option<&PublicKey>, most: u64) {
    let ((near, middle_near), (middle_far, far)) = (duplex(100_000), duplex(100_000));
    let ((near_read, mut near_write), (mut far_read, mut far_write)) = (split(middle_near), split(middle_far));
    let forth = async {
        let _ = copy(&mut near_read.take(most), &mut far_write).await;
        let _ = far_write.shutdown().await;
    };
    let receiving = async { tokio::join!(receive(far, destination, peer, &|_| {}), forth).0 };
    tokio::select! {
        received = receiving => assert!(received.is_err()),
        _ = async { tokio::join!(send(near, found, &|_| {}), copy(&mut far_read, &mut near_write)) } => {
            panic!("the sender ended first")
        }
    }
}
