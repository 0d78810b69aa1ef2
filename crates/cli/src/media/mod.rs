//! Live video with a deadline: datagrams of encoders to players, with a constant delay (`docs/live.md`).
//!
//! The verb `live` calls [`sender`] at the end that has the inputs, and [`receiver`] at the other. Not to be
//! confused with [`crate::live`], a connection that other verbs keep. Each datagram is a message with a
//! lifetime, so that repair ends where it would come too late. Invariant: a datagram leaves whole, once, in
//! order and on time, or not at all, and then it is counted.

pub mod address;
pub mod dialer;
mod feed;
mod groups;
mod input;
mod meeting;
mod offset;
pub mod output;
mod playout;
pub mod receiver;
mod rtp;
pub mod sender;
pub mod state;
mod target;
mod ts;
mod wire;

use std::time::Duration;

use tidewire::{Config, ConfigError};
use tidewire_proto::config::KEEP_ALIVE;

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
fn asked(config: &Config) -> Duration {
    config.latency().unwrap_or(LATENCY)
}
