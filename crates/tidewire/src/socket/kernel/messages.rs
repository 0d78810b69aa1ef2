//! Receives messages on Linux, each with the time at which the kernel took it from the network.
//!
//! `quinn-udp` sets the options of the socket, but its buffer has no room for the time and the congestion
//! mark of joined datagrams. So this module makes the system calls itself, one for each message, through
//! `nix`. The socket calls it when the kernel says that there is something to read. It allocates nothing
//! after [`Receiver::new`].

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Once;
use std::time::Duration;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc::{in_pktinfo, in6_pktinfo};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, RecvMsg, SockaddrStorage, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use quinn_udp::{EcnCodepoint, UdpSocketState};

use super::Meta;
use super::readiness::Socket;

/// Asks the kernel for times of arrival. A kernel that refuses gives messages without times.
pub(super) fn ask_for_times(io: &Socket) {
    let _ = setsockopt(io, sockopt::ReceiveTimestampns, &true);
}

/// Asks the kernel to count the datagrams that it drops because the socket is full. A kernel that refuses
/// gives messages without counts, and a log says so once for the process.
pub(super) fn ask_for_drops(io: &Socket) {
    static SAID: Once = Once::new();
    if let Err(error) = setsockopt(io, sockopt::RxqOvfl, &1) {
        SAID.call_once(|| tracing::info!("the kernel does not count what a full socket drops: {error}"));
    }
}

/// Makes the socket like one whose kernel refuses times.
#[cfg(test)]
pub(super) fn refuse_times(io: &Socket) {
    setsockopt(io, sockopt::ReceiveTimestampns, &false).expect("a socket");
}

/// Receives messages; see the module.
pub(super) struct Receiver {
    control: Vec<u8>,
    /// The count of dropped datagrams in the last message that had one. The kernel leaves out a count of 0.
    drops: u32,
}

impl Receiver {
    pub fn new() -> Self {
        // All that one message may carry: the time (twice on 32-bit processors, in the old and in the new
        // form), the size of joined datagrams, the count of dropped ones, the address and the mark of either
        // version of IP.
        let control = cmsg_space!(TimeSpec, TimeSpec, i32, u32, in_pktinfo, in6_pktinfo, i32, i32);
        Self { control, drops: 0 }
    }

    /// Fills buffers until all are full or nothing is left in the socket, and counts them in `filled`.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is left, even if buffers were filled. The caller then knows that the socket
    /// is empty without another system call.
    pub fn receive(
        &mut self,
        io: &Socket,
        _state: &UdpSocketState,
        buffers: &mut [Box<[u8]>],
        meta: &mut [Meta],
        filled: &mut usize,
    ) -> io::Result<()> {
        for (buffer, meta) in buffers.iter_mut().zip(meta) {
            *meta = loop {
                let mut slices = [IoSliceMut::new(buffer)];
                let control = Some(&mut self.control[..]);
                match recvmsg::<SockaddrStorage>(io.as_raw_fd(), &mut slices, control, MsgFlags::empty()) {
                    Ok(message) => break read(&message, &mut self.drops),
                    Err(Errno::EINTR) => {}
                    // The messages before it count.
                    Err(errno) if errno != Errno::EAGAIN && *filled > 0 => return Ok(()),
                    Err(errno) => return Err(errno.into()),
                }
            };
            *filled += 1;
        }
        Ok(())
    }
}

/// Reads addresses, mark, border and time of a message. `drops` is the count of dropped datagrams before
/// it, and then of now.
fn read(message: &RecvMsg<'_, '_, SockaddrStorage>, drops: &mut u32) -> Meta {
    let mut meta = Meta { len: message.bytes, stride: message.bytes, ..Meta::default() };
    if let Some(from) = &message.address {
        let v4 = from.as_sockaddr_in().map(|&from| SocketAddr::V4(from.into()));
        let from = v4.or_else(|| from.as_sockaddr_in6().map(|&from| SocketAddr::V6(from.into())));
        meta.from = from.unwrap_or(meta.from);
    }
    // This fails only if the buffer for control messages is too small.
    let Ok(controls) = message.cmsgs() else { return meta };
    for control in controls {
        match control {
            ControlMessageOwned::ScmTimestampns(time) => meta.stamp = Some(Duration::from(time)),
            ControlMessageOwned::RxqOvfl(count) => meta.dropped = count.wrapping_sub(std::mem::replace(drops, count)),
            ControlMessageOwned::UdpGroSegments(bytes) => meta.stride = usize::try_from(bytes).unwrap_or(meta.len),
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                meta.to = Some(IpAddr::V4(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes())));
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                meta.to = Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
            }
            ControlMessageOwned::Ipv4Tos(class) => meta.ecn = EcnCodepoint::from_bits(class),
            ControlMessageOwned::Ipv6TClass(class) => meta.ecn = EcnCodepoint::from_bits(class as u8),
            _ => {}
        }
    }
    meta
}
