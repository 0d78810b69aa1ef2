//! A network device of this machine, by an address or by its name.
//!
//! [`super::place`] parses it; [`super::membership`] and [`super::sink`] look it up each time they need it,
//! because a device that went and came back has another number. Invariant: a number is never kept.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use socket2::{InterfaceIndexOrAddress, SockRef};

/// Longest name of a device, without the byte that ends it (`IFNAMSIZ`).
const LONGEST_NAME: usize = 15;

/// A device; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// The device that has this address.
    Address(Ipv4Addr),
    /// The device with this name.
    Name(String),
}

impl Device {
    /// Parses an IPv4 address, or a name that a device can have.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse() {
            return Some(Self::Address(address));
        }
        // As the kernel checks it (`dev_valid_name`). Digits and dots alone were meant as an address.
        let is_name = (1..=LONGEST_NAME).contains(&text.len())
            && !text.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
            && text.contains(|c: char| !c.is_ascii_digit() && c != '.');
        is_name.then(|| Self::Name(text.to_owned()))
    }

    /// Joins a group of IPv4 on the device.
    ///
    /// # Errors
    /// There is no such device, or the socket is a member already.
    pub fn join_v4(&self, socket: &UdpSocket, group: Ipv4Addr) -> io::Result<()> {
        let on = match self {
            Self::Address(address) => InterfaceIndexOrAddress::Address(*address),
            Self::Name(_) => InterfaceIndexOrAddress::Index(self.number(socket)?),
        };
        SockRef::from(socket).join_multicast_v4_n(&group, &on)
    }

    /// Lets the socket send datagrams of IPv4 groups by the device.
    ///
    /// # Errors
    /// There is no such device.
    pub fn send_v4(&self, socket: &UdpSocket) -> io::Result<()> {
        match self {
            Self::Address(address) => SockRef::from(socket).set_multicast_if_v4(address),
            Self::Name(name) => bind(socket, name),
        }
    }

    /// The address with the number of the device, for IPv6.
    ///
    /// # Errors
    /// There is no such device.
    pub fn scope(&self, socket: &UdpSocket, mut address: SocketAddr) -> io::Result<SocketAddr> {
        if let (SocketAddr::V6(address), Self::Name(_)) = (&mut address, self) {
            address.set_scope_id(self.number(socket)?);
        }
        Ok(address)
    }

    #[cfg(target_os = "linux")]
    fn number(&self, socket: &UdpSocket) -> io::Result<u32> {
        match self {
            Self::Name(name) => Ok(rustix::net::netdevice::name_to_index(socket, name)?),
            Self::Address(_) => Ok(0),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn number(&self, _socket: &UdpSocket) -> io::Result<u32> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(target_os = "linux")]
fn bind(socket: &UdpSocket, name: &str) -> io::Result<()> {
    SockRef::from(socket).bind_device(Some(name.as_bytes()))
}

#[cfg(not(target_os = "linux"))]
fn bind(_socket: &UdpSocket, _name: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_told_apart() {
        assert_eq!(Device::parse("10.0.0.7"), Some(Device::Address(Ipv4Addr::new(10, 0, 0, 7))));
        for name in ["eth0", "enp3s0.100", "br-lan", "wlan0@if3"] {
            assert_eq!(Device::parse(name), Some(Device::Name(name.to_owned())));
        }
        for wrong in ["", "10.0.0", "1234", "a/b", "a b", "a:1", "a-name-of-sixteen"] {
            assert_eq!(Device::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_device_is_found_by_its_name() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (lo, none) = (Device::Name("lo".to_owned()), Device::Name("no-such-device".to_owned()));
        let group = "[ff15::1]:7".parse().unwrap();
        let SocketAddr::V6(scoped) = lo.scope(&socket, group).unwrap() else { panic!("{group}") };
        assert!(scoped.scope_id() > 0);
        assert!(none.scope(&socket, group).is_err());
        lo.join_v4(&socket, Ipv4Addr::new(239, 255, 77, 3)).unwrap();
        assert!(none.join_v4(&socket, Ipv4Addr::new(239, 255, 77, 4)).is_err());
    }
}
