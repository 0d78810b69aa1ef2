//! Two hosts on one machine: each is a network namespace with one TUN device and no other way out.
//!
//! The verbs of the lab make them for one run. Packets between the hosts cross the
//! [`Emulator`](crate::emulator::Emulator), which reads and writes the two devices. Invariant: names contain
//! the process id, and the hosts are removed however this process ends: a child waits for the end of a pipe
//! that only this process holds open, ends what still runs in the hosts, and removes them.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tidewire_sim::pair::End;

use super::tun;

/// Packets that a device holds until the emulator reads them: more than a whole TCP window of 4 MiB, so that
/// only the link drops packets.
const DEVICE_QUEUE: &str = "10000";
/// Longest IP packet of a device: that of Ethernet.
const MTU: &str = "1500";
/// Addresses of the near and the far host (RFC 1918 section 3).
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 99, 0, 1), Ipv4Addr::new(10, 99, 0, 2)];
/// Prefix length of their network, which has two addresses (RFC 1878).
const PREFIX: u8 = 30;

/// Settings of a host's network that differ from the machine's. Only packets of programs cross the link (no
/// router solicitations), and a TCP connection does not learn from an earlier one.
const SETTINGS: [(&str, &str); 3] =
    [("ipv6/conf/all/disable_ipv6", "1"), ("ipv6/conf/default/disable_ipv6", "1"), ("ipv4/tcp_no_metrics_save", "1")];

/// A script that removes the hosts named by its arguments when its standard input ends.
const CARETAKER: &str = r#"
trap '' INT TERM HUP
read -r _
for host in "$@"; do
    for process in $(ip netns pids "$host"); do kill -9 "$process"; done
    ip netns delete "$host"
done
"#;

/// Two namespaces, which are removed when this value is dropped.
#[derive(Debug)]
pub struct Hosts {
    near: Host,
    far: Host,
    /// After the devices, because fields are dropped in order.
    _caretaker: Caretaker,
}

/// One namespace.
#[derive(Debug)]
struct Host {
    /// Name of the namespace and of its device.
    name: String,
    address: Ipv4Addr,
    device: OwnedFd,
}

impl Hosts {
    /// Makes the two hosts. They can reach each other when an emulator runs on their devices.
    ///
    /// # Errors
    /// Fails if this process lacks the privilege, or the system lacks a program.
    pub fn start() -> anyhow::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("network namespaces need root: use sudo, or `tidewire lab link`, which needs no privileges");
        }
        // As long as the kernel allows: 15 characters with a process id of 7 digits.
        let [near, far] = ["near", "far"].map(|end| format!("tw-{}-{end}", std::process::id()));
        let caretaker = Caretaker::start(&[&near, &far])?;
        let [near_address, far_address] = ADDRESSES;
        Ok(Self { near: Host::start(near, near_address)?, far: Host::start(far, far_address)?, _caretaker: caretaker })
    }

    /// Name of a host: that of its namespace, for `ip netns exec`, and of its device.
    pub fn name(&self, end: End) -> &str {
        &self.host(end).name
    }

    /// The address of a host.
    pub fn address(&self, end: End) -> Ipv4Addr {
        self.host(end).address
    }

    /// The device: packets that the host sends are read from it, and packets for the host are written to it.
    ///
    /// # Errors
    /// Fails if the process has too many open files.
    pub fn device(&self, end: End) -> io::Result<OwnedFd> {
        self.host(end).device.try_clone()
    }

    /// Packets that a host sent and the emulator did not read in time, since the hosts were made.
    ///
    /// # Errors
    /// Fails if the system does not report it.
    pub fn unread(&self, end: End) -> anyhow::Result<u64> {
        let name = self.name(end);
        let counts = ip(&["-n", name, "-s", "-j", "link", "show", "dev", name])?;
        let counts: serde_json::Value = serde_json::from_str(&counts).context("`ip -j` does not speak JSON")?;
        counts[0]["stats64"]["tx"]["dropped"].as_u64().context("`ip -s -j link` does not count drops")
    }

    /// Changes a setting of a host's network. `key` is a path below `/proc/sys/net`.
    ///
    /// # Errors
    /// Fails if this kernel lacks the setting, or refuses the value.
    pub fn set(&self, end: End, key: &str, value: &str) -> anyhow::Result<()> {
        set(self.name(end), key, value)
    }

    /// A command that runs `program` on a host.
    pub fn command(&self, end: End, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(end)]).arg(program);
        command
    }

    /// Runs `job` on a host. Sockets made by it stay there, whoever uses them later.
    ///
    /// # Errors
    /// Fails if the namespace cannot be entered.
    pub fn inside<T: Send>(&self, end: End, job: impl FnOnce() -> T + Send) -> io::Result<T> {
        let namespace = File::open(format!("/run/netns/{}", self.name(end)))?;
        // A separate thread, because a thread keeps the namespace that it entered.
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(job())
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn host(&self, end: End) -> &Host {
        match end {
            End::Near => &self.near,
            End::Far => &self.far,
        }
    }
}

impl Host {
    fn start(name: String, address: Ipv4Addr) -> anyhow::Result<Self> {
        ip(&["netns", "add", &name])?;
        for (key, value) in SETTINGS {
            // A kernel without IPv6 lacks these keys and does not need them.
            let _ = set(&name, key, value);
        }
        let device = tun::open(&name).context("cannot make a TUN device")?;
        ip(&["link", "set", &name, "netns", &name])?;
        let inside = |arguments: &[&str]| ip(&[&["-n", &name], arguments].concat());
        inside(&["address", "add", &format!("{address}/{PREFIX}"), "dev", &name])?;
        inside(&["link", "set", "lo", "up"])?;
        inside(&["link", "set", &name, "mtu", MTU, "txqueuelen", DEVICE_QUEUE, "up"])?;
        inside(&["route", "add", "default", "dev", &name])?;
        Ok(Self { name, address, device })
    }
}

/// The child process that removes the hosts when this process ends or drops it.
#[derive(Debug)]
struct Caretaker(Child);

impl Caretaker {
    fn start(hosts: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", CARETAKER, "caretaker"]).args(hosts);
        // Ctrl-C at the terminal is meant for this process. The child's work begins after that.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("cannot run `sh`")?))
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Nobody is left who could be told about an error.
        let _ = self.0.wait();
    }
}

/// Changes a setting of the network of the namespace `host`.
fn set(host: &str, key: &str, value: &str) -> anyhow::Result<()> {
    let write = format!("echo {value} > /proc/sys/net/{key}");
    ip(&["netns", "exec", host, "sh", "-c", &write]).map(drop)
}

/// Runs `ip` of iproute2 and returns its output.
fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("ip").args(arguments).output().context("cannot run `ip`: install iproute2")?;
    if !output.status.success() {
        bail!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
