//! A host with two ways to another, and what its kernel does with packets: for tests of routes of a tunnel.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::hosts::{Hosts, on, python};
use crate::process::Running;

/// A client with two ways to a server, each over a router of its own.
const NETWORK: &str = r#"
seed = 1
[[node]]
name = "near"
[[node]]
name = "one"
role = "router"
[[node]]
name = "two"
role = "router"
[[node]]
name = "far"
[[link]]
from = "near"
to = "one"
rtt = "2ms"
[[link]]
from = "one"
to = "far"
rtt = "2ms"
[[link]]
from = "near"
to = "two"
rtt = "2ms"
[[link]]
from = "two"
to = "far"
rtt = "2ms"
"#;

/// Leads what has no other route over the n-th link, as DHCP does. The lab has a route to each address.
pub const UPLINK: &str = "
import subprocess, sys
run = lambda *words: subprocess.run(['ip', *words], check=True, capture_output=True, text=True).stdout
devices = [line.split()[1].split('@')[0].rstrip(':') for line in run('-o', 'link').splitlines()]
uplinks = sorted(device for device in devices if device != 'lo' and not device.startswith(('tidewire', 'tunl', 'sit', 'gre', 'ip')))
for route in run('route', 'show', 'table', 'main').splitlines():
    if '/' not in route.split()[0] and 'tidewire' not in route: run('route', 'del', *route.split())
run('route', 'add', 'default', 'dev', uplinks[int(sys.argv[1])])
print(run('-4', '-o', 'address', 'show', 'dev', uplinks[int(sys.argv[1])]).split()[3].split('/')[0])
";

/// Prints the protocol and destination of every IP packet that is not UDP to or from port 7700, until it is
/// interrupted.
pub const SNIFF: &str = "
import signal, socket
# A test that runs in the background of a shell has the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
print('ready', flush=True)
try:
    while True:
        p, at = s.recvfrom(2000)
        ports = (int.from_bytes(p[20:22], 'big'), int.from_bytes(p[22:24], 'big'))
        if at[1] == 0x800 and not (p[9] == 17 and 7700 in ports): print(p[9], socket.inet_ntoa(p[16:20]), ports, flush=True)
except KeyboardInterrupt: print('end', flush=True)
";

/// Tells each client its address, on port 5000 of every address.
const WHO: &str = "
import socket, sys
s = socket.create_server(('::', 5000), family=socket.AF_INET6, dualstack_ipv6=True)
print('ready', flush=True)
while True:
    c, a = s.accept(); c.sendall(a[0].replace('::ffff:', '').encode()); c.close()
";

/// Asks the server at an address who we are; `-` if it does not answer.
const ASK: &str = "
import socket, sys
try: print(socket.create_connection((sys.argv[1], 5000), timeout=float(sys.argv[2])).recv(100).decode())
except OSError: print('-')
";

/// An address of the far host that no router knows.
pub const BEYOND: &str = "203.0.113.9";

pub fn ask(host: &str, address: &str) -> String {
    python(host, ASK, &[address, "20"])
}

pub fn is_reached(host: &str, address: &str) -> bool {
    python(host, ASK, &[address, "1"]) != "-"
}

pub fn ip(host: &str, arguments: &[&str]) -> String {
    let output = on(host, Path::new("ip")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The rules of a host, without the kernel's own.
pub fn rules(host: &str) -> Vec<String> {
    let printed = ip(host, &["rule"]) + &ip(host, &["-6", "rule"]);
    let own = |line: &&str| !["0:", "32766:", "32767:"].iter().any(|kernels| line.starts_with(kernels));
    printed.lines().filter(own).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

pub fn kill(mut running: Running) {
    kill_process(Pid::from_child(&running.child), Signal::KILL).unwrap();
    running.child.wait().unwrap();
}

/// The routers of the network, and a server on the far host.
pub struct Ways {
    pub hosts: Hosts,
    /// Namespaces of the two routers.
    pub routers: Vec<String>,
    pub _who: Running,
}

impl Ways {
    pub fn new() -> Self {
        let (hosts, nodes) = Hosts::of_network(NETWORK);
        for host in [&hosts.near, &hosts.far] {
            for device in ["default", "lo"] {
                let enable = format!("open('/proc/sys/net/ipv6/conf/{device}/disable_ipv6', 'w').write('0')");
                python(host, &enable, &[]);
            }
        }
        ip(&hosts.far, &["address", "add", &format!("{BEYOND}/32"), "dev", "lo"]);
        python(&hosts.near, UPLINK, &["0"]);
        // The strictest setting: packets are dropped unless the answer would leave where they came.
        python(&hosts.near, "open('/proc/sys/net/ipv4/conf/all/rp_filter', 'w').write('1')", &[]);
        let mut who = Running::spawn(on(&hosts.far, Path::new("python3")).arg("-c").arg(WHO));
        assert_eq!(who.text(), "ready");
        Self { hosts, routers: nodes[1..3].to_vec(), _who: who }
    }
}
