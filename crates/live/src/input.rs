//! The inputs of a sender: a thread for each, which stamps datagrams as they come and feeds them.
//!
//! [`super::sender`] starts them. Invariant: the datagrams of a socket keep their boundaries; the packets of
//! a byte stream are grouped by seven.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tidewire_proxy::punctual::be_prompt;
use tokio::sync::mpsc;

use super::event::Event;
use super::feed::Feed;
use super::membership::{Membership, bind};
use super::place::Place;
use super::refusals::Refusals;
use super::rtp::Timeline;
use super::ts::{PACKET, Pacer, is_stream};

/// MPEG-TS packets in a datagram made from a byte stream: as many as fit into 1,500 bytes, as all tools do.
const GROUP: usize = 7;
/// Longest datagram of UDP.
const LONGEST: usize = 65_535;
const NO_STREAM: &str = "it is no MPEG transport stream, and only such a stream can be sent: each 188 bytes have to begin \
                         with 0x47; `ffmpeg -i FILE -c copy -f mpegts OUT.ts` makes one";
/// Pause before a pipe without bytes, or a socket that fails, is asked again. Chosen: less than a hundredth
/// of the default latency.
const PAUSE: Duration = Duration::from_millis(1);

/// An input that was opened.
#[derive(Debug)]
pub struct Input {
    name: String,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// Datagrams.
    Socket(Receiving),
    /// Bytes that come in time by themselves.
    Stream(Box<dyn ReadSend>),
    /// A file, which is read in time with its clock.
    File(File),
}

/// A socket, and what is known about its datagrams.
#[derive(Debug)]
struct Receiving {
    socket: UdpSocket,
    membership: Option<Membership>,
    timeline: Option<Timeline>,
}

/// What a stream of bytes is read from.
trait ReadSend: Read + Send + std::fmt::Debug {}

impl<R: Read + Send + std::fmt::Debug> ReadSend for R {}

impl Input {
    /// Opens the input at a place.
    ///
    /// # Errors
    /// The address is in use, the group cannot be joined, or the file cannot be opened or is no transport
    /// stream.
    pub fn open(place: &Place) -> io::Result<Self> {
        let source = match place {
            Place::Network(network) => {
                let socket = bind(network)?;
                let membership = Membership::new(network, Instant::now());
                Source::Socket(Receiving { socket, membership, timeline: network.rtp.map(Timeline::new) })
            }
            Place::File(path) => Source::File(open(path)?),
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
            Self::Socket(socket) => {
                // Where the channel is full, something was said already.
                socket.run(program, feed, |said| drop(tell.try_send(said(name.to_owned()))))
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

impl Receiving {
    /// Feeds the datagrams, for ever. `tell` is given what to say, but the name of the input.
    fn run<T>(mut self, program: u8, feed: &Feed, tell: impl Fn(Said)) -> T {
        let (start, mut datagram) = (Instant::now(), vec![0; LONGEST]);
        let mut refusals = Refusals::default();
        loop {
            let received = self.socket.recv(&mut datagram);
            let now = Instant::now();
            if self.membership.as_mut().is_some_and(|membership| membership.renew(&mut self.socket, now)) {
                tell(Box::new(|name| Event::Rejoined { name }));
            }
            match received {
                Ok(length) => {
                    refusals.on_success();
                    self.feed(program, feed, (start, now), &datagram[..length]);
                }
                Err(error) if is_nothing(&error) => {}
                Err(error) => {
                    if refusals.on_refusal(now) {
                        tell(Box::new(|name| Event::Refused { name, error }));
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    fn feed(&mut self, program: u8, feed: &Feed, (start, now): (Instant, Instant), packet: &[u8]) {
        let Some(timeline) = &mut self.timeline else {
            feed.send(program, now, packet);
            return;
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

/// An event of the input with a name.
type Said = Box<dyn FnOnce(String) -> Event>;

/// Whether nothing came for a while.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Opens a file. A plain one is looked into; anything else shows what it is when it is read.
fn open(path: &Path) -> io::Result<File> {
    let mut file = File::open(path)?;
    if file.metadata()?.is_file() {
        groups(&mut (&file).take((GROUP * PACKET) as u64), |_| {})?;
        file.rewind()?;
    }
    Ok(file)
}

/// Reads to the end, and gives the bytes on in groups of whole packets. The last group may be shorter.
///
/// # Errors
/// The file cannot be read, or the first group is not of a transport stream.
fn groups(from: &mut impl Read, mut give: impl FnMut(&[u8])) -> io::Result<()> {
    let (mut group, mut length) = ([0; GROUP * PACKET], 0);
    let mut is_first = true;
    let mut give = move |group: &[u8]| {
        if std::mem::take(&mut is_first) && !is_stream(group) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, NO_STREAM));
        }
        give(group);
        Ok(())
    };
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
            give(&group)?;
            length = 0;
        }
    }
    if length > 0 {
        give(&group[..length])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_bytes_becomes_groups_of_seven_packets_however_it_is_read() {
        let bytes: Vec<u8> = (0..20 * PACKET).map(|n| if n % PACKET == 0 { 0x47 } else { n as u8 }).collect();
        for step in [1, 100, PACKET, 4_000] {
            let mut from = Steps { bytes: &bytes, step, reads: 0 };
            let mut given = Vec::new();
            groups(&mut from, |group| given.push(group.to_vec())).unwrap();
            assert_eq!(given.iter().map(Vec::len).collect::<Vec<_>>(), [7 * PACKET, 7 * PACKET, 6 * PACKET]);
            assert_eq!(given.concat(), bytes);
        }
    }

    #[test]
    fn a_file_that_is_no_transport_stream_is_refused_before_it_is_sent() {
        let folder = std::env::temp_dir().join(format!("tidewire-live-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (movie, stream) = (folder.join("movie.mp4"), folder.join("movie.ts"));
        std::fs::write(&movie, [b"\0\0\0\x1cftypisom".to_vec(), vec![0x47; 2_000]].concat()).unwrap();
        std::fs::write(&stream, [0x47; 2_000]).unwrap();
        let (refused, taken) = (open(&movie), open(&stream));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(refused.unwrap_err().to_string().contains("ffmpeg"));
        let mut whole = Vec::new();
        taken.unwrap().read_to_end(&mut whole).unwrap();
        assert_eq!(whole.len(), 2_000, "it is read from the beginning");
        // A pipe shows what it is when it is read, and nothing of it is given on.
        let ended = groups(&mut &b"no stream"[..], |_| panic!("given on"));
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidData);
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
