//! The TUN device: packets of the kernel, many in each system call.
//!
//! [`super::hub`] reads and writes it. With the offloads of the kernel, one read returns a TCP send of up to
//! 64 KiB, which is divided here, and one write takes what can be joined again. Invariant: the device is not
//! persistent, so the kernel removes it with its addresses and routes when this process ends, however it
//! ends.

use std::io;

use anyhow::{Context, anyhow, bail};
use ipnet::IpNet;
use tun_rs::{AsyncDevice, DeviceBuilder, GROTable, VIRTIO_NET_HDR_LEN};

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

/// The buffers of a writer.
#[derive(Default)]
pub struct Outbox {
    packets: Vec<Vec<u8>>,
    joined: GROTable,
}

impl Device {
    /// Makes a device with these addresses, for packets of at most `mtu` bytes.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn create(name: &str, addresses: &[IpNet], mtu: u16) -> anyhow::Result<Self> {
        let is_off = std::fs::read_to_string(NO_IPV6).is_ok_and(|text| text.trim() == "1");
        if is_off && addresses.iter().any(|network| network.addr().is_ipv6()) {
            bail!(
                "IPv6 is switched off for new devices: set net.ipv6.conf.default.disable_ipv6=0, or give IPv4 addresses only"
            );
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
        let tun = builder.build_async().map_err(|error| cause(&error, name))?;
        // The builder keeps one address of IPv4 only.
        for network in v4 {
            let added = tun.add_address_v4(network.addr(), network.prefix_len());
            added.with_context(|| format!("cannot give {name} the address {network}"))?;
        }
        let name = tun.name().context("the device has no name")?;
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
    pub fn index(&self) -> anyhow::Result<u32> {
        self.tun.if_index().context("the device has no number")
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
        let written = self.tun.send_multiple(&mut outbox.joined, &mut outbox.packets, VIRTIO_NET_HDR_LEN).await;
        outbox.packets.clear();
        written.is_ok()
    }
}

impl Inbox {
    /// Buffers for packets of at most `mtu` bytes.
    pub fn new(mtu: u16) -> Self {
        let packets = vec![vec![0; usize::from(mtu)]; MOST_PACKETS];
        Self { whole: vec![0; LONGEST_READ], packets, sizes: vec![0; MOST_PACKETS] }
    }
}

impl Outbox {
    /// Adds a packet to the next write.
    pub fn push(&mut self, packet: &[u8]) {
        let mut bytes = Vec::with_capacity(VIRTIO_NET_HDR_LEN + packet.len());
        bytes.resize(VIRTIO_NET_HDR_LEN, 0);
        bytes.extend_from_slice(packet);
        self.packets.push(bytes);
    }

    /// Whether it holds no packet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

/// Why the kernel made no device, and what to do.
fn cause(error: &io::Error, name: &str) -> anyhow::Error {
    let instead = "without it, `tidewire forward` carries TCP connections";
    match error.kind() {
        io::ErrorKind::PermissionDenied => anyhow!(
            "a TUN device needs the capability CAP_NET_ADMIN: run as root, or `sudo setcap cap_net_admin+ep $(which tidewire)`; {instead}"
        ),
        io::ErrorKind::NotFound => anyhow!("{CONTROL} is missing: `modprobe tun` loads it; {instead}"),
        io::ErrorKind::ResourceBusy => anyhow!("the device {name} is in use: choose another --interface"),
        _ => anyhow!("cannot make the device {name}: {error}"),
    }
}
