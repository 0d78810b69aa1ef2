//! The kernel's UDP socket: many datagrams per system call, each with its ECN mark and, on Linux, its time of
//! arrival.
//!
//! One implementation of [`Socket`]; the other one keeps a socket of this kind for what does not pass its
//! interface. Invariant: no call blocks.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quinn_udp::{BATCH_SIZE, EcnCodepoint, UdpSocketState};
use tidewire_proto::connection::{SendFailure, Transmit};
use tidewire_proto::path::Ecn;

use self::readiness::Registered;
use super::{Socket, Train};

#[cfg(any(target_os = "linux", target_os = "android"))]
mod messages;
#[cfg(any(test, not(any(target_os = "linux", target_os = "android"))))]
mod portable;
mod readiness;
#[cfg(target_os = "linux")]
mod steering;

#[cfg(any(target_os = "linux", target_os = "android"))]
use messages as system;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
use portable as system;

/// Size of each socket buffer that we ask for. A burst of 4 MiB is 30 ms at 1 Gbit/s.
const SOCKET_BUFFER: usize = 4 << 20;
const LEAST_SOCKET_BUFFER: usize = 256 << 10;
/// Largest UDP payload, which is also the maximum size of the datagrams that the kernel joins.
const LARGEST: usize = 65_535;
/// Bytes of the IPv4 and UDP headers. The kernel accepts no train that is longer than `LARGEST` with them.
const HEADERS: usize = 28;
/// The error "message too long" of the system's `errno.h` (WSAEMSGSIZE on Windows).
const EMSGSIZE: i32 = if cfg!(any(target_os = "linux", target_os = "android")) {
    90
} else if cfg!(windows) {
    10_040
} else {
    40
};

/// Whether the system distributes datagrams over sockets of one address. SO_REUSEPORT does so on Linux since
/// 3.9; other systems give all datagrams to one socket.
const SPREADS: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// The socket with its inbox; see the module.
pub(crate) struct Kernel {
    udp: Udp,
    inbox: Inbox,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.udp.fmt(f)
    }
}

impl Kernel {
    /// Binds a socket. Needs a runtime with I/O enabled. An IPv6 wildcard also accepts IPv4.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::from(Udp::bind(address)?))
    }

    /// Binds several sockets to one address. The kernel gives a datagram to the one whose place in the list
    /// is the shard that the connection id names; if it cannot, to one for each sender. Returns one socket if
    /// the system does not support several.
    pub fn bind_group(address: SocketAddr, sockets: usize) -> io::Result<Vec<Self>> {
        Ok(Udp::bind_group(address, sockets, steer)?.into_iter().map(Self::from).collect())
    }

    /// The same, with a kernel that does not choose by the id.
    #[cfg(test)]
    pub fn bind_unsteered(address: SocketAddr, sockets: usize) -> io::Result<Vec<Self>> {
        let refuse = |_: &_, _| Err(io::ErrorKind::Unsupported.into());
        Ok(Udp::bind_group(address, sockets, refuse)?.into_iter().map(Self::from).collect())
    }
}

impl From<Udp> for Kernel {
    fn from(udp: Udp) -> Self {
        Self { udp, inbox: Inbox::new() }
    }
}

impl Socket for Kernel {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    fn is_steered(&self) -> bool {
        self.udp.is_steered
    }

    fn max_segments(&self, largest: usize) -> usize {
        self.udp.max_segments(largest)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, transmit: &Transmit, bytes: &[u8]) -> Poll<Result<(), SendFailure>> {
        self.udp.poll_send(cx, transmit, bytes)
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, asks: bool) -> Poll<io::Result<()>> {
        self.udp.poll_receive(cx, &mut self.inbox, asks)
    }

    fn is_drained(&self) -> bool {
        self.inbox.drained
    }

    fn take(&mut self, each: &mut dyn FnMut(Train<'_>)) {
        self.inbox.trains().for_each(each);
    }
}

/// The socket of the system.
#[derive(Debug)]
pub(crate) struct Udp {
    io: Registered,
    state: UdpSocketState,
    /// True if datagrams may be addressed to any address of the host. The destination address is then
    /// reported.
    wildcard: bool,
    /// See [`Socket::is_steered`].
    is_steered: bool,
    #[cfg(test)]
    pub schedule: crate::tests::refusals::Schedule,
}

impl Udp {
    /// See [`Kernel::bind`].
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::open(address, false)
    }

