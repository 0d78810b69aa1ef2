//! The inputs of a sender: a thread for each, which stamps datagrams as they come and feeds them.
//!
//! [`super::sender`] starts them. Invariant: the datagrams of a socket keep their boundaries; the packets of
//! a byte stream are grouped by seven.

use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tidewire_proxy::punctual::be_prompt;
use tokio::sync::mpsc;

use super::event::Event;
use super::feed::Feed;
use super::place::{Network, Place};
use super::refusals::Refusals;
use super::rtp::Timeline;
use super::ts::{PACKET, Pacer};

/// MPEG-TS packets in a datagram made from a byte stream: as many as fit into 1,500 bytes, as all tools do.
const GROUP: usize = 7;
/// Longest datagram of UDP.
const LONGEST: usize = 65_535;
/// Pause before a pipe without bytes, or a socket that fails, is asked again. Chosen: less than a hundredth
/// of the default latency.
const PAUSE: Duration = Duration::from_millis(1);
/// Receive buffer of a socket. Chosen: 100 ms at 200 Mbit/s.
const BUFFER: usize = 4 << 20;

/// An input that was opened.
#[derive(Debug)]
pub struct Input {
    name: String,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// Datagrams.
    Socket(UdpSocket, Option<Timeline>),
    /// Bytes that come in time by themselves.
    Stream(Box<dyn ReadSend>),
    /// A file, which is read in time with its clock.
    File(File),
}

/// What a stream of bytes is read from.
trait ReadSend: Read + Send + std::fmt::Debug {}

impl<R: Read + Send + std::fmt::Debug> ReadSend for R {}

impl Input {
    /// Opens the input at a place.
    ///
    /// # Errors
    /// The address is in use, the group cannot be joined, or the file cannot be opened.
    pub fn open(place: &Place) -> io::Result<Self> {
        let source = match place {
            Place::Network(network) => Source::Socket(bind(network)?, network.rtp.map(Timeline::new)),
            Place::File(path) => Source::File(File::open(path)?),
            Place::Standard => Source::Stream(Box::new(io::stdin())),
        };
        Ok(Self { name: place.to_string(), source })
    }

    /// An input of MPEG-TS packets that come in time by themselves, with a name for errors. It is read from
    /// the first receiver on.
    pub fn reader(name: &str, from: impl Read + Send + std::fmt::Debug + 'static) -> Self {
        Self { name: name.to_owned(), source: Source::Stream(Box::new(from)) }
    }

    /// Feeds the datagrams of a program in a thread of its own, and tells what happens. The channel of `tell`
    /// is closed after the end of all inputs.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(self, program: u8, feed: Arc<Feed>, tell: mpsc::Sender<Event>) -> io::Result<()> {
        thread::Builder::new().name(format!("input {program}")).spawn(move || {
            be_prompt();
            let Self { name, source } = self;
            if let Err(error) = source.run(&name, program, &feed, &tell) {
                // Where nobody listens any more, the process ends.
                let _ = tell.blocking_send(Event::InputFailed { name, error });
            }
        })?;
        Ok(())
    }
}

impl Source {
    fn run(self, name: &str, program: u8, feed: &Feed, tell: &mpsc::Sender<Event>) -> io::Result<()> {
        match self {
            Self::Socket(socket, timeline) => {
                let refused = |error| {
                    // Where the channel is full, something was said already.
                    let _ = tell.try_send(Event::Refused { name: name.to_owned(), error });
                };
                datagrams(program, &socket, timeline, feed, refused)
            }
            Self::Stream(mut from) => {
                feed.wait_for_receiver();
                groups(&mut from, |group| feed.send(program, Instant::now(), group))
            }
            Self::File(mut from) => {
                feed.wait_for_receiver();
                let mut pacer = Pacer::new(Instant::now());
                groups(&mut from, |group| {
                    let (mut due, now) = (pacer.due(group), Instant::now());
                    let behind = now.saturating_duration_since(due);
                    if behind > feed.latency() / 2 {
                        // The disk or this process stood still. What is late already would not be sent.
                        pacer.put_off(behind);
                        due = now;
                    }
                    thread::sleep(due.saturating_duration_since(now));
                    feed.send(program, due, group);
                })
            }
        }
    }
}

