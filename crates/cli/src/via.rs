//! Ends of a path with relays: `--via LINK` of the verbs that connect, and `--relayed` of those that listen
//! (`docs/relay.md`).
//!
//! [`crate::session`] and [`crate::listen`] call it in place of a socket of their own. Invariant: the secret
//! of the ends is never that of a hop, because a relay knows the latter.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use tidewire::link::{Link, Peer};
use tidewire::{CloseReason, Config, ConnectError, Credentials, Endpoint, Hop};
use tidewire_command::exit::{Exit, Failure, OrExit};
use tidewire_command::report::Console;

use crate::backend;
use crate::keys;
use crate::link;
use crate::listen;

/// The heading of these options in `--help`. It is set for each, because the heading of a group of options
/// would also hold for those that a verb names after the group.
const RELAYS: &str = "Relays";

/// The relay option of the verbs that connect.
#[derive(Args, Clone, Debug, Default)]
pub struct Via {
    /// Reach the other side, which listens with --relayed, through a relay: the link that `tidewire relay`
    /// printed, or @FILE with it. A link with a public key needs --key
    #[arg(long, value_name = "LINK", help_heading = RELAYS)]
    via: Option<String>,
}

/// The relay options of the verbs that listen.
#[derive(Args, Clone, Debug)]
pub struct Relayed {
    /// Wait behind a relay, and print first the link for `tidewire relay --to`, and then the link for the
    /// other side, which needs --via as well
    #[arg(long, help_heading = RELAYS)]
    relayed: bool,
    /// File with the secret or private key of the hop to the relay, which must not be that of --key. Without
    /// it, each start makes a new secret
    #[arg(long, value_name = "FILE", requires = "relayed", help_heading = RELAYS)]
    hop_key: Option<PathBuf>,
    /// File with the public keys of the relays that may open hops, one a line. It is required with a private
    /// key in --hop-key
    #[arg(long, value_name = "FILE", requires = "relayed", help_heading = RELAYS)]
    authorized_relays: Option<PathBuf>,
}

/// The way through a relay.
#[derive(Clone, Debug)]
pub struct Through {
    link: Link,
    credentials: Credentials,
}

impl Via {
    /// The way through the relay, if one was given. `link` is that of the other end, and `key` the file with
    /// our private key.
    ///
    /// # Errors
    /// [`Exit::Usage`] for a wrong link, or one with the secret of the other end.
    pub fn through(&self, link: &Link, key: Option<&Path>, console: &Console) -> Result<Option<Through>, Failure> {
        let Some(argument) = &self.via else { return Ok(None) };
        let relay = link::from_argument(argument).or_exit(Exit::Usage)?;
        distinct(&relay.peer, &link.peer)?;
        let credentials = keys::to_open(&relay, key, console)?;
        Ok(Some(Through { link: relay, credentials }))
    }

    /// Refuses `--via` where the far end is started over ssh.
    ///
    /// # Errors
    /// [`Exit::Usage`] if `--via` was given.
    pub fn refuse_with_ssh(&self) -> Result<(), Failure> {
        if self.via.is_none() {
            return Ok(());
        }
        let wanted = "--via needs a link: start the far side there with --relayed, and give the link that it prints";
        Err(Failure::message(Exit::Usage, wanted))
    }
}

impl Through {
    /// As `--via` gives it.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The endpoint whose connections run over a hop to this address of the relay.
    ///
    /// # Errors
    /// [`Exit::Usage`] if choices of `config` have no use over relays.
    pub fn open(&self, address: SocketAddr, credentials: Credentials, config: &Config) -> Result<Endpoint, Failure> {
        let peer = self.link.peer.key().copied();
        let hop = Hop { address, credentials: self.credentials.clone(), peer };
        Endpoint::via(hop, credentials, config).map_err(refused)
    }

    /// Says why the other end cannot be reached.
    pub fn explain(&self, error: ConnectError) -> Failure {
        let (host, port) = (&self.link.host, self.link.port);
        match error {
            ConnectError::NoAnswer => Failure::message(
                Exit::Unreachable,
                format_args!(
                    "the relay {host}:{port} answers, but nobody behind it does: the other side does not wait with \
                     --relayed, or its link has another secret or key"
                ),
            ),
            ConnectError::Lost(CloseReason::Hop(reason)) => {
                Failure::message(Exit::Unreachable, format_args!("the relay {host}:{port}: {reason}"))
            }
            error => Failure::new(Exit::Unreachable, error),
        }
    }
}

impl Relayed {
    /// Whether to wait behind a relay.
    pub fn is_wanted(&self) -> bool {
        self.relayed
    }

    /// Opens the socket for hops. Returns the endpoint, and what the link for the relay has after `#`.
    ///
    /// # Errors
    /// [`Exit::Usage`] for wrong key files or choices that have no use over relays, [`Exit::LocalIo`] if the
    /// port is in use.
    pub fn open(
        &self,
        address: SocketAddr,
        (credentials, peer): (Credentials, &Peer),
        config: &Config,
        console: &Console,
    ) -> Result<(Endpoint, Peer), Failure> {
        let names = ("--hop-key", "--authorized-relays");
        let files = (self.hop_key.as_deref(), self.authorized_relays.as_deref());
        let (hop, hop_peer) = listen::credentials(files, names, console)?;
        distinct(&hop_peer, peer)?;
        backend::warn_of_relays(console);
        let endpoint = Endpoint::behind(address, hop, credentials, config).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput => refused(error),
            _ => Failure::message(Exit::LocalIo, format_args!("cannot listen on {address}: {error}")),
        })?;
        Ok((endpoint, hop_peer))
    }
}

/// Refuses one secret for the ends and for a hop: the relay could read and write all that the ends send.
fn distinct(hop: &Peer, ends: &Peer) -> Result<(), Failure> {
    if matches!((hop, ends), (Peer::Secret(hop), Peer::Secret(ends)) if hop == ends) {
        let wanted = "the hop to the relay has the secret of the ends, so the relay could read everything: give each \
                      a secret of its own (tidewire keygen)";
        return Err(Failure::message(Exit::Usage, wanted));
    }
    Ok(())
}

/// What the library refuses about the choices of the user.
fn refused(error: std::io::Error) -> Failure {
    let exit = if error.kind() == std::io::ErrorKind::InvalidInput { Exit::Usage } else { Exit::Other };
    Failure::new(exit, error)
}
