//! Places of endpoints with the kernel's sockets: all of them on loopback.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tidewire::{Config, Credentials, Endpoint};

/// Where plain sockets of the tests are.
pub fn outside() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

/// A place for one endpoint at a time, with the addresses at which others reach it.
pub struct Place {
    pub v4: [IpAddr; 3],
    pub v6: IpAddr,
}

impl Place {
    pub fn new() -> Self {
        let v4 = [1, 2, 3].map(|last| Ipv4Addr::new(127, 0, 0, last).into());
        Self { v4, v6: Ipv6Addr::LOCALHOST.into() }
    }

    /// Binds an endpoint.
    pub fn bind(
        &self,
        address: SocketAddr,
        credentials: impl Into<Credentials>,
        config: Config,
    ) -> io::Result<Endpoint> {
        Endpoint::bind(address, credentials, config)
    }

    /// Replaces the socket of an endpoint of this place.
    pub fn rebind(&self, endpoint: &Endpoint, address: SocketAddr) -> io::Result<()> {
        endpoint.rebind(address)
    }
}
