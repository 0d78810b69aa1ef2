//! Two hosts of one machine: a network namespace each, with one TUN device in it and nothing else that leads
//! out.
//!
//! Made by the verbs of the lab for the length of a run. What crosses from one host to the other crosses the
//! [`Emulator`](crate::emulator::Emulator) that reads and writes the two devices. Invariant: names hold the
//! process id, and are gone however this process ends: a child waits for the end of a pipe that only we hold
//! open, then ends what still runs in the hosts and removes them.

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
/// what is dropped is dropped by the link.
const DEVICE_QUEUE: &str = "10000";
/// Longest IP packet of a device: that of Ethernet.
const MTU: &str = "1500";
/// Addresses of the near and the far host (RFC 1918 section 3).
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 99, 0, 1), Ipv4Addr::new(10, 99, 0, 2)];
/// Length of their network's prefix: the two and no other (RFC 1878).
const PREFIX: u8 = 30;

/// Settings of a host's network that it does not share with the machine: nothing but the packets of the
/// programs crosses the link (no router solicitations), and one TCP connection does not learn from the one
/// before.
const SETTINGS: [(&str, &str); 3] =
    [("ipv6/conf/all/disable_ipv6", "1"), ("ipv6/conf/default/disable_ipv6", "1"), ("ipv4/tcp_no_metrics_save", "1")];

/// What removes the hosts named by its arguments once its standard input ends.
const CARETAKER: &str = r#"
trap '' INT TERM HUP
read -r _
for host in "$@"; do
    for process in $(ip netns pids "$host"); do kill -9 "$process"; done
    ip netns delete "$host"
done
"#;

/// Two namespaces, removed when dropped.
#[derive(Debug)]
pub struct Hosts {
    near: Host,
    far: Host,
    /// Behind the devices: it ends last.
    _caretaker: Caretaker,
}

/// One namespace.
#[derive(Debug)]
struct Host {
    /// Of the namespace and of its device.
    name: String,
    address: Ipv4Addr,
    device: OwnedFd,
}

impl Hosts {
    /// Makes the two hosts. They reach each other once an emulator runs on their devices.
    ///
    /// # Errors
    /// When this process may not, or the system lacks what it takes.
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

    /// The name of a host: that of its namespace, as `ip netns exec` takes it, and of its device.
    pub fn name(&self, end: End) -> &str {
        &self.host(end).name
    }

    /// The address of a host.
    pub fn address(&self, end: End) -> Ipv4Addr {
        self.host(end).address
    }

    /// The packets that a host sends, and where those for it are written to.
    ///
    /// # Errors
    /// When the process has too many files open.
    pub fn device(&self, end: End) -> io::Result<OwnedFd> {
        self.host(end).device.try_clone()
    }

    /// Packets that a host sent and the emulator did not read in time, since the hosts were made.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn unread(&self, end: End) -> anyhow::Result<u64> {
        let name = self.name(end);
        let counts = ip(&["-n", name, "-s", "-j", "link", "show", "dev", name])?;
        let counts: serde_json::Value = serde_json::from_str(&counts).context("`ip -j` does not speak JSON")?;
        counts[0]["stats64"]["tx"]["dropped"].as_u64().context("`ip -s -j link` does not count drops")
    }

    /// Changes a setting of a host's network: `key` is a path below `/proc/sys/net`.
    ///
    /// # Errors
    /// When this kernel lacks the setting, or does not take the value.
    pub fn set(&self, end: End, key: &str, value: &str) -> anyhow::Result<()> {
        set(self.name(end), key, value)
    }

    /// A command that will run `program` on a host.
    pub fn command(&self, end: End, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(end)]).arg(program);
        command
    }

    /// Runs `job` on a host: sockets that it makes stay there, whoever uses them later.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    pub fn inside<T: Send>(&self, end: End, job: impl FnOnce() -> T + Send) -> io::Result<T> {
        let namespace = File::open(format!("/run/netns/{}", self.name(end)))?;
        // A thread of its own, whose namespace ends with it.
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
            // A kernel without IPv6 lacks its keys, and needs them not.
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

/// The child that removes the hosts when this process ends or lets go of it.
#[derive(Debug)]
struct Caretaker(Child);

impl Caretaker {
    fn start(hosts: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", CARETAKER, "caretaker"]).args(hosts);
        // Ctrl-C at the terminal is for us; its own work begins when we are gone.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("cannot run `sh`")?))
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // There is nobody left to be told.
        let _ = self.0.wait();
    }
}

/// Changes a setting of the network of the namespace `host`.
fn set(host: &str, key: &str, value: &str) -> anyhow::Result<()> {
    let write = format!("echo {value} > /proc/sys/net/{key}");
    ip(&["netns", "exec", host, "sh", "-c", &write]).map(drop)
}

/// Runs `ip` of iproute2 and returns what it prints.
fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("ip").args(arguments).output().context("cannot run `ip`: install iproute2")?;
    if !output.status.success() {
        bail!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
