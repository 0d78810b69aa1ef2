//! One video across the lab's link, and the buffer of its viewer over time: the same load and the same
//! playback as in the simulator, over real sockets and in real time.
//!
//! Experiments of `tidewire-papers` make a [`Showing`] for each transport: our library with any settings, or
//! kernel TCP with any of its congestion controls. Hosts and link are new in each. Sender and viewer run in a
//! thread each. Invariants: one clock tells when a frame may leave and when bytes arrived, in order; bytes
//! count only if they are those that were sent; times count from the moment at which the connection exists.
//!
//! ```no_run
//! use std::path::Path;
//! use std::time::Duration;
//! use tidewire_lab::video::{Showing, Transport};
//! use tidewire_sim::scenario::Scenario;
//! use tidewire_sim::video::{Synthetic, Video};
//!
//! let text = "[link]\nrate = \"30mbit\"\nrtt = \"10ms\"\nloss = \"2%\"\n";
//! let (link, time) = (Scenario::parse(text, Path::new("link.toml"))?.link, Duration::from_secs(60));
//! let video = Video::best_effort(Synthetic::new(20_000_000, 7).trace(time)?);
//! let shown = Showing { link, transport: Transport::Kernel("cubic".into()), video, time }.run()?;
//! for sample in &shown.viewing.samples {
//!     println!("{:.1} s: {:.1} s buffered", sample.at.as_secs_f64(), sample.buffered.as_secs_f64());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tidewire::{CloseCode, Config, Endpoint, Secret, new_secret};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::fill;
use tidewire_sim::pair::End;
use tidewire_sim::video::{Playback, Video, Viewing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep_until, timeout_at};

use crate::emulator::{Counts, Emulator};
use crate::hosts::Hosts;
use crate::opening::Sink;
use crate::pair::alone;
use crate::records::{PATIENCE, Way};
use crate::tcp::set_control;
use tidewire_proxy::punctual::be_punctual;

/// Bytes per call. Chosen: several packets, little compared to a second of a video.
const BLOCK: usize = 64 << 10;
/// The port of the viewer. The hosts are new, so it is free.
const PORT: u16 = 4_001;
/// Longest time to connect and to close. Chosen: a dozen retries of a handshake.
const CONNECTING: Duration = Duration::from_secs(20);

/// Longest run. Chosen: a day.
pub const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// What carries the video.
#[derive(Clone, Debug)]
pub enum Transport {
    /// One stream of our library, with the settings of the near and the far end.
    Ours(Box<[Config; 2]>),
    /// One connection of the kernel's TCP, with the congestion control of this name and the system's buffers.
    Kernel(String),
}

/// A video to be carried from the near host to the far one.
#[derive(Clone, Debug)]
pub struct Showing {
    /// The link, with its seed.
    pub link: DuplexConfig,
    /// What carries the video.
    pub transport: Transport,
    /// The frames, their pace, and the rules of playback.
    pub video: Video,
    /// The run ends after this time, or when everything has arrived.
    pub time: Duration,
}

/// The result of a showing.
#[derive(Clone, Debug)]
pub struct Shown {
    /// What the viewer has seen at the end of [`Showing::time`]. If everything arrived earlier, the rest of
    /// that time was computed: nothing could change any more.
    pub viewing: Viewing,
    /// Bytes that arrived.
    pub bytes: u64,
    /// When the last byte arrived; `None` if bytes were missing at the end.
    pub arrived: Option<Duration>,
    /// Counts of the link, from the first packet on.
    pub counts: Counts,
    /// Packets of either host that the emulator did not read in time. If there are any, the figures are void.
    pub unread: u64,
}

