//! Receives messages through `quinn-udp`, without the kernel's times. Systems other than Linux use it.

use std::io::{self, IoSliceMut};

use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};

use super::Meta;
use super::readiness::Socket;

/// There is nothing to ask for.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn ask_for_times(_io: &Socket) {}

/// There is nothing to ask for.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn ask_for_drops(_io: &Socket) {}

/// Receives messages; see the module.
pub(super) struct Receiver {
    meta: [RecvMeta; BATCH_SIZE],
}

impl Receiver {
    pub fn new() -> Self {
        Self { meta: [RecvMeta::default(); BATCH_SIZE] }
    }

    /// Fills buffers with what one system call returns, and counts them in `filled`.
    ///
    /// # Errors
    /// `WouldBlock` if the socket is empty.
    pub fn receive(
        &mut self,
        io: &Socket,
        state: &UdpSocketState,
        buffers: &mut [Box<[u8]>; BATCH_SIZE],
        meta: &mut [Meta],
        filled: &mut usize,
    ) -> io::Result<()> {
        let mut slices = buffers.each_mut().map(|buffer| IoSliceMut::new(buffer));
        *filled = state.recv(io.into(), &mut slices, &mut self.meta)?;
        for (meta, got) in meta.iter_mut().zip(&self.meta).take(*filled) {
            let RecvMeta { addr: from, len, stride, ecn, dst_ip: to, .. } = *got;
            *meta = Meta { from, to, ecn, len, stride, stamp: None, dropped: 0 };
        }
        Ok(())
    }
}
