//! Shared by the fuzz targets: a null cipher, so that mutations of a packet get past its tag, and a function
//! that runs futures that never wait.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use tidewire_proto::crypto::{Aead, HeaderKey, PacketKey, Provider, Refused};
use tidewire_proto::wire::TAG_LEN;

/// A cipher that changes no byte. Its tags and masks are zeros, and any tag verifies.
pub struct Null;

impl Provider for Null {
    fn aes_hardware(&self) -> bool {
        false
    }

    fn packet_key(&self, _: Aead, _: &[u8; 32]) -> Box<dyn PacketKey> {
        Box::new(Self)
    }

    fn header_key(&self, _: Aead, _: &[u8; 32]) -> Box<dyn HeaderKey> {
        Box::new(Self)
    }
}

impl PacketKey for Null {
    fn seal(&self, _: &[u8; 12], _: &[u8], _: &mut [u8], tag: &mut [u8; TAG_LEN]) -> Result<(), Refused> {
        *tag = [0; TAG_LEN];
        Ok(())
    }

    fn open(&self, _: &[u8; 12], _: &[u8], _: &mut [u8], _: &[u8; TAG_LEN]) -> Result<(), Refused> {
        Ok(())
    }
}

impl HeaderKey for Null {
    fn mask(&self, _: &[u8; 16]) -> [u8; 5] {
        [0; 5]
    }
}

/// Runs a future that only reads from slices and writes to vectors, so that it waits for nothing but its
/// turn. Returns its output.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return result;
        }
    }
}
