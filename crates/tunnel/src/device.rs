//! The TUN device: packets of the kernel, many in each system call.
//!
//! [`crate::hub`] reads and writes it. With the offloads of the kernel, one read returns a TCP send of up to
//! 64 KiB, which is divided here, and one write takes what [`crate::outbox`] joined. Invariant: the device is
//! not persistent, so the kernel removes it with its addresses and routes when this process ends, however it
//! ends.

use std::io;

use ipnet::IpNet;
use tun_rs::{AsyncDevice, DeviceBuilder, VIRTIO_NET_HDR_LEN};

use crate::outbox::Outbox;

/// Bytes of the longest read: the largest IP packet, and the header with its offloads.
const LONGEST_READ: usize = VIRTIO_NET_HDR_LEN + 65_535;
/// Packets of a read at most: 64 KiB in segments of 128 bytes.
const MOST_PACKETS: usize = 512;
/// The file through which devices are made.
const CONTROL: &str = "/dev/net/tun";

/// Whether new devices have no IPv6: 1 if so. The kernel then refuses addresses as if a capability lacked.
const NO_IPV6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";

/// A TUN device that is up.
pub struct Device {
    tun: AsyncDevice,
    name: String,
}

/// The buffers of a reader.
pub struct Inbox {
    whole: Vec<u8>,
    packets: Vec<Vec<u8>>,
    sizes: Vec<usize>,
}

impl Device {
    /// Makes a device with these addresses, for packets of at most `mtu` bytes.
    ///
    /// # Errors
    /// See [`DeviceError`].
    pub fn create(name: &str, addresses: &[IpNet], mtu: u16) -> Result<Self, DeviceError> {
        let is_off = std::fs::read_to_string(NO_IPV6).is_ok_and(|text| text.trim() == "1");
        if is_off && addresses.iter().any(|network| network.addr().is_ipv6()) {
            return Err(DeviceError::NoIpv6);
        }
        let mut builder = DeviceBuilder::new().name(name).mtu(mtu).offload(true);
        let mut v4 = addresses.iter().filter_map(|network| if let IpNet::V4(v4) = network { Some(v4) } else { None });
        if let Some(first) = v4.next() {
            builder = builder.ipv4(first.addr(), first.prefix_len(), None);
        }
        for network in addresses {
            if let IpNet::V6(v6) = network {
                builder = builder.ipv6(v6.addr(), v6.prefix_len());
            }
        }
        let tun = builder.build_async().map_err(|error| DeviceError::of(error, name))?;
        // The builder keeps one address of IPv4 only.
        for network in v4 {
            let added = tun.add_address_v4(network.addr(), network.prefix_len());
            added.map_err(|error| DeviceError::Address { name: name.to_owned(), network: (*network).into(), error })?;
        }
        let name = tun.name().map_err(DeviceError::NoName)?;
        Ok(Self { tun, name })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number of the device.
    ///
    /// # Errors
    /// The device is gone.
    pub fn index(&self) -> Result<u32, DeviceError> {
        self.tun.if_index().map_err(DeviceError::NoNumber)
    }

    /// Waits for packets and hands each to `take`. What cannot be divided is handed on as an empty packet.
    ///
    /// # Errors
    /// The device is gone.
    pub async fn read(&self, inbox: &mut Inbox, mut take: impl FnMut(Vec<u8>)) -> io::Result<()> {
        let Inbox { whole, packets, sizes } = inbox;
        match self.tun.recv_multiple(whole, packets, sizes, 0).await {
            Ok(count) => {
                packets.iter().zip(&*sizes).take(count).for_each(|(packet, &size)| take(packet[..size].to_vec()))
            }
            // The system did not say this, so the packet's offloads are not understood.
            Err(error) if error.raw_os_error().is_none() => take(Vec::new()),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes the packets of `outbox`. Returns whether the kernel took all.
    pub async fn write(&self, outbox: &mut Outbox) -> bool {
        let mut took_all = true;
        for bytes in outbox.finish() {
            took_all &= self.tun.send(bytes).await.is_ok();
        }
        outbox.clear();
        took_all
    }
}

impl Inbox {
    /// Buffers for packets of at most `mtu` bytes.
    pub fn new(mtu: u16) -> Self {
        let packets = vec![vec![0; usize::from(mtu)]; MOST_PACKETS];
        Self { whole: vec![0; LONGEST_READ], packets, sizes: vec![0; MOST_PACKETS] }
    }
}

/// Why there is no device, or no address of it.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The kernel gives new devices no IPv6, and an address is of that family.
    #[error(
        "IPv6 is switched off for new devices: set net.ipv6.conf.default.disable_ipv6=0, or give IPv4 addresses only"
    )]
    NoIpv6,
    /// This process may not make devices.
    #[error("a TUN device needs the capability CAP_NET_ADMIN")]
    NotPermitted,
    /// The kernel has no TUN devices.
    #[error("{CONTROL} is missing: `modprobe tun` loads it")]
    NoControl,
    /// Another program has a device of this name.
    #[error("the device {0} is in use")]
    InUse(String),
    /// The kernel does not make it for another reason.
    #[error("cannot make the device {name}: {error}")]
    Make {
        /// The name of the device.
        name: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// The kernel does not give it an address.
    #[error("cannot give {name} the address {network}: {error}")]
    Address {
        /// The name of the device.
        name: String,
        /// The address with its prefix length.
        network: IpNet,
        /// What the kernel says.
        error: io::Error,
    },
    /// The device is gone before its name is known.
    #[error("the device has no name: {0}")]
    NoName(io::Error),
    /// The device is gone.
    #[error("the device has no number: {0}")]
    NoNumber(io::Error),
}

impl DeviceError {
    fn of(error: io::Error, name: &str) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted,
            io::ErrorKind::NotFound => Self::NoControl,
            io::ErrorKind::ResourceBusy => Self::InUse(name.to_owned()),
            _ => Self::Make { name: name.to_owned(), error },
        }
    }
}
