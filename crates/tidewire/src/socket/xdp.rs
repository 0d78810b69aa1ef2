//! Sockets that bypass most of the kernel (AF_XDP): frames pass between the driver of an interface and memory
//! that it shares with us.
//!
//! [`bind`] makes a group of them, one for each shard. Each also has a kernel socket at the same address: it
//! takes what a program of ours in the driver does not (`xdp/program.rs`), and sends what does not leave by
//! the interface, or whose neighbour is not known yet (`xdp/ways.rs`). So a peer may be anywhere. A frame
//! has no time of arrival: it counts as arrived when it is read. `docs/xdp.md` has the figures and what was
//! not tried. Invariant: what the kernel's socket can do, this one can.

mod frame;
mod interface;
#[cfg(test)]
mod measure;
mod program;
mod queue;
#[cfg(test)]
mod tests;
mod ways;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidewire_proto::connection::{SendFailure, Transmit};

use self::frame::Envelope;
use self::interface::Interface;
use self::program::Attached;
use self::queue::Queue;
use self::ways::{Way, Ways};
use super::{Kernel, Socket, Train};

pub use self::queue::XdpMode;

/// How often and after which pauses something that is taken is tried again. Chosen: the kernel does such work
/// within a few milliseconds (`xp_release_deferred` in net/xdp/xsk_buff_pool.c).
const TRIES: u32 = 20;
/// See [`TRIES`].
const PAUSE: Duration = Duration::from_millis(10);

/// Where and how to bypass the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    interface: String,
    mode: XdpMode,
}

impl XdpConfig {
    /// Over the interface of this name, copying or not as the driver can.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        Self { interface: interface.into(), mode: XdpMode::default() }
    }

    /// How frames get into the shared memory.
    #[must_use]
    pub fn mode(self, mode: XdpMode) -> Self {
        Self { mode, ..self }
    }
}

/// A socket of a shard; see the module.
#[derive(Debug)]
pub(crate) struct Xdp {
    kernel: Kernel,
    /// The queues of this shard. Without one, the kernel's socket does all.
    queues: Vec<Queue>,
    shared: Arc<OfInterface>,
    local: SocketAddr,
    /// Whether the kernel's socket received at the last call.
    is_from_kernel: bool,
    /// Whether the last call left nothing in the kernel's socket and the rings.
    is_drained: bool,
}

/// What the sockets of an interface share.
#[derive(Debug)]
struct OfInterface {
    interface: Interface,
    ways: Ways,
    /// Detaches the program with the last socket.
    _program: Attached,
}

/// Binds `shards` sockets to one address, and distributes the queues of the interface over them. Needs a
/// runtime with I/O and time enabled, and the rights CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
///
/// # Errors
/// Errors of the socket; what the interface or the kernel refuses, as a sentence.
pub(crate) fn bind(address: SocketAddr, shards: usize, config: &XdpConfig) -> io::Result<Vec<Xdp>> {
    let sockets = Kernel::bind_group(address, shards)?;
    let local = sockets[0].local_addr()?;
    let interface = Interface::named(&config.interface)?;
    let ours = if local.ip().is_unspecified() { interface.addresses.clone() } else { vec![local.ip()] };
    let explain = |what: &str| {
        let (what, name) = (what.to_owned(), config.interface.clone());
        move |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => " (it needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF)",
                io::ErrorKind::ResourceBusy => " (another program has it)",
                _ => "",
            };
            io::Error::new(error.kind(), format!("{what} `{name}`: {error}{hint}"))
        }
    };
    let program = patiently(|| Attached::new(interface.index, interface.queues, local.port(), &ours))
        .map_err(explain("cannot attach a program to"))?;
    let count = sockets.len();
    let mut queues: Vec<Vec<Queue>> = std::iter::repeat_with(Vec::new).take(count).collect();
    for queue in 0..interface.queues {
        let opened = patiently(|| Queue::open(interface.index, queue, interface.mtu, config.mode))
            .map_err(explain(&format!("cannot open queue {queue} of")))?;
        program.insert(queue, opened.descriptor()).map_err(explain(&format!("cannot use queue {queue} of")))?;
        queues[queue as usize % count].push(opened);
    }
    let ways = Ways::over(interface.index, interface.mtu)?;
    let shared = Arc::new(OfInterface { interface, ways, _program: program });
    let socket = |(kernel, queues)| Xdp {
        kernel,
        queues,
        shared: Arc::clone(&shared),
        local,
        is_from_kernel: false,
        is_drained: false,
    };
    Ok(sockets.into_iter().zip(queues).map(socket).collect())
}