impl Showing {
    /// Shows the video in real time.
    ///
    /// # Errors
    /// Fails if the time is longer than [`LONGEST`], the hosts cannot be made, they do not connect, the
    /// connection is lost, or a wrong byte arrives.
    pub fn run(&self) -> anyhow::Result<Shown> {
        if self.time > LONGEST {
            bail!("a run of {} s is too long: choose at most {} s", self.time.as_secs(), LONGEST.as_secs());
        }
        let hosts = Hosts::start()?;
        let emulator = Emulator::start(hosts.device(End::Near)?, hosts.device(End::Far)?, &self.link)?;
        let viewer = match &self.transport {
            Transport::Ours(configs) => self.over_ours(&hosts, configs)?,
            Transport::Kernel(control) => {
                let sink = Sink::open(hosts.nodes(), End::Far as usize, PORT, true)?;
                let (near, far) =
                    sink.meet(hosts.nodes(), End::Near as usize, SocketAddrV4::new(hosts.address(End::Far), PORT))?;
                if let Way::Stream(near) = &near {
                    set_control(near, control)?;
                }
                self.over_sockets(&near, &far)?
            }
        };
        let counts = emulator.stop()?;
        let unread = hosts.unread(End::Near)? + hosts.unread(End::Far)?;
        let viewing = viewer.playback.viewing(self.time);
        Ok(Shown { viewing, bytes: viewer.bytes, arrived: viewer.arrived, counts, unread })
    }