    /// See [`Kernel::bind_group`].
    fn bind_group(
        address: SocketAddr,
        sockets: usize,
        steer: impl Fn(&readiness::Socket, u16) -> io::Result<()>,
    ) -> io::Result<Vec<Self>> {
        // Only the first socket decides whether the port is free, so we never join the group of another
        // program.
        let first = Self::open(address, false)?;
        let address = first.local_addr()?;
        let mut group = vec![first];
        if SPREADS && sockets > 1 {
            share_port(&socket2::SockRef::from(group[0].io.socket()))?;
            while group.len() < sockets {
                group.push(Self::open(address, true)?);
            }
            // The kernel counts the sockets in the order in which they joined, which is that of the list.
            let count = u16::try_from(group.len()).map_err(io::Error::other)?;
            match steer(group[0].io.socket(), count) {
                Ok(()) => group.iter_mut().for_each(|socket| socket.is_steered = true),
                Err(error) => tracing::info!("the kernel does not choose sockets by connection id: {error}"),
            }
        }
        Ok(group)
    }

    fn open(address: SocketAddr, shared: bool) -> io::Result<Self> {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(address),
            socket2::Type::DGRAM,
            Some(socket2::Protocol::UDP),
        )?;
        if address.ip() == Ipv6Addr::UNSPECIFIED {
            socket.set_only_v6(false)?;
        }
        enlarge(|bytes| socket.set_recv_buffer_size(bytes));
        enlarge(|bytes| socket.set_send_buffer_size(bytes));
        if shared {
            share_port(&socket)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        let io = Registered::new(socket.into())?;
        let state = UdpSocketState::new(io.socket().into())?;
        system::ask_for_times(io.socket());
        system::ask_for_drops(io.socket());
        let wildcard = address.ip().is_unspecified();
        Ok(Self {
            io,
            state,
            wildcard,
            is_steered: false,
            #[cfg(test)]
            schedule: Default::default(),
        })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.socket().local_addr()
    }

    /// Maximum number of segments of at most `largest` bytes that one system call sends.
    pub fn max_segments(&self, largest: usize) -> usize {
        self.state.max_gso_segments().min((LARGEST - HEADERS) / largest).max(1)
    }

    /// Sends one batch. An error says why the system refused it; the batch is then lost.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        transmit: &Transmit,
        bytes: &[u8],
    ) -> Poll<Result<(), SendFailure>> {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.map(codepoint),
            contents: bytes,
            segment_size: transmit.segment_size,
            src_ip: transmit.source,
        };
        let sent = self.io.poll_send(cx, |socket| {
            #[cfg(test)]
            if let Some(errno) = self.schedule.call() {
                return Err(io::Error::from_raw_os_error(errno));
            }
            self.state.try_send(socket.into(), &transmit)
        });
        sent.map_err(|error| match error.raw_os_error() {
            Some(EMSGSIZE) => SendFailure::TooLong,
            // The socket is not connected and asks for no ICMP errors, so nobody else makes these.
            _ => match error.kind() {
                io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => SendFailure::NoRoute,
                io::ErrorKind::PermissionDenied => SendFailure::NotPermitted,
                _ => SendFailure::Other,
            },
        })
    }

    /// Fills the inbox; see [`Socket::poll_receive`].
    pub fn poll_receive(&self, cx: &mut Context<'_>, inbox: &mut Inbox, asks: bool) -> Poll<io::Result<()>> {
        (inbox.filled, inbox.tell_address, inbox.drained) = (0, self.wildcard, false);
        loop {
            let asks = asks && !inbox.drained;
            let Inbox { buffers, meta, receiver, filled, .. } = inbox;
            let receive = |socket: &_| receiver.receive(socket, &self.state, buffers, meta, filled);
            match ready!(self.io.poll_receive(cx, asks, receive)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    inbox.drained = true;
                    if inbox.filled > 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                received => return Poll::Ready(received),
            }
        }
    }
}

/// Asks for a large buffer, and for less if that is refused. A small buffer works too.
fn enlarge(set: impl Fn(usize) -> io::Result<()>) {
    let mut bytes = SOCKET_BUFFER;
    while set(bytes).is_err() && bytes > LEAST_SOCKET_BUFFER {
        bytes /= 2;
    }
}

/// Allows other sockets of this user to have the same address.
#[cfg_attr(not(unix), expect(unused_variables, reason = "no group has more than one socket"))]
fn share_port(socket: &socket2::Socket) -> io::Result<()> {
    #[cfg(unix)]
    socket.set_reuse_port(true)?;
    Ok(())
}

/// Lets the kernel choose among so many sockets of one address; see [`Kernel::bind_group`].
fn steer(socket: &readiness::Socket, sockets: u16) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return steering::by_id(socket, sockets);
    #[cfg(not(target_os = "linux"))]
    return Err(io::Error::new(io::ErrorKind::Unsupported, format!("not with {sockets} sockets of {socket:?}")));
}

