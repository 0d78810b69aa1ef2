//! TUN devices, through which a program reads and writes the IP packets of the kernel.
//!
//! [`Hosts`](crate::hosts::Hosts) opens one for each host and moves it into the host's namespace. The
//! [`Emulator`](crate::emulator::Emulator) reads and writes packets, one per call. Invariant: a device exists
//! as long as its descriptor is open, in whatever namespace it is, so none outlives this process. There is no
//! packet information and no offload header: the kernel splits large sends into packets and fills in
//! checksums before the packets arrive here.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::ioctl_fionbio;
use tun_rs::DeviceBuilder;

/// The file through which devices are made.
const CONTROL: &str = "/dev/net/tun";

/// Makes the device `name` and returns its descriptor, which does not block.
///
/// # Errors
/// Fails if the system has no TUN, does not allow it, or the name is taken.
pub fn open(name: &str) -> io::Result<OwnedFd> {
    if let Err(error) = OpenOptions::new().read(true).write(true).open(CONTROL) {
        return Err(io::Error::new(error.kind(), format!("{CONTROL}: {error}; load the module `tun`")));
    }
    // Down: its host gives it an address first.
    let device = DeviceBuilder::new().name(name).inherit_enable_state().build_sync()?;
    let packets = device.as_fd().try_clone_to_owned()?;
    ioctl_fionbio(&packets, true)?;
    Ok(packets)
}
