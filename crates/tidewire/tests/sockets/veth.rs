//! Places of endpoints with AF_XDP: each is a host of its own (`namespaces.rs`), because an interface has one
//! program. Where the process may make none, the sentence of `namespaces.rs` says so, and the same tests run
//! on loopback.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;

use tidewire::{Config, Credentials, Endpoint, XdpConfig};

use crate::namespaces::{self, Host, INTERFACE};

/// A place for one endpoint at a time, with the addresses at which others reach it.
pub struct Place {
    pub v4: [IpAddr; 3],
    pub v6: IpAddr,
    pub host: Host,
}

impl Place {
    pub fn new() -> Self {
        let host = namespaces::host(1);
        Self { v4: host.v4, v6: host.v6, host }
    }

    /// Binds an endpoint.
    pub fn bind(
        &self,
        address: SocketAddr,
        credentials: impl Into<Credentials>,
        config: Config,
    ) -> io::Result<Endpoint> {
        let xdp = XdpConfig::new(INTERFACE);
        self.host.enter(|| Endpoint::bind_xdp(address, credentials, config, NonZeroUsize::MIN, &xdp))
    }

    /// Replaces the socket of an endpoint of this place, by one of the kernel.
    pub fn rebind(&self, endpoint: &Endpoint, address: SocketAddr) -> io::Result<()> {
        self.host.enter(|| endpoint.rebind(address))
    }
}

/// Where plain sockets of the tests are.
pub fn outside() -> IpAddr {
    namespaces::enter_switch();
    namespaces::SWITCH_V4
}
