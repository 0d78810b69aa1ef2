//! What carries the stream: `tidewire live`, SRT, RIST, or nothing but UDP. Starts its two ends.
//!
//! [`super::run`] starts the far end, then the link before it, then the near end. SRT and RIST are given the
//! settings with which they can win: the payload size of the stream, buffers for the whole latency, and for
//! the filter of SRT its own advice. Invariant: the processes end when [`Far`] and [`Near`] are dropped.

use crate::figures::process::Process;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A carrier with its settings.
#[derive(Clone, Copy, PartialEq)]
pub enum Carrier {
    /// `tidewire live` with this latency in milliseconds, and further options of the sender.
    Tidewire(u64, &'static [&'static str]),
    /// `srt-live-transmit` with this latency, without or with its filter of row and column parities.
    Srt(u64, bool),
    /// `ristsender` and `ristreceiver` of the main profile, with this buffer.
    Rist(u64),
    /// UDP alone.
    Udp,
}

/// A running far end.
pub struct Far {
    /// Where the link leads to.
    pub target: String,
    link: Option<String>,
    process: Option<Process>,
}

impl Far {
    /// How late datagrams left our output, from the newest report: p50, p99 and the most, in milliseconds.
    pub fn output(&mut self) -> Option<[f64; 3]> {
        let played = self.process.as_mut()?.newest("played")?;
        let of = |what: &str| played.number(&format!("/jitter_ms/{what}")).ok();
        Some([of("p50")?, of("p99")?, of("max")?])
    }
}

/// A running near end.
pub struct Near {
    /// Where the stream is to be sent to.
    pub entry: SocketAddr,
    process: Option<Process>,
}

impl Near {
    /// The newest bitrate that our sender has told, if it told one since the last call.
    pub fn target(&mut self) -> Option<f64> {
        self.process.as_mut()?.newest("target")?.number("/bitrate_bps").ok()
    }
}

impl Carrier {
    /// All carriers of a row, ours first.
    pub fn all(budget_ms: u64) -> Vec<Self> {
        let mut all = vec![Self::Tidewire(budget_ms, &[])];
        for latency in [budget_ms, 120, 240, 500] {
            all.extend([Self::Srt(latency, false), Self::Srt(latency, true)]);
        }
        all.extend([Self::Rist(budget_ms), Self::Rist(240), Self::Udp]);
        all
    }

    pub fn name(self) -> String {
        match self {
            Self::Tidewire(_, []) => "`tidewire live`".into(),
            Self::Tidewire(_, options) => format!("`tidewire live {}`", options.join(" ")),
            Self::Srt(_, false) => "SRT".into(),
            Self::Srt(_, true) => "SRT with FEC".into(),
            Self::Rist(_) => "RIST".into(),
            Self::Udp => "UDP".into(),
        }
    }

    pub fn latency_ms(self) -> Option<u64> {
        match self {
            Self::Tidewire(latency, _) | Self::Srt(latency, _) | Self::Rist(latency) => Some(latency),
            Self::Udp => None,
        }
    }

    /// Starts the far end, which sends the stream to `player`.
    pub fn start_far(self, binary: &Path, player: SocketAddr, deadline: Instant) -> Result<Far, String> {
        let target = free_address()?;
        let port = target.port();
        let (link, process) = match self {
            Self::Tidewire(latency, _) => {
                let mut command = Command::new(binary);
                command.args(["live", "tidewire://127.0.0.1:0", &format!("udp://{player}"), "--json", "--once"]);
                let mut process = Process::start("the receiver", command.args(latency_of(latency)))?;
                let link = process.wait_for("link", deadline)?.text("/link")?.to_owned();
                (Some(link), Some(process))
            }
            Self::Srt(latency, fec) => {
                let mut command = Command::new("srt-live-transmit");
                let from = format!("srt://127.0.0.1:{port}?mode=listener&{}", srt_settings(latency, fec));
                command.args(["-q", CHUNK, &from, &format!("udp://{player}")]);
                (None, Some(quiet("srt-live-transmit", &mut command)?))
            }
            Self::Rist(latency) => {
                let mut command = Command::new("ristreceiver");
                let from = format!("rist://@127.0.0.1:{port}?{}", rist_settings(latency));
                command.args(["-v", "3", "-p", "1", "-i", &from, "-o", &format!("udp://{player}")]);
                (None, Some(quiet("ristreceiver", &mut command)?))
            }
            Self::Udp => return Ok(Far { target: player.to_string(), link: None, process: None }),
        };
        let own = link.as_deref().and_then(|link| Some(link.strip_prefix("tidewire://")?.split_once('/')?.0));
        Ok(Far { target: own.map_or_else(|| target.to_string(), str::to_owned), link, process })
    }

    /// Starts the near end, which reaches the far one through the link at `through`.
    pub fn start_near(self, binary: &Path, far: &Far, through: &str, deadline: Instant) -> Result<Near, String> {
        let entry = free_address()?;
        let process = match self {
            Self::Tidewire(latency, options) => {
                let link = far.link.as_deref().ok_or("the receiver printed no link")?;
                let link = link.replacen(&far.target, through, 1);
                let mut command = Command::new(binary);
                command.args(["live", &format!("udp://{entry}"), &link, "--json"]).args(options);
                let mut process = Process::start("the sender", command.args(latency_of(latency)))?;
                process.wait_for("session", deadline)?;
                process
            }
            Self::Srt(latency, fec) => {
                let mut command = Command::new("srt-live-transmit");
                let to = format!("srt://{through}?mode=caller&{}", srt_settings(latency, fec));
                command.args(["-q", CHUNK, &format!("udp://{entry}"), &to]);
                quiet("srt-live-transmit", &mut command)?
            }
            Self::Rist(latency) => {
                let mut command = Command::new("ristsender");
                let to = format!("rist://{through}?{}", rist_settings(latency));
                command.args(["-v", "3", "-p", "1", "-i", &format!("udp://@{entry}"), "-o", &to]);
                quiet("ristsender", &mut command)?
            }
            Self::Udp => {
                let entry = through.parse().map_err(|_| format!("{through} is no address"))?;
                return Ok(Near { entry, process: None });
            }
        };
        if self.latency_ms().is_some() {
            // SRT and RIST do not tell when they are connected; the first seconds are not counted.
            thread::sleep(CONNECTING);
        }
        Ok(Near { entry, process: Some(process) })
    }
}

/// Bytes that `srt-live-transmit` reads at once: a datagram of the stream.
const CHUNK: &str = "-chunk:1316";
/// Time for two ends to connect.
const CONNECTING: Duration = Duration::from_secs(2);

fn latency_of(milliseconds: u64) -> [String; 2] {
    ["--latency".into(), format!("{milliseconds}ms")]
}

/// The filter is the one that SRT's guide shows, with retransmission at once for what it cannot repair.
fn srt_settings(latency: u64, fec: bool) -> String {
    let filter = if fec { "&packetfilter=fec,cols:10,rows:5,arq:onreq" } else { "" };
    format!("latency={latency}&sndbuf=24000000&rcvbuf=24000000&fc=60000{filter}")
}

/// A constant buffer, and the round trips that the link has.
fn rist_settings(latency: u64) -> String {
    format!("buffer={latency}&rtt-min=60&rtt-max=200&bandwidth=25000")
}

/// Starts a program that has nothing to say.
fn quiet(name: &'static str, command: &mut Command) -> Result<Process, String> {
    Process::start(name, command.stderr(Stdio::null()))
}

/// An address of this machine that no other program uses.
fn free_address() -> Result<SocketAddr, String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    socket.local_addr().map_err(|e| e.to_string())
}
