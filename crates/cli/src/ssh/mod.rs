//! The far end of `send` and `forward`, started over ssh (`docs/ssh.md`).
//!
//! Both verbs parse a [`Host`] in the place of a link and call [`Ssh::start`], which runs the far side's
//! `tidewire` and reads its link from ssh's output. There, `receive` and `serve` call [`detach`], which hands
//! the link over and goes on in the background. Invariants: no secret is part of a command line, of an error
//! or of a log, at either end. A far end that hears nothing ends by itself.

mod candidates;
pub mod detach;
mod handover;
mod host;
mod start;

use std::time::Duration;

use clap::Args;
use tidewire_units::parse_duration;

pub use handover::FarVerb;
pub use host::{Host, quote_path};

/// How long the far end of a `forward` stays without a packet. Chosen: longer than most times for which a
/// laptop is closed between two meetings or on a journey. Meanwhile the far end is one idle process
/// (`docs/ssh.md` has its memory).
pub const FORWARD_SILENCE: Duration = Duration::from_secs(60 * 60);
/// The same for one connection that is not made again when it is lost: the idle timeout of a connection.
pub const SINGLE_SILENCE: Duration = Duration::from_secs(60);
/// The same for `send`: 60 s until a lost connection is noticed, 120 s of new attempts, and 30 s for the last
/// of them.
pub const SEND_SILENCE: Duration = Duration::from_secs(210);
/// Least time without a packet: three times the least interval of keep-alive packets.
const LEAST_SILENCE: Duration = Duration::from_secs(3);

/// Options of the verbs that can start their far end.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Far end over ssh")]
pub struct Ssh {
    /// Command that reaches the far host, with its options [example: --ssh 'ssh -p 2222']
    #[arg(long, value_name = "COMMAND", default_value = "ssh", value_parser = parse_command)]
    ssh: Words,
    /// Name of tidewire on the far host, as its shell understands it [example: --remote ~/bin/tidewire]
    #[arg(long = "remote", value_name = "PROGRAM", default_value = "tidewire")]
    program: String,
    /// UDP port that the far end listens on, if a firewall lets only certain ports through. By default, its
    /// system chooses one
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    remote_port: u16,
    /// Let the far end run on for this long when it hears nothing from here [example: 12h]. The default is 1h
    /// with `forward`, 210s with `send` and 60s with `forward -W`
    #[arg(long, value_name = "TIME", value_parser = parse_silence)]
    linger: Option<Duration>,
}

impl Ssh {
    /// How long the far end runs on in silence. `usual` is the verb's own time.
    pub fn silence(&self, usual: Duration) -> Duration {
        self.linger.unwrap_or(usual)
    }
}

/// A program and its arguments.
#[derive(Clone, Debug)]
struct Words(Vec<String>);

fn parse_command(text: &str) -> Result<Words, String> {
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(Words(words)),
        Some(_) => Err("is empty; write a command, as in --ssh 'ssh -p 2222'".into()),
        None => Err("has an open quote; write a command as for a shell, as in --ssh 'ssh -p 2222'".into()),
    }
}

/// Parses a time without packets.
fn parse_silence(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    if time < LEAST_SILENCE {
        return Err("is too short for a network; write at least 3s".into());
    }
    Ok(time)
}