fn codepoint(mark: Ecn) -> EcnCodepoint {
    match mark {
        Ecn::Ect0 => EcnCodepoint::Ect0,
        Ecn::Ect1 => EcnCodepoint::Ect1,
        Ecn::Ce => EcnCodepoint::Ce,
    }
}

fn mark(codepoint: EcnCodepoint) -> Ecn {
    match codepoint {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
}

/// Buffers for received datagrams. Each buffer holds the joined datagrams of one sender. Pages that are never
/// used cost nothing.
pub(crate) struct Inbox {
    buffers: [Box<[u8]>; BATCH_SIZE],
    meta: [Meta; BATCH_SIZE],
    receiver: system::Receiver,
    filled: usize,
    /// Whether the last call found the socket empty.
    drained: bool,
    /// Whether to report the address that a datagram was sent to.
    tell_address: bool,
}

/// What the kernel says about the contents of a buffer.
#[derive(Clone, Copy, Debug)]
struct Meta {
    from: SocketAddr,
    to: Option<IpAddr>,
    ecn: Option<EcnCodepoint>,
    len: usize,
    /// Length of each datagram but the last.
    stride: usize,
    stamp: Option<Duration>,
    /// Datagrams that the full socket dropped before.
    dropped: u32,
}

impl Default for Meta {
    fn default() -> Self {
        let from = (Ipv6Addr::UNSPECIFIED, 0).into();
        Self { from, to: None, ecn: None, len: 0, stride: 0, stamp: None, dropped: 0 }
    }
}

impl Inbox {
    pub fn new() -> Self {
        Self {
            buffers: std::array::from_fn(|_| vec![0; LARGEST].into_boxed_slice()),
            meta: [Meta::default(); BATCH_SIZE],
            receiver: system::Receiver::new(),
            filled: 0,
            drained: false,
            tell_address: false,
        }
    }

    /// The datagrams of the last call.
    pub fn trains(&mut self) -> impl Iterator<Item = Train<'_>> {
        let tell_address = self.tell_address;
        self.buffers.iter_mut().zip(&self.meta).take(self.filled).map(move |(buffer, meta)| Train {
            from: meta.from,
            to: meta.to.filter(|_| tell_address),
            ecn: meta.ecn.map(mark),
            stamp: meta.stamp,
            dropped: meta.dropped,
            datagrams: buffer[..meta.len].chunks_mut(meta.stride.max(1)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::SystemTime;

    /// A datagram as it came: its mark, its stamp and its bytes.
    type Came = (Option<Ecn>, Option<Duration>, Vec<u8>);

    /// Sends and receives through the sockets.
    async fn exchange(transmit: &Transmit, bytes: &[u8], from: &mut Udp, to: &Udp) -> Vec<Came> {
        assert_eq!(poll_fn(|cx| from.poll_send(cx, transmit, bytes)).await, Ok(()));
        let (mut inbox, mut received) = (Inbox::new(), Vec::new());
        while total(&received) < bytes.len() {
            poll_fn(|cx| to.poll_receive(cx, &mut inbox, false)).await.expect("receives");
            for train in inbox.trains() {
                received.extend(train.datagrams.map(|datagram| (train.ecn, train.stamp, datagram.to_vec())));
            }
        }
        received
    }

    /// Sends through the sockets and receives as systems other than Linux do.
    async fn exchange_portably(transmit: &Transmit, bytes: &[u8], from: &mut Udp, to: &Udp) -> Vec<Came> {
        assert_eq!(poll_fn(|cx| from.poll_send(cx, transmit, bytes)).await, Ok(()));
        let (mut inbox, mut receiver, mut received) = (Inbox::new(), portable::Receiver::new(), Vec::new());
        // A time would take the space of the mark.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        messages::refuse_times(to.io.socket());
        while total(&received) < bytes.len() {
            let Inbox { buffers, meta, filled, .. } = &mut inbox;
            let got = poll_fn(|cx| {
                to.io.poll_receive(cx, false, |socket| receiver.receive(socket, &to.state, buffers, meta, filled))
            });
            if got.await.is_ok() {
                for train in inbox.trains() {
                    received.extend(train.datagrams.map(|datagram| (train.ecn, train.stamp, datagram.to_vec())));
                }
            }
        }
        received
    }

    fn total(received: &[Came]) -> usize {
        received.iter().map(|(.., datagram)| datagram.len()).sum()
    }

    /// Pairs of sockets of all kinds, and the address of the second.
    fn pairs() -> impl Iterator<Item = (Udp, Udp, SocketAddr)> {
        let kinds = [("127.0.0.1", "127.0.0.1"), ("[::1]", "[::1]"), ("[::]", "[::1]"), ("[::]", "[::ffff:127.0.0.1]")];
        let any = ("0.0.0.0", "127.0.0.1");
        kinds.into_iter().chain([any]).filter_map(|(host, via)| {
            let bind = || Udp::bind(format!("{host}:0").parse().expect("an address"));
            let (Ok(from), Ok(to)) = (bind(), bind()) else {
                println!("skipped: no IPv6 here");
                return None;
            };
            let port = to.local_addr().expect("bound").port();
            Some((from, to, format!("{via}:{port}").parse().expect("an address")))
        })
    }

    #[tokio::test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    async fn marks_times_and_borders_of_datagrams_survive() {
        let bytes: Vec<u8> = (0..3_100_u16).map(|n| n as u8).collect();
        let today = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        for (mut from, to, destination) in pairs() {
            assert!(from.max_segments(1_000) >= 4, "Linux segments UDP since 4.18");
            // A call with all control messages after one without: none gets less space.
            for ecn in [None, Some(Ecn::Ect0), Some(Ecn::Ect1), Some(Ecn::Ce)] {
                let transmit = Transmit { destination, source: None, ecn, len: bytes.len(), segment_size: Some(1_000) };
                let began = today();
                let came = exchange(&transmit, &bytes, &mut from, &to).await;
                assert!(came.iter().map(|(.., datagram)| &datagram[..]).eq(bytes.chunks(1_000)), "{destination}");
                for (mark, stamp, _) in came {
                    assert_eq!(mark, ecn, "{destination}");
                    // The kernel may count in coarser steps than the clock.
                    let stamp = stamp.expect("a time");
                    assert!(stamp + Duration::from_millis(1) >= began && stamp <= today(), "{destination}: {stamp:?}");
                }
                let came = exchange_portably(&transmit, &bytes, &mut from, &to).await;
                assert!(came.iter().map(|(.., datagram)| &datagram[..]).eq(bytes.chunks(1_000)), "{destination}");
                assert!(came.iter().all(|&(mark, stamp, _)| mark == ecn && stamp.is_none()), "{destination}");
                system::ask_for_times(to.io.socket());
            }
        }
    }

    #[tokio::test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    async fn many_messages_come_in_one_call_each_with_its_own_mark_and_address() {
        for (mut from, to, destination) in pairs() {
            let marks = [Some(Ecn::Ect0), None, Some(Ecn::Ce), Some(Ecn::Ect1)];
            for (n, &ecn) in marks.iter().enumerate() {
                let transmit = Transmit { destination, source: None, ecn, len: 1, segment_size: None };
                assert_eq!(poll_fn(|cx| from.poll_send(cx, &transmit, &[n as u8])).await, Ok(()));
            }
            let mut inbox = Inbox::new();
            poll_fn(|cx| to.poll_receive(cx, &mut inbox, false)).await.expect("receives");
            let sender = from.local_addr().expect("bound").port();
            let mut came = Vec::new();
            for train in inbox.trains() {
                assert_eq!((train.from.ip(), train.from.port()), (destination.ip(), sender));
                assert_eq!(train.to, to.wildcard.then_some(destination.ip()));
                came.extend(train.datagrams.map(|datagram| (train.ecn, datagram.to_vec())));
            }
            let sent = marks.iter().enumerate().map(|(n, &ecn)| (ecn, vec![n as u8]));
            assert_eq!(came, sent.collect::<Vec<_>>(), "{destination}");
            // The call has found the socket empty and says so without another.
            assert!(poll_fn(|cx| Poll::Ready(to.poll_receive(cx, &mut inbox, false).is_pending())).await);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_sent_is_lost_and_the_next_goes() {
        let bind = || Udp::bind("127.0.0.1:0".parse().expect("an address")).expect("binds");
        let (mut from, to) = (bind(), bind());
        let destination = "[2001:db8::1]:7700".parse().expect("an address");
        let transmit = Transmit { destination, source: None, ecn: None, len: 1, segment_size: None };
        let refused = poll_fn(|cx| from.poll_send(cx, &transmit, b"x")).await;
        assert_eq!(refused, Err(SendFailure::Other), "IPv6 from an IPv4 socket");
        let transmit = Transmit { destination: to.local_addr().expect("bound"), ..transmit };
        let came = exchange(&transmit, b"y", &mut from, &to).await;
        assert_eq!(came.into_iter().map(|(mark, _, bytes)| (mark, bytes)).collect::<Vec<_>>(), [(None, b"y".to_vec())]);
        let came = exchange_portably(&transmit, b"z", &mut from, &to).await;
        assert_eq!(came, [(None, None, b"z".to_vec())]);
    }
}
