//! TUN devices: where the kernel's IP packets become bytes of ours.
//!
//! [`Hosts`](crate::hosts::Hosts) opens one for each host and moves it into the host's namespace; the
//! [`Emulator`](crate::emulator::Emulator) reads and writes packets, one a call. Invariant: a device exists
//! as long as its descriptor is open, in whatever namespace it is by then, so that none outlives this
//! process. No packet information and no offload headers: the kernel cuts large sends into packets and fills
//! in checksums before they come here.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::ioctl_fionbio;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use tun_tap::{Iface, Mode};

/// What devices are made through.
const CONTROL: &str = "/dev/net/tun";

/// Makes the device `name` and returns its packets, not blocking.
///
/// # Errors
/// When the system has no TUN, does not allow it, or the name is taken.
pub fn open(name: &str) -> io::Result<OwnedFd> {
    if let Err(error) = OpenOptions::new().read(true).write(true).open(CONTROL) {
        return Err(io::Error::new(error.kind(), format!("{CONTROL}: {error}; load the module `tun`")));
    }
    let device = Iface::without_packet_info(name, Mode::Tun)?;
    // The crate lends its descriptor as a number only; a duplicate that the system hands out is owned without
    // trust.
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let packets = pidfd_getfd(this, device.as_raw_fd(), PidfdGetfdFlags::empty())?;
    ioctl_fionbio(&packets, true)?;
    Ok(packets)
}
