//! Hosts for tests of AF_XDP: network namespaces, each with one interface `eth0` that leads to a common
//! switch.
//!
//! The switch is a namespace with a bridge, and each interface is one end of a veth pair whose other end is a
//! port of the bridge. A test calls [`host`] from its own thread, which lives in the switch's namespace from
//! then on: plain sockets of the test are at [`SWITCH_V4`]. A socket stays in the namespace in which it was
//! made, so one thread can drive both ends, and a process stays in the one in which it was started. The tests
//! of the command include this file too. Invariant: no namespace has a name, so the kernel removes them
//! all when the process ends, however it ends.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, setns, unshare};

/// The switch's own address.
pub const SWITCH_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1));

/// The interface of each host.
pub const INTERFACE: &str = "eth0";

/// A host; see the module.
pub struct Host {
    namespace: File,
    switch: File,
    /// Number of the host, from 1. Its port of the switch is `port{number}`.
    pub number: u8,
    /// Its addresses, of which the first is the one that it sends from by itself.
    pub v4: [IpAddr; 3],
    pub v6: IpAddr,
}

/// The namespace of the switch of this thread, and how many hosts it has.
struct Switch {
    namespace: File,
    hosts: u8,
}

thread_local! {
    static SWITCH: RefCell<Option<Switch>> = const { RefCell::new(None) };
}

/// Moves this thread into the namespace of its switch.
pub fn enter_switch() {
    tidewire_testing::needs("root, for network namespaces", nix::unistd::Uid::effective().is_root());
    SWITCH.with_borrow_mut(|switch| {
        switch.get_or_insert_with(Switch::new);
    });
}

/// Makes a host whose interface has so many queues.
pub fn host(queues: u32) -> Host {
    enter_switch();
    SWITCH.with_borrow_mut(|switch| {
        let switch = switch.as_mut().expect("entered");
        switch.hosts += 1;
        Host::new(switch.hosts, &switch.namespace, queues)
    })
}

impl Switch {
    fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).expect("root");
        // Without an address of its own, a bridge takes that of a port, and another one when that port goes.
        batch(&format!(
            "link set lo up
            link add br0 address 02:00:00:00:78:01 type bridge mcast_snooping 0
            address add {SWITCH_V4}/16 dev br0
            address add fd78::1/64 dev br0 nodad
            link set br0 up"
        ));
        Self { namespace: current(), hosts: 0 }
    }
}

impl Host {
    fn new(number: u8, switch: &File, queues: u32) -> Self {
        let v4 = [1, 2, 3].map(|last| Ipv4Addr::new(10, 78, number, last));
        let v6 = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, number.into(), 1);
        unshare(CloneFlags::CLONE_NEWNET).expect("root");
        // `ip` finds the other namespace through our descriptor of it.
        let there = format!("/proc/{}/fd/{}", std::process::id(), switch.as_raw_fd());
        let [first, second, third] = v4;
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        batch(&format!(
            "link set lo up
            link add {INTERFACE} {queues} type veth peer name port{number} netns {there} {queues}
            address add {first}/16 dev {INTERFACE}
            address add {second}/16 dev {INTERFACE}
            address add {third}/16 dev {INTERFACE}
            address add {v6}/64 dev {INTERFACE} nodad
            link set {INTERFACE} up"
        ));
        let host = Self {
            namespace: current(),
            switch: switch.try_clone().expect("a descriptor"),
            number,
            v4: v4.map(IpAddr::V4),
            v6: v6.into(),
        };
        enter(switch);
        batch(&format!("link set port{number} master br0 up"));
        host
    }

    /// Runs something in the namespace of the host.
    pub fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        let _back = Back(&self.switch);
        enter(&self.namespace);
        work()
    }

    /// Runs lines of `ip -batch` in the namespace of the host.
    pub fn ip(&self, lines: &str) {
        self.enter(|| batch(lines));
    }

    /// The hook of the interface that has a program: `xdp` is the driver's, `xdpgeneric` the generic one.
    pub fn hook(&self, interface: &str) -> Option<String> {
        let shown = self.enter(|| Command::new("ip").args(["link", "show", "dev", interface]).output());
        let shown = String::from_utf8(shown.expect("ip is there").stdout).expect("text");
        shown.split_whitespace().find(|word| word.starts_with("xdp")).map(str::to_owned)
    }

    /// Datagrams that the kernel gave to UDP sockets, and those that it sent for them.
    pub fn by_kernel(&self) -> [u64; 2] {
        let v4 = ["InDatagrams", "OutDatagrams"].map(|name| self.counter_v4("Udp", name));
        let v6 = ["Udp6InDatagrams", "Udp6OutDatagrams"].map(|name| self.counter_v6(name));
        [v4[0] + v6[0], v4[1] + v6[1]]
    }

    /// A counter of `/proc/net/snmp`: a line of names, then a line of values.
    pub fn counter_v4(&self, protocol: &str, name: &str) -> u64 {
        let text = self.enter(|| fs::read_to_string("/proc/thread-self/net/snmp")).expect("proc is mounted");
        let mut lines = text.lines().filter(|line| line.split(':').next() == Some(protocol));
        let [names, values] = [lines.next(), lines.next()].map(|line| line.expect("two lines").split(' '));
        let value = names.zip(values).find(|(found, _)| *found == name).expect("a counter").1;
        value.parse().expect("a number")
    }

    /// A counter of `/proc/net/snmp6`: a line for each.
    pub fn counter_v6(&self, name: &str) -> u64 {
        let text = self.enter(|| fs::read_to_string("/proc/thread-self/net/snmp6")).expect("proc is mounted");
        let mut lines = text.lines().map(|line| line.split_whitespace());
        let mut line = lines.find(|line| line.clone().next() == Some(name)).expect("a counter");
        line.nth(1).expect("a value").parse().expect("a number")
    }
}

/// Returns to the switch's namespace, also from a panic.
struct Back<'a>(&'a File);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        enter(self.0);
    }
}

fn enter(namespace: &File) {
    setns(namespace, CloneFlags::CLONE_NEWNET).expect("root");
}

fn current() -> File {
    File::open("/proc/thread-self/ns/net").expect("proc is mounted")
}

/// Runs lines of `ip -batch` in the namespace of this thread.
pub fn batch(lines: &str) {
    let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip is there");
    ip.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("read");
    assert!(ip.wait().expect("a child").success(), "{lines}");
}
