//! What if: a recorded flow over its recorded path, with other choices.
//!
//! [`Recorded`] gathers from the recording of a sending end what its application wrote, which packets were
//! lost and when, the queueing delay of its path, and what its rate control allowed. [`Recorded::replay`]
//! runs the real protocol with these inputs. `tidewire replay` calls it.
//!
//! The path of a replay is the recorded one, not a model of it:
//! - A packet that was sent in the recording too meets the fate that it met there, if that is at most
//!   [`NEAR`] away in time. A packet that is added is lost as the recorded packets around it suggest
//!   (`fates.rs`). So bursts and outages keep their places.
//! - Each packet takes half of the least round trip, and the queueing delay that was measured at its time.
//! - The sender may send what it was allowed at that time. A choice that needs more packets than that waits,
//!   as it would have then. It does not lengthen the queue of the path, which it would have.
//! - FEEDBACK meets the recorded losses of the peer's packets.

mod back;
mod budget;
mod channel;
mod fates;
mod gather;
mod process;

use core::time::Duration;
use std::sync::Arc;

use tidewire_proto::config::{Config, ConfigError};
use tidewire_proto::stats::{DelayHistogram, SymbolStats};
use tidewire_proto::trace::Choices;

use crate::duplex::DuplexConfig;
use crate::load::{Flow, Load};
use crate::pair::{BEGINNING, End};
use crate::report::{Run, Trial};
use crate::video::{Frame, FrameTrace, MOST_FRAMES, Video};

use back::Arrivals;
use fates::Packet;
pub use gather::{Gather, NoReplay};

/// A packet never meets a fate that was recorded earlier or later than this beside it. Chosen: longer than
/// most bursts, and short beside the time in which paths change.
pub const NEAR: Duration = Duration::from_millis(100);
/// Time for what is still missing when the recorded writes end. Chosen: the idle timeout.
const AFTERWARDS: Duration = Duration::from_secs(30);
/// A replay asks whether to go on after this much of the flow's time. Chosen: a few milliseconds of work.
const TOLD: Duration = Duration::from_millis(100);
/// Source of the randomness of endpoints and bytes, and of the fates of packets that were not recorded.
const SEED: u64 = 20;

/// A recorded packet that was sent: when, and whether it was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub at: Duration,
    pub lost: bool,
}

/// What rate control allowed from this time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub at: Duration,
    pub window: u64,
    /// Bits per second.
    pub pacing_bps: u64,
    /// Whether losses were taken for drops of a full queue.
    pub is_congested: bool,
}

/// A flow of one recorded connection. All times count from when the connection was made.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// How the sender coded.
    pub choices: Choices,
    /// Least round trip.
    pub least_rtt: Duration,
    /// Bytes that the application wrote.
    pub app_bytes: u64,
    /// Bytes of all packets, IP and UDP headers included.
    pub wire_bytes: u64,
    /// Number of packets that were lost, and of those whose fate is known.
    pub lost: (u64, u64),
    /// In-order delay of the source symbols, beyond the least one-way time: as the sender could tell it from
    /// FEEDBACK, until [`Self::delays_of`] replaces it.
    pub delay: DelayHistogram,
    /// Bytes of messages among `app_bytes`. A replay carries them in a stream.
    pub message_bytes: u64,
    writes: Vec<(Duration, u64)>,
    /// In the order of their numbers, and so of their times.
    packets: Vec<Packet>,
    /// Those whose fates are known.
    known: Vec<Sent>,
    /// When packets of the peer arrived.
    back: Arrivals,
    /// Time of sending, and queueing delay.
    queueing: Vec<(Duration, Duration)>,
    allowed: Vec<Allowed>,
    largest: u16,
}

/// The figures of a replay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Replayed {
    /// In-order delay of the source symbols at the receiver, beyond the least one-way time.
    pub delay: DelayHistogram,
    /// Bytes of the application that arrived.
    pub app_bytes: u64,
    /// Bytes of all packets of the sender, IP and UDP headers included.
    pub wire_bytes: u64,
    /// How the symbols became known.
    pub symbols: SymbolStats,
    /// Share of the packets that met a recorded loss.
    pub loss: f64,
    /// Whether all bytes arrived.
    pub done: bool,
}

impl Replayed {
    /// Bytes on the wire beyond those of the application, as a share of these.
    pub fn overhead(&self) -> f64 {
        overhead(self.wire_bytes, self.app_bytes)
    }
}

fn overhead(wire: u64, app: u64) -> f64 {
    wire as f64 / app.max(1) as f64 - 1.0
}

impl Recorded {
    /// Bytes on the wire beyond those of the application, as a share of these.
    pub fn overhead(&self) -> f64 {
        overhead(self.wire_bytes, self.app_bytes)
    }

    /// Replaces the estimated delays by those that the receiving end recorded.
    pub fn delays_of(&mut self, receiver: DelayHistogram) {
        self.delay = receiver;
    }

    /// Time from the first write to the last.
    pub fn length(&self) -> Duration {
        match (self.writes.first(), self.writes.last()) {
            (Some((first, _)), Some((last, _))) => last.saturating_sub(*first),
            _ => Duration::ZERO,
        }
    }

