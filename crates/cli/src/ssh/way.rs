//! The way to the far side: the link that the user gave, or the links to a far end that ssh started.
//!
//! `send` and `forward` connect over it, at first and again. Invariant: there is at least one link, and all
//! have the same credentials.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidewire::link::Link;
use tidewire::{Config, Connection, Credentials, Endpoint};
use tidewire_command::exit::{Exit, Failure};
use tidewire_command::report::Console;

use super::host::Host;
use crate::session;
use crate::via::Through;

/// The way to the far side.
#[derive(Debug)]
pub struct Way {
    first: Link,
    others: Vec<Link>,
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

impl From<Link> for Way {
    fn from(link: Link) -> Self {
        Self { first: link, others: Vec::new(), started: None, through: None }
    }
}

impl Way {
    /// The way to a far end that ends after `silence` without a packet. It is reached by `first`, or by one
    /// of `others`.
    pub(super) fn started((first, others): (Link, Vec<Link>), host: Host, silence: Duration) -> Self {
        Self { first, others, started: Some(Started { host, silence }), through: None }
    }

    /// The same way, through a relay.
    pub fn through(self, through: Option<Through>) -> Self {
        Self { through, ..self }
    }

    /// A link to the far side. The others differ only in their host.
    pub fn link(&self) -> &Link {
        &self.first
    }

    /// The time without a packet after which the far end has ended by itself, if it does.
    pub fn silence(&self) -> Option<Duration> {
        self.started.as_ref().map(|started| started.silence)
    }

    /// Connects over each of the links at once, and keeps the connection that is established first.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] if nothing answers.
    pub async fn connect(
        &self,
        credentials: &Credentials,
        config: &Config,
        console: &Console,
    ) -> Result<(Endpoint, Connection), Failure> {
        if self.through.is_some() {
            return session::connect(&self.first, self.through.as_ref(), credentials, config.clone(), console).await;
        }
        let links: Vec<_> = [&self.first].into_iter().chain(&self.others).cloned().collect();
        session::connect_any(&links, credentials, config, console).await.map_err(|failure| self.explain(failure))
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
