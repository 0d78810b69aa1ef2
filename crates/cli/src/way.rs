//! The way to the far side: the link that the user gave, directly or through a relay, or the links to a far
//! end that ssh started, and what opens them.
//!
//! Each verb that connects makes one [`Way`] of its options, and connects over it, at first and again.
//! Invariant: there is at least one link, and all have the same credentials.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use tidewire::link::Link;
use tidewire::{Config, Connection, Credentials, Endpoint};
use tidewire_command::exit::{Exit, Failure};
use tidewire_command::report::Console;

use crate::keys::{self, Own};
use crate::session;
use crate::ssh::{FarVerb, Host, Ssh};
use crate::via::{Through, Via};

/// The options of the verbs that connect to a link, or start their far end on a host.
#[derive(Args, Clone, Debug)]
pub struct Reach {
    #[command(flatten)]
    ssh: Ssh,
    #[command(flatten)]
    own: Own,
    #[command(flatten)]
    via: Via,
}

/// The way to the far side.
#[derive(Debug)]
pub struct Way {
    first: Link,
    others: Vec<Link>,
    credentials: Credentials,
    started: Option<Started>,
    through: Option<Through>,
}

/// A far end that ssh started.
#[derive(Debug)]
struct Started {
    host: Host,
    /// It ends after this time without a packet.
    silence: Duration,
}

impl Reach {
    /// The way to the listener of `link`.
    ///
    /// # Errors
    /// See [`Way::to`].
    pub fn link(&self, link: Link, console: &Console) -> Result<Way, Failure> {
        Way::to(link, self.own.key.as_deref(), &self.via, console)
    }

    /// Refuses what has no use if ssh starts the far end.
    ///
    /// # Errors
    /// [`Exit::Usage`] if `--via` was given.
    pub fn check_host(&self) -> Result<(), Failure> {
        self.via.refuse_with_ssh()
    }

    /// Starts the far end on `host`, and returns the way there. `words` are the far end's options, quoted for
    /// a shell. It ends after a silence of `--linger`, or of the `usual` time.
    ///
    /// # Errors
    /// Those of [`Ssh::start`] and [`keys::to_open`].
    pub async fn host(
        &self,
        host: &Host,
        verb: FarVerb,
        usual: Duration,
        words: &str,
        console: &Console,
    ) -> Result<Way, Failure> {
        self.check_host()?;
        let silence = self.ssh.silence(usual);
        let (first, others) = self.ssh.start(host, verb, silence, words, console).await?;
        let credentials = keys::to_open(&first, self.own.key.as_deref(), console)?;
        let started = Some(Started { host: host.clone(), silence });
        Ok(Way { first, others, credentials, started, through: None })
    }
}

impl Way {
    /// The way to the listener of `link`. `key` is the file with our private key.
    ///
    /// # Errors
    /// [`Exit::Usage`] if the link of `--via` is wrong, or a link needs another key file.
    pub fn to(link: Link, key: Option<&Path>, via: &Via, console: &Console) -> Result<Self, Failure> {
        let credentials = keys::to_open(&link, key, console)?;
        let through = via.through(&link, key, console)?;
        Ok(Self { first: link, others: Vec::new(), credentials, started: None, through })
    }

    /// The link that our datagrams go to: that of the relay, or of the far side.
    pub fn first_hop(&self) -> &Link {
        self.through.as_ref().map_or(&self.first, Through::link)
    }

    /// The time without a packet after which the far end has ended by itself, if it does.
    pub fn silence(&self) -> Option<Duration> {
        self.started.as_ref().map(|started| started.silence)
    }

    /// Connects over each of the links at once, and keeps the connection that is established first.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] if nothing answers.
    pub async fn connect(&self, config: &Config, console: &Console) -> Result<(Endpoint, Connection), Failure> {
        let Self { first, others, credentials, through, .. } = self;
        if let Some(through) = through {
            return session::connect(first, Some(through), credentials, config.clone(), console).await;
        }
        let links: Vec<_> = [first].into_iter().chain(others).cloned().collect();
        session::connect_any(&links, credentials, config, console).await.map_err(|failure| self.explain(failure))
    }

    /// Connects to the first of `addresses` that answers, which are those of [`Self::first_hop`].
    ///
    /// # Errors
    /// [`Exit::Unreachable`] if nothing answers.
    pub async fn connect_at(
        &self,
        addresses: &[SocketAddr],
        config: &Config,
        console: &Console,
    ) -> Result<(Endpoint, Connection), Failure> {
        match self.through {
            // The endpoint of a hop resolves the relay itself.
            Some(_) => self.connect(config, console).await,
            None => session::connect_first(addresses, self.first.peer.key(), &self.credentials, config, console).await,
        }
    }

    /// Adds what is known about a far end that does not answer over UDP although ssh reached it.
    fn explain(&self, failure: Failure) -> Failure {
        let Some(Started { host, .. }) = self.started.as_ref().filter(|_| failure.exit == Exit::Unreachable) else {
            return failure;
        };
        let addresses: Vec<_> = [&self.first].into_iter().chain(&self.others).map(address).collect();
        let (addresses, port) = (addresses.join(" and "), self.first.port);
        Failure::message(
            Exit::Unreachable,
            format_args!(
                "no answer over UDP from {addresses}, although ssh reached {host}: let UDP port {port} through the \
                 firewalls on the path, or choose a port that they let through with --remote-port"
            ),
        )
    }
}

/// The address of a link, without its secret.
fn address(link: &Link) -> String {
    match link.host.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, link.port).to_string(),
        Err(_) => format!("{}:{}", link.host, link.port),
    }
}
