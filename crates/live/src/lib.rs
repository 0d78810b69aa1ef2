//! Live video with a deadline: datagrams of encoders to players, with a constant delay (`docs/live.md`).
//!
//! A [`Sender`] has the inputs, a [`Receiver`] the outputs. A program makes the connections, with a
//! configuration from [`configure`]. Either end may be the one that connects: there, [`Session::greet`] meets
//! the other end, and `run` carries the session; [`Sender::listen`] and [`Receiver::listen`] accept. What
//! happens is told as [`Event`]s. The command's verb `live` uses all of it, and the example `video` shows
//! both ends in one program. Each datagram is a message with a lifetime, so that repair ends where it would
//! come too late. Invariant: a datagram leaves whole, once, in order and on time, or not at all, and then it
//! is counted.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod counts;
mod device;
mod event;
mod feed;
mod groups;
mod input;
mod meeting;
mod membership;
mod offset;
mod output;
mod place;
mod playout;
mod receiver;
mod refusals;
mod rtp;
mod sender;
mod sink;
mod stop;
mod target;
mod ts;
mod wire;

use std::time::Duration;

use tidewire::{CloseCode, Config, ConfigError};
use tidewire_proto::config::KEEP_ALIVE;

pub use counts::{Received, Sent};
pub use device::Device;
pub use event::{Counts, Event, Over, SessionError};
pub use input::Input;
pub use meeting::{MeetError, Session};
pub use output::Output;
pub use place::{BadPlace, Network, Place, resolve};
pub use receiver::Receiver;
pub use sender::Sender;
pub use sink::Sink;
pub use stop::Stop;
pub use wire::{Answer, Side};

/// Close code of a session that an end stopped: the first that the protocol leaves to applications.
const CUT_OFF: CloseCode = CloseCode::Application(256);
/// Close code of a session whose outputs another sender has now.
const SURPLUS: CloseCode = CloseCode::Application(257);
/// How long to wait for a peer to close. Chosen: three round trips of the slowest satellite link.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// The latency if neither end asks for another: that of SRT, so that a change of tools changes nothing else.
pub const LATENCY: Duration = Duration::from_millis(120);
/// Part of the datagrams that should be there in time. Chosen: at a key frame every two seconds, fewer than
/// one picture group in ten then misses a datagram.
const DELIVER: f64 = 0.9999;
/// Ring of a lane: a second at 200 Mbit/s.
const RING: usize = 32 << 20;

/// The transport's settings for live video, on top of the user's.
///
/// # Errors
/// See [`ConfigError`].
pub fn configure(config: &Config, has_deliver: bool) -> Result<Config, ConfigError> {
    let mut changed = config.to_builder().message_memory(RING).keep_alive(Some(KEEP_ALIVE));
    changed = changed.latency(Some(config.latency().unwrap_or(LATENCY)));
    if !has_deliver {
        changed = changed.deliver(DELIVER);
    }
    changed.build()
}

/// The latency that an end with these settings asks for.
pub fn latency(config: &Config) -> Duration {
    config.latency().unwrap_or(LATENCY)
}
