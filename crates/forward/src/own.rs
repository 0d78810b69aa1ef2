//! Whether an address is one of this machine's own, beyond loopback.
//!
//! [`crate::allowed`] and [`crate::outward`] ask it for targets under a wildcard. Invariant: the kernel's
//! present tables decide, so an address that was added a moment ago counts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Whether packets to this address stay on this machine.
pub(crate) fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let mut interfaces = getifaddrs::getifaddrs().into_iter().flatten();
    interfaces.any(|interface| interface.address.ip_addr() == Some(address)) || is_routed_here(address)
}

/// Whether the kernel would send to this address from this address, or from loopback. So it is with what a
/// route of the type `local` covers, which no interface has.
fn is_routed_here(address: IpAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // A port that no service has: nothing is sent by connecting a socket for datagrams.
    let connected = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    let from = connected.map(|from| from.ip().to_canonical());
    from.is_ok_and(|from| from == address || from.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_its_own_and_others_are_not() {
        for own in ["127.0.0.1", "127.1.2.3", "::ffff:127.0.0.1"] {
            assert!(is_own(own.parse().unwrap()), "{own}");
        }
        for interface in getifaddrs::getifaddrs().unwrap() {
            assert!(interface.address.ip_addr().is_none_or(is_own), "{interface:?}");
        }
        // Addresses for documentation (RFC 5737, RFC 3849).
        for other in ["192.0.2.1", "198.51.100.7", "2001:db8::1"] {
            assert!(!is_own(other.parse().unwrap()), "{other}");
        }
    }
}
