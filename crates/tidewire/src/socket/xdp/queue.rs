//! One queue of an interface: an AF_XDP socket with its rings and the memory that it shares with the kernel.
//!
//! The socket of a shard has one or several. Invariant: each frame of the memory is in one place, which is a
//! ring, a list of this queue, or free. Frames for receiving and for sending are counted apart, so that
//! neither direction takes those of the other.

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::task::{Context, Poll, ready};

use nix::libc;
use tokio::io::unix::AsyncFd;
use xdp::nic::NicIndex;
use xdp::slab::{HeapSlab, Slab as _};
use xdp::socket::{SocketError, XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, UmemCfgBuilder};
use xdp::{CompletionRing, FillRing, RingConfigBuilder, RxRing, TxRing, Umem};

use super::frame::{self, ETHERNET, Envelope};

/// Frames for receiving: 2,048 of 1,400 bytes are 23 ms at 1 Gbit/s. The rings need a power of two.
const RECEIVED: u32 = 2_048;
/// Frames for sending. Chosen: twenty batches of the longest kind.
const SENT: u32 = 1_024;
/// Frames that are taken from the ring at once.
const BATCH: usize = 64;
/// System calls for one batch at most: the kernel sends 32 frames a call (`TX_BATCH_SIZE` of net/xdp/xsk.c).
const MOST_CALLS: usize = 4;
/// Bytes that the kernel keeps before a received frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;

/// How frames get from the device into the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum XdpMode {
    /// Without a copy if the driver can, else by a copy.
    #[default]
    Any,
    /// By a copy, which every driver can.
    Copy,
    /// Without a copy, or not at all.
    ZeroCopy,
}

/// The queue; see the module. The order of the fields is the one in which they are freed: the memory outlives
/// the socket.
pub(super) struct Queue {
    socket: AsyncFd<Descriptor>,
    fill: FillRing,
    receiving: RxRing,
    sending: TxRing,
    completed: CompletionRing,
    inbox: HeapSlab,
    outbox: HeapSlab,
    /// Frames for sending that are not on their way.
    spare: usize,
    /// Whether the kernel has not taken all of the ring yet.
    is_behind: bool,
    memory: Umem,
}

// SAFETY: the pointers of the frames lead into `memory`, which moves with them, and no other thread has any.
unsafe impl Send for Queue {}

/// The socket as the reactor wants it.
struct Descriptor(XdpSocket);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.raw_fd()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("socket", &self.descriptor()).field("spare", &self.spare).finish_non_exhaustive()
    }
}

