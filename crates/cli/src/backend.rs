//! The sockets of this process's endpoints: the kernel's, or those that bypass most of it.
//!
//! [`verb`](crate::verb) keeps the choice of the command line, which holds for the one job of the process.
//! [`listen`](crate::listen) and [`session`](crate::session) bind through [`bind`]. Invariant: a bypass that
//! does not work is told in one sentence, and the job goes on with the kernel's sockets.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use tidewire::{Config, Credentials, Endpoint};

use crate::report::Console;

/// The options.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sockets")]
pub struct Choice {
    /// Sockets for datagrams: those of the kernel, or AF_XDP, which bypasses most of the kernel on one
    /// interface and needs root
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_name = "NAME",
        default_value = "kernel",
        help_heading = "Sockets"
    )]
    backend: Backend,
    /// Interface for --backend xdp [example: eth0]
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME", help_heading = "Sockets")]
    interface: Option<String>,
}

/// What moves datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    Kernel,
    Xdp,
}

static CHOICE: OnceLock<Choice> = OnceLock::new();

/// Keeps the choice. Called once, before the job begins.
///
/// # Errors
/// A sentence if the options do not fit.
pub fn choose(choice: Choice) -> Result<(), String> {
    match (choice.backend, &choice.interface) {
        (Backend::Xdp, None) => return Err("--backend xdp needs --interface: `ip route` tells it".into()),
        (Backend::Kernel, Some(_)) => return Err("--interface is for --backend xdp".into()),
        (Backend::Xdp, Some(_)) if cfg!(not(target_os = "linux")) => return Err("--backend xdp needs Linux".into()),
        _ => {}
    }
    let _ = CHOICE.set(choice);
    Ok(())
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
    #[cfg(target_os = "linux")]
    if let Some(interface) = CHOICE.get().and_then(|choice| choice.interface.as_deref()) {
        let xdp = tidewire::XdpConfig::new(interface);
        match Endpoint::bind_xdp(address, credentials.clone(), config.clone(), threads, &xdp) {
            Ok(endpoint) => return Ok(endpoint),
            Err(error) => console.warn(&format!("{error}; going on with the kernel's sockets")),
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = console;
    Endpoint::bind_sharded(address, credentials, config, threads)
}

/// Warns that the choice does not apply: relays and the ends of paths with relays have kernel sockets.
pub fn warn_of_relays(console: &Console) {
    if CHOICE.get().is_some_and(|choice| choice.backend == Backend::Xdp) {
        console.warn("relays and ends that a relay connects use the kernel's sockets: --backend xdp is not used");
    }
}