    /// Runs both ends over the sockets of a connection.
    fn over_sockets(&self, near: &Way, far: &Way) -> anyhow::Result<Viewer> {
        near.set_patience()?;
        far.set_patience()?;
        let begin = Instant::now();
        let end = begin + self.time;
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || self.send(near, begin, end));
            let viewing = scope.spawn(move || self.view(far, begin, end));
            // A panic of either thread is passed on.
            let both = viewing.join().and_then(|viewer| Ok((viewer, sending.join()?)));
            let (viewer, sent) = both.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sent.context("the sender failed")?;
            viewer.context("the viewer failed")
        })
    }

    fn send(&self, to: &Way, begin: Instant, end: Instant) -> io::Result<()> {
        be_punctual();
        let mut source = Source::new(&self.video);
        loop {
            match source.next(begin.elapsed()) {
                Step::Done => return Ok(()),
                _ if Instant::now() >= end => return Ok(()),
                Step::Wait(until) => {
                    std::thread::sleep((begin + until).min(end).saturating_duration_since(Instant::now()));
                }
                // What is not accepted before the end does not arrive before it either.
                Step::Write(bytes) if !to.write(bytes, end)? => return Ok(()),
                Step::Write(_) => {}
            }
        }
    }

    fn view(&self, from: &Way, begin: Instant, end: Instant) -> io::Result<Viewer> {
        be_punctual();
        let mut viewer = Viewer::new(&self.video, begin);
        let mut block = vec![0; BLOCK];
        while viewer.arrived.is_none() && Instant::now() < end {
            match from.read(&mut block)? {
                Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Some(length) => viewer.take(&block[..length])?,
                None => {}
            }
        }
        Ok(viewer)
    }

    /// Runs both ends as endpoints of our library.
    fn over_ours(&self, hosts: &Hosts, [near, far]: &[Config; 2]) -> anyhow::Result<Viewer> {
        let secret = new_secret()?;
        let listen = SocketAddr::from((hosts.address(End::Far), 0));
        let (tell, told) = channel();
        let began = OnceLock::new();
        let limit = self.time + 2 * CONNECTING;
        let (sent, viewer) = std::thread::scope(|scope| {
            let (began, secret) = (&began, &secret);
            let receive = move || alone(limit, self.receive_ours((listen, secret, far), tell, began));
            let viewing = scope.spawn(move || hosts.inside(End::Far, receive)?);
            let sent = hosts.inside(End::Near, move || alone(limit, self.send_ours(told, secret, near, began)));
            let viewer = viewing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            anyhow::Ok((sent?, viewer))
        })?;
        // The error of one end is also the reason why the other end fails.
        match (viewer, sent) {
            (Ok(viewer), Ok(())) => Ok(viewer),
            (Err(viewer), Err(sent)) => bail!("the viewer: {viewer:#}; the sender: {sent:#}"),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    async fn send_ours(
        &self,
        told: Receiver<SocketAddr>,
        secret: &Secret,
        config: &Config,
        began: &OnceLock<Instant>,
    ) -> anyhow::Result<()> {
        be_punctual();
        let far = told.recv().context("the viewer does not listen")?;
        let endpoint = Endpoint::bind(SocketAddr::from(([0, 0, 0, 0], 0)), secret, config.clone())?;
        let connection = endpoint.connect(far).await?;
        let mut stream = connection.open().await?;
        let begin = *began.get_or_init(Instant::now);
        let end = begin + self.time;
        let mut source = Source::new(&self.video);
        loop {
            match source.next(begin.elapsed()) {
                Step::Done => {
                    // If the viewer has closed already, it has everything. If bytes are missing, it says so.
                    let _ = timeout_at(end.into(), stream.shutdown()).await;
                    break;
                }
                _ if Instant::now() >= end => break,
                Step::Wait(until) => sleep_until((begin + until).min(end).into()).await,
                Step::Write(bytes) => match timeout_at(end.into(), stream.write_all(bytes)).await {
                    Ok(Ok(())) => {}
                    // The viewer closes at the end of the time.
                    Ok(Err(error)) if Instant::now() + PATIENCE < end => return Err(error.into()),
                    Ok(Err(_)) | Err(_) => break,
                },
            }
        }
        // The viewer closes when it has everything, or at the end of the time.
        let _ = timeout_at((end + CONNECTING).into(), connection.closed()).await;
        Ok(())
    }

    async fn receive_ours(
        &self,
        (listen, secret, config): (SocketAddr, &Secret, &Config),
        tell: Sender<SocketAddr>,
        began: &OnceLock<Instant>,
    ) -> anyhow::Result<Viewer> {
        be_punctual();
        let endpoint = Endpoint::bind(listen, secret, config.clone())?;
        tell.send(endpoint.local_addr())?;
        let connection = endpoint.accept().await.context("the socket failed")?;
        let mut stream = connection.accept().await.context("the connection was lost")?;
        // A stream is here because the sender wrote, and the sender sets this before it writes.
        let begin = *began.wait();
        let end = begin + self.time;
        let mut viewer = Viewer::new(&self.video, begin);
        let mut block = vec![0; BLOCK];
        while viewer.arrived.is_none() {
            match timeout_at(end.into(), stream.read(&mut block)).await {
                Err(_) => break,
                Ok(Ok(0)) => bail!("the stream ended after {} bytes", viewer.bytes),
                Ok(length) => viewer.take(&block[..length?])?,
            }
        }
        connection.close(CloseCode::Done, "");
        endpoint.close().await;
        Ok(viewer)
    }
}

/// What a sender does next.
enum Step<'a> {
    /// It waits until this time since the start.
    Wait(Duration),
    /// It writes these bytes.
    Write(&'a [u8]),
    /// It has written everything.
    Done,
}

/// The bytes of a video, as its pace allows them.
struct Source<'a> {
    video: &'a Video,
    written: u64,
    block: Vec<u8>,
}

impl<'a> Source<'a> {
    fn new(video: &'a Video) -> Self {
        Self { video, written: 0, block: vec![0; BLOCK] }
    }

    /// The next step at `now`, since the start. Bytes of one answer count as written.
    fn next(&mut self, now: Duration) -> Step<'_> {
        let Some(due) = self.video.time_of(self.written) else { return Step::Done };
        if now < due {
            return Step::Wait(due);
        }
        let allowed = self.video.bytes_until(now).saturating_sub(self.written);
        let length = usize::try_from(allowed).unwrap_or(usize::MAX).min(BLOCK);
        fill(SEED, 0, self.written, &mut self.block[..length]);
        self.written += length as u64;
        Step::Write(&self.block[..length])
    }
}

/// The seed of the bytes of a video. Chosen: any will do, because both ends compute them.
const SEED: u64 = 1;

