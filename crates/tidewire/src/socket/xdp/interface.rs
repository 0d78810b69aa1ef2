//! What a socket has to know of its interface: number, station, addresses, longest packet and queues.
//!
//! [`super::bind`] asks once, at the start. Invariant: a name that cannot be used gives a sentence that says
//! why, with the name in it.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;

use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use xdp::nic::NicIndex;

/// An interface; see the module.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub index: u32,
    /// Its Ethernet address.
    pub station: [u8; 6],
    /// Longest IP packet.
    pub mtu: usize,
    pub addresses: Vec<IpAddr>,
    /// Queues for receiving.
    pub queues: u32,
}

impl Interface {
    /// Looks an interface up.
    ///
    /// # Errors
    /// There is none of this name, it is down, or it is no Ethernet.
    pub fn named(name: &str) -> io::Result<Self> {
        let refused = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let index = if_nametoindex(name)
            .map_err(|_| refused(format!("there is no interface `{name}`: `ip link` lists them")))?;
        let (mut station, mut addresses, mut is_up) = (None, Vec::new(), false);
        for entry in getifaddrs()?.filter(|entry| entry.interface_name == name) {
            is_up |= entry.flags.contains(InterfaceFlags::IFF_UP);
            let Some(address) = entry.address else { continue };
            if let Some(link) = address.as_link_addr() {
                station = link.addr().filter(|bytes| *bytes != [0; 6]);
            }
            addresses.extend(address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip())));
            addresses.extend(address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())));
        }
        if !is_up {
            return Err(refused(format!("interface `{name}` is down: `ip link set {name} up`")));
        }
        let station = station.ok_or_else(|| refused(format!("interface `{name}` is no Ethernet")))?;
        // A driver without this question has one queue.
        let queues = NicIndex::new(index).queue_counts().map_or(1, |queues| queues.rx_count().max(1));
        Ok(Self { index, station, mtu: mtu(name)?, addresses, queues })
    }
}

/// The longest IP packet of an interface (`SIOCGIFMTU` of netdevice(7)).
fn mtu(name: &str) -> io::Result<usize> {
    let any = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all bytes of this structure may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // Names are shorter than the field, as `if_nametoindex` has found.
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()).take(libc::IFNAMSIZ - 1) {
        *to = from as libc::c_char;
    }
    // C libraries differ in the type of a request.
    // SAFETY: the kernel reads the name and writes the MTU, both within the structure.
    let result = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has written this field.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or_default())
}