    /// The configuration of a sender that makes these choices.
    ///
    /// # Errors
    /// Choices that exclude each other.
    pub fn config(choices: &Choices) -> Result<Config, ConfigError> {
        let Choices { profile, latency, deliver, max_overhead, max_rate } = *choices;
        let config = Config::builder().profile(profile).latency(latency).max_overhead(max_overhead).max_rate(max_rate);
        config.deliver(deliver).build()
    }

    /// Runs the flow with the choices of `config`, except its rate control, which is the recorded one.
    ///
    /// # Errors
    /// The configuration excludes a recorded value.
    pub fn replay(&self, config: &Config) -> Result<Replayed, ConfigError> {
        let replayed = self.replay_while(config, &mut |_| true)?;
        Ok(replayed.unwrap_or_else(|| unreachable!("only its caller stops a replay")))
    }

    /// Does the same as [`Self::replay`] as long as `go_on` returns true. It is told the share of the flow's
    /// time that is over, at most ten times for each second of it. `None` if it stopped the replay.
    ///
    /// # Errors
    /// The configuration excludes a recorded value.
    pub fn replay_while(
        &self,
        config: &Config,
        go_on: &mut dyn FnMut(f64) -> bool,
    ) -> Result<Option<Replayed>, ConfigError> {
        let sized = |config: &Config| config.to_builder().max_datagram(self.largest);
        let near = sized(config).asks_peer(false).follows_peer(false).rate_control(budget::control()).build()?;
        let contents = Arc::<channel::Contents>::default();
        let flow = self.flow();
        let limit = flow.start + self.length() + AFTERWARDS;
        let trial = Trial::new(DuplexConfig::default(), vec![flow], SEED);
        let trial =
            Trial { near: near.with_trace(contents.clone()), far: sized(&Config::default()).build()?, limit, ..trial };
        budget::follow(&self.allowed);
        let mut run = trial.start_open(BEGINNING);
        let Some(lost) = self.drive(&mut run, limit, contents, go_on) else { return Ok(None) };
        let (near, far) = (run.stats(End::Near), run.stats(End::Far));
        Ok(Some(Replayed {
            delay: far.delay,
            app_bytes: run.load.read(),
            wire_bytes: near.bytes.wire_sent,
            symbols: far.symbols,
            loss: lost as f64 / near.packets.sent.max(1) as f64,
            done: run.load.is_done(),
        }))
    }

    /// The writes as a flow. Writes that are closer than a part of a millisecond become one, if there are
    /// more than a flow takes.
    fn flow(&self) -> Flow {
        let start = self.writes.first().map_or(Duration::ZERO, |write| write.0);
        let mut apart = Duration::ZERO;
        loop {
            let mut frames: Vec<Frame> = Vec::new();
            for &(at, bytes) in &self.writes {
                let (at, bytes) = (at.saturating_sub(start), u32::try_from(bytes).unwrap_or(u32::MAX));
                match frames.last_mut().filter(|last| at.saturating_sub(last.at) < apart) {
                    Some(last) if last.bytes < LARGE => last.bytes += bytes.min(LARGE),
                    _ => frames.push(Frame { at, bytes: bytes.min(LARGE) }),
                }
            }
            if frames.len() > MOST_FRAMES {
                apart = (2 * apart).max(Duration::from_micros(100));
                continue;
            }
            let mut flow = match FrameTrace::new(frames) {
                Ok(trace) => Flow::video(End::Near, Video::live(trace)),
                // A single write, or several at one time.
                Err(_) => Flow::bulk(End::Near, self.app_bytes),
            };
            flow.start = start;
            return flow;
        }
    }

    /// Moves datagrams between the two ends until the flow is over. Returns the number of packets of the near
    /// end that were lost. `None` if `go_on` stopped it.
    fn drive(
        &self,
        run: &mut Run,
        limit: Duration,
        contents: Arc<channel::Contents>,
        go_on: &mut dyn FnMut(f64) -> bool,
    ) -> Option<u64> {
        let mut channel = channel::Channel::new(self, contents, SEED);
        let (until, length) = (run.began() + limit, self.length().max(TOLD));
        let mut told = run.began();
        loop {
            let next = [run.pair.next_moment(), channel.poll_timeout()].into_iter().flatten().min();
            let Some(now) = next.filter(|&now| now <= until && !Load::is_over(&run.load)) else { break };
            if now >= told + TOLD {
                told = now;
                let share = now.since(run.began()).as_secs_f64() / length.as_secs_f64();
                if !go_on(share.min(1.0)) {
                    return None;
                }
            }
            let link = run.pair.link_mut();
            channel.deliver(now, link);
            run.until(now);
            let began = run.load.began();
            if let Some(began) = began {
                budget::begin(began);
            }
            let now = run.pair.now();
            let since = began.map(|began| now.since(began));
            channel.collect(now, since, run.pair.link_mut());
        }
        Some(channel.lost())
    }
}

/// Longest frame of a flow of writes. Chosen: half of the longest that a trace takes, so that a sum fits too.
const LARGE: u32 = 1 << 25;
