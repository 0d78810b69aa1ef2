//! The socket of an input, and its membership of a multicast group.
//!
//! [`super::input`] opens it and asks [`Membership`] once a second. The kernel forgets a membership with the
//! device on which the group was joined, and says nothing, also when the device comes back. Invariant: a
//! group whose device is there has been joined within a second, and no message goes out while it is joined.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::device::Device;
use super::place::Network;

/// Receive buffer of a socket. Chosen: 100 ms at 200 Mbit/s.
const BUFFER: usize = 4 << 20;
/// Time between two looks at a membership, and the longest time without one.
const INTERVAL: Duration = Duration::from_secs(1);
/// The IPv6 groups that devices have joined, on Linux.
const GROUPS: &str = "/proc/net/igmp6";

/// Binds the socket of an input, and joins its group.
///
/// # Errors
/// The address is in use, or the group cannot be joined.
pub fn bind(network: &Network) -> io::Result<UdpSocket> {
    let address = network.address;
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.ip().is_multicast() {
        // Several programs of a host may listen to one group.
        socket.set_reuse_address(true)?;
        socket.set_read_timeout(Some(INTERVAL))?;
    }
    // The system may allow less.
    let _ = socket.set_recv_buffer_size(BUFFER);
    let socket = UdpSocket::from(socket);
    SockRef::from(&socket).bind(&bound(&socket, network)?.into())?;
    if address.ip().is_multicast() {
        join(&socket, network)?;
    }
    Ok(socket)
}

fn join(socket: &UdpSocket, network: &Network) -> io::Result<()> {
    let any = Device::Address(Ipv4Addr::UNSPECIFIED);
    let device = network.interface.as_ref().unwrap_or(&any);
    match device.scope(socket, network.address)? {
        SocketAddr::V4(address) => device.join_v4(socket, *address.ip()),
        SocketAddr::V6(address) => socket.join_multicast_v6(address.ip(), address.scope_id()),
    }
}

/// The address that the socket is bound to: of a group its own, elsewhere the one that was asked for.
fn bound(socket: &UdpSocket, network: &Network) -> io::Result<SocketAddr> {
    let Network { address, interface, local, .. } = network;
    match (interface, local) {
        (Some(device), _) => device.scope(socket, *address),
        (None, Some(local)) if !address.ip().is_multicast() => Ok((*local, address.port()).into()),
        (None, _) => Ok(*address),
    }
}

/// Joins again a group that the kernel has forgotten; see the module.
#[derive(Debug)]
pub struct Membership {
    network: Network,
    looked: Instant,
}

impl Membership {
    /// The membership of a socket that was just bound; `None` if its address is no group.
    pub fn new(network: &Network, now: Instant) -> Option<Self> {
        network.address.ip().is_multicast().then(|| Self { network: network.clone(), looked: now })
    }

    /// Looks whether the socket is a member, once a second. Returns whether it was none and has joined again.
    pub fn renew(&mut self, socket: &mut UdpSocket, now: Instant) -> bool {
        if now - self.looked < INTERVAL {
            return false;
        }
        self.looked = now;
        match join(socket, &self.network) {
            Ok(()) => true,
            // A member cannot join, and no message leaves.
            Err(error) if error.kind() == ErrorKind::AddrInUse && !self.is_forgotten() => false,
            // The device is not there, or the socket holds too many memberships of devices that are gone.
            Err(_) => bind(&self.network).map(|fresh| *socket = fresh).is_ok(),
        }
    }

    /// Without a device, the kernel calls a socket a member of an IPv6 group also if the device is gone.
    fn is_forgotten(&self) -> bool {
        match self.network.address {
            SocketAddr::V6(address) if address.scope_id() == 0 && self.network.interface.is_none() => {
                std::fs::read_to_string(GROUPS).is_ok_and(|groups| !lists(&groups, &address))
            }
            _ => false,
        }
    }
}

/// Whether a device is a member of the group, by the text of [`GROUPS`].
fn lists(groups: &str, address: &SocketAddrV6) -> bool {
    let wanted = Ipv6Addr::octets(address.ip()).map(|byte| format!("{byte:02x}")).concat();
    groups.lines().any(|line| line.split_whitespace().nth(2) == Some(&wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_was_forgotten_is_joined_again_and_one_that_was_not_is_left_alone() {
        let group = Ipv4Addr::new(239, 255, 77, 9);
        let network = Network {
            address: (group, 0).into(),
            interface: Some(Device::Address(Ipv4Addr::LOCALHOST)),
            local: None,
            hops: None,
            rtp: None,
        };
        let mut socket = bind(&network).unwrap();
        let start = Instant::now();
        let mut membership = Membership::new(&network, start).unwrap();
        let mut renewed = |socket: &mut UdpSocket, ms| membership.renew(socket, start + Duration::from_millis(ms));
        assert!(!renewed(&mut socket, 1_000), "it is a member");
        // As after its device was gone.
        socket.leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap();
        assert!(!renewed(&mut socket, 1_500), "once a second");
        assert!(renewed(&mut socket, 2_000));
        assert!(!renewed(&mut socket, 3_000), "it is a member again");
        let port = socket.local_addr().unwrap().port();
        let source = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket2::SockRef::from(&source).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        source.send_to(b"video", (group, port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 5);
    }

    /// Devices that went and came back twenty times (`igmp_max_memberships`) leave no room in the socket.
    #[test]
    fn a_socket_without_room_for_memberships_is_made_anew() {
        let group = |last| Ipv4Addr::new(239, 255, 78, last);
        let network = Network {
            address: (group(0), 0).into(),
            interface: Some(Device::Address(Ipv4Addr::LOCALHOST)),
            local: None,
            hops: None,
            rtp: None,
        };
        let mut socket = bind(&network).unwrap();
        socket.leave_multicast_v4(&group(0), &Ipv4Addr::LOCALHOST).unwrap();
        let joins = |last: &u8| socket.join_multicast_v4(&group(*last), &Ipv4Addr::LOCALHOST).is_ok();
        let joined = (1..=255).take_while(joins).count();
        let start = Instant::now();
        let mut membership = Membership::new(&network, start).unwrap();
        assert!(membership.renew(&mut socket, start + INTERVAL), "{joined}");
        assert!(!membership.renew(&mut socket, start + 2 * INTERVAL), "{joined}");
    }

    #[test]
    fn groups_of_devices_are_found() {
        let groups = "1    lo              ff020000000000000000000000000001     1 0000000C 0\n\
                      4    eth0            ff150000000000000000000000000001     1 00000004 0\n";
        for (address, wanted) in [("[ff15::1]:5000", true), ("[ff15::2]:5000", false)] {
            let SocketAddr::V6(address) = address.parse().unwrap() else { panic!("{address}") };
            assert_eq!(lists(groups, &address), wanted);
        }
        let plain =
            Network { address: ([127, 0, 0, 1], 0).into(), interface: None, local: None, hops: None, rtp: None };
        assert!(Membership::new(&plain, Instant::now()).is_none());
    }
}