impl Queue {
    /// Opens a socket for queue `queue` of the interface, whose longest IP packet is `mtu`.
    ///
    /// # Errors
    /// The kernel refuses it, because of missing rights, a queue that is taken, or a mode that the driver
    /// lacks; [`io::ErrorKind::InvalidInput`] for packets longer than a frame.
    pub fn open(interface: u32, queue: u32, mtu: usize, mode: XdpMode) -> io::Result<Self> {
        let sizes = [(2_048, FrameSize::TwoK), (4_096, FrameSize::FourK)];
        let size = sizes.into_iter().find(|(bytes, _)| mtu + ETHERNET + HEADROOM <= *bytes).ok_or_else(|| {
            let text = format!("frames of {mtu} bytes do not fit AF_XDP's 4,096: lower the interface's MTU to 3,498");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let memory = UmemCfgBuilder { frame_size: size.1, frame_count: RECEIVED + SENT, ..Default::default() };
        let mut memory = Umem::map(memory.build().map_err(io::Error::other)?)?;
        let rings =
            RingConfigBuilder { rx_count: RECEIVED, tx_count: SENT, fill_count: RECEIVED, completion_count: SENT };
        let mut builder = XdpSocketBuilder::new().map_err(refused)?;
        let (mut rings, mut flags) =
            builder.build_rings(&memory, rings.build().map_err(io::Error::other)?).map_err(unlockable(size.0))?;
        match mode {
            XdpMode::Any => {}
            XdpMode::Copy => flags.force_copy(),
            XdpMode::ZeroCopy => flags.force_zerocopy(),
        }
        // SAFETY: the memory is freed after the socket; see the order of the fields.
        unsafe { rings.fill_ring.enqueue(&mut memory, RECEIVED as usize) };
        let socket = builder.bind(NicIndex::new(interface), queue, flags).map_err(refused)?;
        let (Some(receiving), Some(sending)) = (rings.rx_ring, rings.tx_ring) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // SAFETY: the descriptor is closed by the socket, with this struct and not before.
        let socket = unsafe { AsyncFd::register(Descriptor(socket)) }?;
        Ok(Self {
            socket,
            fill: rings.fill_ring,
            receiving,
            sending,
            completed: rings.completion_ring,
            inbox: HeapSlab::with_capacity(BATCH),
            outbox: HeapSlab::with_capacity(SENT as usize),
            spare: SENT as usize,
            is_behind: false,
            memory,
        })
    }

    pub fn descriptor(&self) -> RawFd {
        self.socket.get_ref().as_raw_fd()
    }

    /// Takes frames from the ring.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.receive() {
                return Poll::Ready(Ok(()));
            }
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            guard.clear_ready();
            drop(guard);
            // A frame that came before `clear_ready` wakes nobody.
            if self.receive() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn receive(&mut self) -> bool {
        // SAFETY: the frames of `inbox` are freed with the memory, by this struct.
        unsafe { self.receiving.recv(&self.memory, &mut self.inbox) > 0 }
    }

    /// Passes each datagram of the taken frames on, and gives the frames back to the kernel.
    pub fn take(&mut self, mut each: impl FnMut(&Envelope, &mut [u8])) {
        let count = self.inbox.len();
        while let Some(mut packet) = self.inbox.pop_back() {
            if let Some((envelope, place)) = frame::open(&packet) {
                each(&envelope, &mut packet[place]);
            }
            self.memory.free_packet(packet);
        }
        // SAFETY: as in `open`. The ring has room for all frames for receiving.
        unsafe { self.fill.enqueue(&mut self.memory, count) };
    }

    /// Whether `count` frames can be sent now. If not, the kernel was told to go on.
    pub fn has_room(&mut self, count: usize) -> bool {
        self.reclaim();
        if self.spare < count || self.is_behind {
            self.wake_kernel();
            self.reclaim();
        }
        self.spare >= count
    }

    /// Puts a datagram into the outbox. Returns whether it fits a frame. Call it only if there is room.
    pub fn put(&mut self, envelope: &Envelope, datagram: &[u8]) -> bool {
        // SAFETY: as in `receive`.
        let Some(mut packet) = (unsafe { self.memory.alloc() }) else { return false };
        if envelope.seal(datagram, |bytes| packet.append(bytes).ok()).is_none() {
            self.memory.free_packet(packet);
            return false;
        }
        self.spare -= 1;
        self.outbox.push_front(packet);
        true
    }

    /// Sends what is in the outbox.
    pub fn flush(&mut self) {
        // SAFETY: as in `open`. The ring has room for all frames for sending.
        unsafe { self.sending.send(&mut self.outbox) };
        self.wake_kernel();
    }

    fn reclaim(&mut self) {
        self.spare += self.completed.dequeue(&mut self.memory, SENT as usize);
    }

    /// Tells the kernel that there is something to send.
    fn wake_kernel(&mut self) {
        for _ in 0..MOST_CALLS {
            let flags: c_int = libc::MSG_DONTWAIT;
            // SAFETY: nothing is passed but the descriptor, which is open.
            let sent = unsafe { libc::sendto(self.descriptor(), std::ptr::null(), 0, flags, std::ptr::null(), 0) };
            self.is_behind = sent < 0;
            // The kernel sent its share of the ring, and asks to be called again.
            if !self.is_behind || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock {
                break;
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        for slab in [&mut self.inbox, &mut self.outbox] {
            while let Some(packet) = slab.pop_back() {
                self.memory.free_packet(packet);
            }
        }
    }
}

/// Explains that memory for frames of `size` bytes cannot be locked: without CAP_IPC_LOCK, the kernel counts
/// that of all sockets of a user (`xdp_umem_account_pages` of net/xdp/xdp_umem.c).
fn unlockable(size: usize) -> impl FnOnce(SocketError) -> io::Error {
    let mebibytes = ((RECEIVED + SENT) as usize * size) >> 20;
    move |error| match refused(error) {
        error if error.raw_os_error() == Some(libc::ENOBUFS) => {
            let hint = "of locked memory: raise `ulimit -l`, or add CAP_IPC_LOCK";
            io::Error::new(io::ErrorKind::OutOfMemory, format!("it needs {mebibytes} MiB {hint}"))
        }
        error => error,
    }
}

/// The error of the system in one of the crate's.
fn refused(error: xdp::socket::SocketError) -> io::Error {
    match error {
        SocketError::SocketCreation(inner)
        | SocketError::SetSockOpt { inner, .. }
        | SocketError::GetSockOpt { inner, .. }
        | SocketError::RingMap { inner, .. }
        | SocketError::Bind(inner) => inner,
    }
}