/// Tries again for a moment if something is taken: the kernel frees the queues of a socket some time after it
/// was closed, so a program that starts again would find its own.
fn patiently<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..TRIES {
        match work() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
    work()
}

impl Xdp {
    /// The way of a batch, if it leaves by the interface.
    fn envelope(&self, transmit: &Transmit) -> Option<(Envelope, Way)> {
        let to = transmit.destination.ip().to_canonical();
        let way = self.shared.ways.find(to)?;
        let bound = Some(self.local.ip()).filter(|ip| !ip.is_unspecified());
        let from = transmit.source.or(bound).unwrap_or(way.source).to_canonical();
        let envelope = Envelope {
            stations: [self.shared.interface.station, way.station],
            from: SocketAddr::new(from, self.local.port()),
            to: SocketAddr::new(to, transmit.destination.port()),
            ecn: transmit.ecn,
        };
        (from.is_ipv4() == to.is_ipv4()).then_some((envelope, way))
    }

    /// An address as the kernel's socket would show it.
    fn as_shown(&self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V4(v4) if self.local.is_ipv6() => IpAddr::V6(v4.to_ipv6_mapped()),
            ip => ip,
        }
    }
}

impl Socket for Xdp {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn max_segments(&self, largest: usize) -> usize {
        self.kernel.max_segments(largest)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, transmit: &Transmit, bytes: &[u8]) -> Poll<Result<(), SendFailure>> {
        let Some((envelope, way)) = self.envelope(transmit) else { return self.kernel.poll_send(cx, transmit, bytes) };
        let Some(queue) = self.queues.first_mut() else { return self.kernel.poll_send(cx, transmit, bytes) };
        let segment = transmit.segment_size.unwrap_or(bytes.len()).max(1);
        if segment.min(bytes.len()) + envelope.headers() > way.mtu {
            return Poll::Ready(Err(SendFailure::TooLong));
        }
        let datagrams = bytes.chunks(segment);
        if !queue.has_room(datagrams.len()) {
            // The kernel tells nobody that a frame was sent, so the task asks again after others had a turn.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let unfit = datagrams.filter(|datagram| !queue.put(&envelope, datagram)).count();
        queue.flush();
        Poll::Ready(if unfit == 0 { Ok(()) } else { Err(SendFailure::Other) })
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, asks: bool) -> Poll<io::Result<()>> {
        let from_kernel = self.kernel.poll_receive(cx, asks);
        self.is_from_kernel = matches!(from_kernel, Poll::Ready(Ok(())));
        let mut ready = from_kernel;
        self.is_drained = self.kernel.is_drained();
        for queue in &mut self.queues {
            match queue.poll_receive(cx) {
                Poll::Ready(Ok(())) => (ready, self.is_drained) = (Poll::Ready(Ok(())), false),
                Poll::Ready(Err(error)) if !matches!(ready, Poll::Ready(Ok(()))) => ready = Poll::Ready(Err(error)),
                // Its ring is empty.
                _ => {}
            }
        }
        ready
    }

    fn is_drained(&self) -> bool {
        self.is_drained
    }

    fn take(&mut self, each: &mut dyn FnMut(Train<'_>)) {
        if std::mem::take(&mut self.is_from_kernel) {
            self.kernel.take(each);
        }
        let mut queues = std::mem::take(&mut self.queues);
        let tell_address = self.local.ip().is_unspecified();
        for queue in &mut queues {
            queue.take(|envelope, datagram| {
                let length = datagram.len().max(1);
                each(Train {
                    from: SocketAddr::new(self.as_shown(envelope.from.ip()), envelope.from.port()),
                    to: Some(self.as_shown(envelope.to.ip())).filter(|_| tell_address),
                    ecn: envelope.ecn,
                    stamp: None,
                    dropped: 0,
                    datagrams: datagram.chunks_mut(length),
                });
            });
        }
        self.queues = queues;
    }
}
