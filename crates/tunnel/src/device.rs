//! The TUN device: packets of the kernel, many in each system call.
//!
//! [`crate::hub`] reads and writes it. With the offloads of the kernel, one read returns a TCP send of up to
//! 64 KiB, which is divided here, and one write takes what [`crate::outbox`] joined. Invariant: a device that
//! is made here is not persistent, so the kernel removes it with its addresses and routes when this process
//! ends, however it ends. A persistent device that was there before is used and left as it was.

use std::io;
use std::sync::Arc;

use ipnet::IpNet;
use tun_rs::{AsyncDevice, DeviceBuilder, VIRTIO_NET_HDR_LEN};

use crate::interface::{Interface, Ipv6, Part};
use crate::netlink::Netlink;
use crate::outbox::Outbox;

/// Bytes of the longest read: the largest IP packet, and the header with its offloads.
const LONGEST_READ: usize = VIRTIO_NET_HDR_LEN + 65_535;
/// Packets of a read at most: 64 KiB in segments of 128 bytes.
const MOST_PACKETS: usize = 512;
/// The file through which devices are made.
const CONTROL: &str = "/dev/net/tun";

/// What the kernel answers to a read of a device that was deleted: `EBADFD`, which has no kind of its own.
const BAD_STATE: i32 = 77;
/// The same in words.
pub const DELETED: &str = "another program deleted it";

/// A TUN device that is up.
pub struct Device {
    tun: AsyncDevice,
    interface: Arc<Interface>,
}

/// The buffers of a reader.
pub struct Inbox {
    whole: Vec<u8>,
    packets: Vec<Vec<u8>>,
    sizes: Vec<usize>,
}

impl Device {
    /// Makes a device with these addresses, for packets of at most `mtu` bytes, or takes a persistent one of
    /// this name that no other program uses.
    ///
    /// # Errors
    /// See [`DeviceError`].
    pub async fn create(name: &str, addresses: &[IpNet], mtu: u16) -> Result<Self, DeviceError> {
        let make = |error| DeviceError::Make { name: name.to_owned(), error };
        let before = Netlink::open().map_err(make)?.named(name).await.map_err(make)?;
        let is_there = before.is_some();
        let built = DeviceBuilder::new().name(name).offload(true).inherit_enable_state().build_async();
        let tun = built.map_err(|error| DeviceError::of(error, name, is_there))?;
        let interface = Interface::of(name, addresses, mtu, before).await.map_err(make)?;
        if addresses.iter().any(|network| network.addr().is_ipv6()) && interface.ipv6().await.map_err(make)? != Ipv6::On
        {
            return Err(DeviceError::NoIpv6);
        }
        if let Err((part, error)) = interface.ensure().await {
            interface.restore().await;
            return Err(match part {
                Part::Address(network) => DeviceError::Address { name: name.to_owned(), network, error },
                _ => DeviceError::of(error, name, false),
            });
        }
        Ok(Self { tun, interface: Arc::new(interface) })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        self.interface.name()
    }

    /// The device as the kernel's routing knows it.
    pub(crate) fn interface(&self) -> &Arc<Interface> {
        &self.interface
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
            Err(error) if error.raw_os_error() == Some(BAD_STATE) => {
                return Err(io::Error::new(io::ErrorKind::NotFound, DELETED));
            }
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
    /// There is a device of this name that is no TUN device, or has several queues.
    #[error("the device {0} is there and is no TUN device that this program can use (`ip -d link show {0}`)")]
    OfAnotherKind(String),
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
}

impl DeviceError {
    fn of(error: io::Error, name: &str, is_there: bool) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidInput if is_there => Self::OfAnotherKind(name.to_owned()),
            io::ErrorKind::PermissionDenied => Self::NotPermitted,
            io::ErrorKind::NotFound => Self::NoControl,
            io::ErrorKind::ResourceBusy => Self::InUse(name.to_owned()),
            _ => Self::Make { name: name.to_owned(), error },
        }
    }
}
