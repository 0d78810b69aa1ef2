//! This machine's own addresses: which its interfaces have, and which it sends from.
//!
//! The rules of `serve --allow` ask whether a target under a wildcard is this machine itself. Programs that
//! listen ask for the addresses that they print. Invariant: the kernel's present tables decide, so an address
//! that was added a moment ago counts.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// The addresses of this machine's interfaces, loopback among them.
pub fn interface_addresses() -> impl Iterator<Item = IpAddr> {
    getifaddrs::getifaddrs().into_iter().flatten().filter_map(|interface| interface.address.ip_addr())
}

/// The address that this machine sends from to `target`. Connecting a UDP socket asks the routing table and
/// sends nothing.
///
/// # Errors
/// No route leads to `target`.
pub fn source_toward(target: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    // A port that no service has.
    socket.connect((target, 9))?;
    Ok(socket.local_addr()?.ip().to_canonical())
}

/// Whether packets to this address stay on this machine.
pub(crate) fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    interface_addresses().any(|own| own == address) || is_routed_here(address)
}

/// Whether the kernel would send to this address from this address, or from loopback. So it is with what a
/// route of the type `local` covers, which no interface has.
fn is_routed_here(address: IpAddr) -> bool {
    source_toward(address).is_ok_and(|from| from == address || from.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_its_own_and_others_are_not() {
        for own in ["127.0.0.1", "127.1.2.3", "::ffff:127.0.0.1"] {
            assert!(is_own(own.parse().unwrap()), "{own}");
        }
        assert!(interface_addresses().any(|own| own.is_loopback()));
        for own in interface_addresses() {
            assert!(is_own(own), "{own}");
        }
        // Addresses for documentation (RFC 5737, RFC 3849).
        for other in ["192.0.2.1", "198.51.100.7", "2001:db8::1"] {
            assert!(!is_own(other.parse().unwrap()), "{other}");
        }
    }
}
