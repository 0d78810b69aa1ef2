//! The sockets of this process's endpoints: the kernel's, or those that bypass most of it.
//!
//! [`verb`](crate::verb) keeps the choice of the command line, which holds for the one job of the process.
//! [`listen`](crate::listen) and [`session`](crate::session) bind through [`bind`]. Invariant: a bypass that
//! does not work is told in one sentence, and the job goes on with the kernel's sockets.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::{Once, OnceLock};

use clap::Args;
use tidewire::{Config, Credentials, Endpoint};

use tidewire_command::exit::{Exit, Failure};
use tidewire_command::report::Console;

/// The option.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sockets")]
pub struct Choice {
    /// Sockets for datagrams: kernel, or xdp:INTERFACE for AF_XDP, which bypasses most of the kernel on one
    /// interface and needs root [example: xdp:eth0]
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME", default_value = "kernel")]
    backend: Backend,
}

/// What moves datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Backend {
    Kernel,
    /// AF_XDP over this interface.
    Xdp(String),
}

impl FromStr for Backend {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "kernel" => Ok(Self::Kernel),
            Some(("xdp", interface)) if cfg!(target_os = "linux") && !interface.is_empty() => {
                Ok(Self::Xdp(interface.to_owned()))
            }
            Some(("xdp", _)) if cfg!(not(target_os = "linux")) => Err("xdp needs Linux"),
            _ => Err("write kernel, or xdp: with an interface behind it, which `ip route` tells: xdp:eth0"),
        }
    }
}

/// Refuses the option in a verb that cannot use it.
///
/// # Errors
/// [`Exit::Usage`] if another backend than the kernel was chosen.
pub fn refuse(choice: &Choice) -> Result<(), Failure> {
    match choice.backend {
        Backend::Kernel => Ok(()),
        Backend::Xdp(_) => {
            Err(Failure::message(Exit::Usage, "this verb moves no datagrams of connections: leave --backend out"))
        }
    }
}

static CHOICE: OnceLock<Backend> = OnceLock::new();

/// Keeps the choice. Called once, before the job begins.
pub fn choose(choice: Choice) {
    let _ = CHOICE.set(choice.backend);
}

/// Binds an endpoint to the chosen sockets, as many as there are `threads` to move datagrams.
///
/// # Errors
/// Those of [`Endpoint::bind_sharded`].
pub fn bind(
    address: SocketAddr,
    credentials: Credentials,
    config: Config,
    threads: NonZeroUsize,
    console: &Console,
) -> io::Result<Endpoint> {
    warn_of_threads(threads.get(), config.workers().into(), console);
    #[cfg(target_os = "linux")]
    if let Some(Backend::Xdp(interface)) = CHOICE.get() {
        let xdp = tidewire::XdpConfig::new(interface);
        match Endpoint::bind_xdp(address, credentials.clone(), config.clone(), threads, &xdp) {
            Ok(endpoint) => return Ok(endpoint),
            Err(error) => console.warn(&format!("{error}; going on with the kernel's sockets")),
        }
    }
    Endpoint::bind_sharded(address, credentials, config, threads)
}

/// Warns, at the first endpoint of the process, of more threads of a kind than the machine runs at once.
fn warn_of_threads(threads: usize, workers: usize, console: &Console) {
    static ONCE: Once = Once::new();
    // A system that does not tell has no limit that we know.
    let cores = std::thread::available_parallelism().map_or(usize::MAX, NonZeroUsize::get);
    ONCE.call_once(|| {
        for (option, count) in [("--threads", threads), ("--workers", workers)] {
            if count > cores {
                console.warn(&format!(
                    "{option} {count} is more than the {cores} cores of this machine: more gain nothing"
                ));
            }
        }
    });
}

/// Warns that the choice does not apply: relays and the ends of paths with relays have kernel sockets.
pub fn warn_of_relays(console: &Console) {
    if matches!(CHOICE.get(), Some(Backend::Xdp(_))) {
        console.warn("relays and ends that a relay connects use the kernel's sockets: --backend is not used");
    }
}