/// Feeds the datagrams of a socket, for ever. `refused` names what the system refuses.
fn datagrams<T>(
    program: u8,
    socket: &UdpSocket,
    mut timeline: Option<Timeline>,
    feed: &Feed,
    refused: impl Fn(io::Error),
) -> T {
    let (start, mut datagram) = (Instant::now(), vec![0; LONGEST]);
    let mut refusals = Refusals::default();
    loop {
        let length = match socket.recv(&mut datagram) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                if refusals.on_refusal(Instant::now()) {
                    refused(error);
                }
                thread::sleep(PAUSE);
                continue;
            }
        };
        refusals.on_success();
        let (now, packet) = (Instant::now(), &datagram[..length]);
        let Some(timeline) = &mut timeline else {
            feed.send(program, now, packet);
            continue;
        };
        let micros = micros(now - start);
        match timeline.read(micros, self::micros(feed.latency()), packet) {
            Some(read) => {
                let jitter = Duration::from_micros((micros - read.stamp).unsigned_abs());
                feed.on_packet(read.gap, read.is_late);
                feed.send(program, now.checked_sub(jitter).unwrap_or(now), packet);
            }
            None => feed.on_strange(),
        }
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Reads to the end, and gives the bytes on in groups of whole packets. The last group may be shorter.
fn groups(from: &mut impl Read, mut give: impl FnMut(&[u8])) -> io::Result<()> {
    let (mut group, mut length) = ([0; GROUP * PACKET], 0);
    loop {
        match from.read(&mut group[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another program has made the pipe non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
        if length == group.len() {
            give(&group);
            length = 0;
        }
    }
    if length > 0 {
        give(&group[..length]);
    }
    Ok(())
}

/// Binds the socket of an input, and joins its group.
fn bind(network: &Network) -> io::Result<UdpSocket> {
    let Network { address, interface, .. } = *network;
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.ip().is_multicast() {
        // Several programs of a host may listen to one group.
        socket.set_reuse_address(true)?;
    }
    // The system may allow less.
    let _ = socket.set_recv_buffer_size(BUFFER);
    socket.bind(&address.into())?;
    let socket = UdpSocket::from(socket);
    match address {
        SocketAddr::V4(address) if address.ip().is_multicast() => {
            socket.join_multicast_v4(address.ip(), &interface.unwrap_or(Ipv4Addr::UNSPECIFIED))?;
        }
        SocketAddr::V6(address) if address.ip().is_multicast() => {
            socket.join_multicast_v6(address.ip(), address.scope_id())?;
        }
        _ => {}
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_bytes_becomes_groups_of_seven_packets_however_it_is_read() {
        let bytes: Vec<u8> = (0..20 * PACKET).map(|n| n as u8).collect();
        for step in [1, 100, PACKET, 4_000] {
            let mut from = Steps { bytes: &bytes, step, reads: 0 };
            let mut given = Vec::new();
            groups(&mut from, |group| given.push(group.to_vec())).unwrap();
            assert_eq!(given.iter().map(Vec::len).collect::<Vec<_>>(), [7 * PACKET, 7 * PACKET, 6 * PACKET]);
            assert_eq!(given.concat(), bytes);
        }
    }

    struct Steps<'a> {
        bytes: &'a [u8],
        step: usize,
        reads: usize,
    }

    impl Read for Steps<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.reads += 1;
            match self.reads % 4 {
                0 => return Err(io::ErrorKind::WouldBlock.into()),
                1 => return Err(io::ErrorKind::Interrupted.into()),
                _ => {}
            }
            let length = self.step.min(into.len()).min(self.bytes.len());
            into[..length].copy_from_slice(&self.bytes[..length]);
            self.bytes = &self.bytes[length..];
            Ok(length)
        }
    }
}