/// The end that receives a video.
#[derive(Debug)]
struct Viewer {
    playback: Playback,
    begin: Instant,
    bytes: u64,
    /// Bytes of the whole video.
    total: u64,
    /// When the last of them arrived.
    arrived: Option<Duration>,
    /// The correct bytes of a block.
    wanted: Vec<u8>,
}

impl Viewer {
    fn new(video: &Video, begin: Instant) -> Self {
        let (playback, total) = (video.playback(), video.trace.bytes());
        Self { playback, begin, bytes: 0, total, arrived: None, wanted: vec![0; BLOCK] }
    }

    /// Takes the next bytes, at most [`BLOCK`] of them.
    fn take(&mut self, block: &[u8]) -> io::Result<()> {
        let now = self.begin.elapsed();
        let wanted = &mut self.wanted[..block.len()];
        fill(SEED, 0, self.bytes, wanted);
        if wanted != block {
            let error = format!("what arrived behind byte {} is not what was sent", self.bytes);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        self.bytes += block.len() as u64;
        self.playback.on_bytes(now, block.len() as u64);
        if self.bytes >= self.total {
            self.arrived.get_or_insert(now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use tidewire_sim::video::{FrameTrace, Pace, PlaybackRules};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn ways() -> (Way, Way) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Way::Stream(near), Way::Stream(listener.accept().unwrap().0))
    }

    /// Three frames, 60 ms apart, which begin to play with the first of them.
    fn showing(pace: Pace, time: Duration) -> Showing {
        let trace = FrameTrace::parse("0 100000\n60 1000\n120 1000\n").unwrap();
        let rules = PlaybackRules { startup: ms(60), resume: ms(60), sample_every: ms(10) };
        let (link, transport) = (DuplexConfig::default(), Transport::Kernel("cubic".into()));
        Showing { link, transport, video: Video { trace: trace.into(), pace, rules }, time }
    }

    #[test]
    fn a_source_gives_what_its_pace_allows() {
        let live = showing(Pace::Live, ms(1)).video;
        let mut source = Source::new(&live);
        let mut steps = |now| match source.next(ms(now)) {
            Step::Done => (0, 0),
            Step::Wait(until) => (until.as_millis(), 0),
            Step::Write(bytes) => (0, bytes.len()),
        };
        assert_eq!([0, 0, 0].map(&mut steps), [(0, BLOCK), (0, 100_000 - BLOCK), (60, 0)]);
        assert_eq!([59, 130, 130].map(&mut steps), [(60, 0), (0, 2_000), (0, 0)]);
    }

    #[test]
    fn a_live_video_arrives_frame_by_frame() {
        let (near, far) = ways();
        let viewer = showing(Pace::Live, Duration::from_secs(20)).over_sockets(&near, &far).unwrap();
        assert_eq!((viewer.bytes, viewer.arrived.unwrap() >= ms(120)), (102_000, true));
        let viewing = viewer.playback.viewing(Duration::from_secs(20));
        assert_eq!((viewing.played, viewing.buffered()), (ms(180), ms(0)));
    }

    #[test]
    fn a_run_ends_with_its_time_and_the_rest_is_missing() {
        let (near, far) = ways();
        let viewer = showing(Pace::Live, ms(30)).over_sockets(&near, &far).unwrap();
        assert_eq!((viewer.bytes, viewer.arrived), (100_000, None));
    }

    #[test]
    fn wrong_bytes_and_an_early_end_are_errors() {
        let (near, far) = ways();
        let Way::Stream(stream) = near else { panic!("a stream") };
        let best_effort = showing(Pace::BestEffort, Duration::from_secs(20));
        std::io::Write::write_all(&mut &stream, &[0; 100]).unwrap();
        let (begin, end) = (Instant::now(), Instant::now() + Duration::from_secs(20));
        let wrong = best_effort.view(&far, begin, end).unwrap_err().to_string();
        assert_eq!(wrong, "what arrived behind byte 0 is not what was sent");
        drop(stream);
        assert_eq!(best_effort.view(&far, begin, end).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
