//! A default route through the tunnel: everything goes through it but the tunnel's own datagrams.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::hosts::{Hosts, needs_lab, on, python};
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
const UPLINK: &str = "
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
const SNIFF: &str = "
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
const BEYOND: &str = "203.0.113.9";

fn ask(host: &str, address: &str) -> String {
    python(host, ASK, &[address, "20"])
}

fn is_reached(host: &str, address: &str) -> bool {
    python(host, ASK, &[address, "1"]) != "-"
}

fn ip(host: &str, arguments: &[&str]) -> String {
    let output = on(host, Path::new("ip")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The rules of a host, without the kernel's own.
fn rules(host: &str) -> Vec<String> {
    let printed = ip(host, &["rule"]) + &ip(host, &["-6", "rule"]);
    let own = |line: &&str| !["0:", "32766:", "32767:"].iter().any(|kernels| line.starts_with(kernels));
    printed.lines().filter(own).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn kill(mut running: Running) {
    kill_process(Pid::from_child(&running.child), Signal::KILL).unwrap();
    running.child.wait().unwrap();
}

/// The routers of the network, and a server on the far host.
struct Ways {
    hosts: Hosts,
    /// Namespaces of the two routers.
    routers: Vec<String>,
    _who: Running,
}

impl Ways {
    fn new() -> Self {
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

#[test]
#[ignore = "needs root: network namespaces"]
fn everything_goes_through_the_tunnel_but_its_own_datagrams() {
    needs_lab();
    let Ways { hosts, routers, _who } = &Ways::new();
    let (near, far) = (hosts.near.as_str(), hosts.far_address.as_str());
    let (_listener, link) = hosts.listener(&[]);
    assert!(!is_reached(near, BEYOND) && is_reached(near, far), "without a tunnel");
    let dialer = hosts.dialer(&link, &["--route", "0.0.0.0/0"]);
    let mut sniffers: Vec<_> =
        routers.iter().map(|router| Running::spawn(on(router, Path::new("python3")).arg("-c").arg(SNIFF))).collect();
    sniffers.iter_mut().for_each(|sniffer| assert_eq!(sniffer.text(), "ready"));
    assert_eq!(ask(near, BEYOND), "10.77.0.2");
    assert_eq!(ask(near, far), "10.77.0.2", "even to the address of the far side");
    let with_tunnel = rules(near);
    assert_eq!(with_tunnel.len(), 4, "{with_tunnel:?}");

    // The uplink changes: the kernel's own routes are followed.
    python(near, "open('/proc/sys/net/ipv4/conf/all/rp_filter', 'w').write('0')", &[]);
    let moved = python(near, UPLINK, &["1"]);
    assert!(ip(near, &["route", "get", far, "ipproto", "udp", "dport", "7700"]).contains(&moved));
    assert_eq!(ask(near, BEYOND), "10.77.0.2");
    for mut sniffer in sniffers {
        sniffer.interrupt();
        assert_eq!(sniffer.text(), "end", "no packet but the tunnel's");
    }

    // A killed process leaves rules that change nothing, and the next one replaces them.
    kill(dialer);
    assert!(!is_reached(near, BEYOND) && is_reached(near, far), "as without a tunnel");
    let dialer = hosts.dialer(&link, &["--route", "0.0.0.0/0"]);
    assert_eq!(ask(near, BEYOND), "10.77.0.2");
    assert_eq!(rules(near), with_tunnel);
    let second = [link.as_str(), "--address", "10.78.0.2/24", "--route", "0.0.0.0/0", "--interface", "tw2"];
    let (code, lines) = hosts.tunnel(near, &second).end();
    let said = lines.iter().rfind(|line| line["event"] == "error").unwrap()["message"].as_str().unwrap();
    assert!(code == Some(7) && said.contains("does another tunnel have it?"), "{said}");
    assert_eq!(rules(near), with_tunnel, "those of the first stay");
    dialer.interrupt();
    assert_eq!(dialer.end().0, Some(130));
    assert_eq!(rules(near), [""; 0]);
    assert!(!is_reached(near, BEYOND) && is_reached(near, far));
}

/// A listener answers peers at any address, so what leaves from its port passes.
#[test]
#[ignore = "needs root: network namespaces"]
fn a_listener_can_have_the_default_route_too() {
    needs_lab();
    let Ways { hosts, .. } = &Ways::new();
    let near_address = python(&hosts.near, UPLINK, &["0"]);
    let arguments = ["--listen", &format!("{near_address}:7700"), "--address", "10.77.0.2/24", "--route", "0.0.0.0/0"];
    let mut listener = hosts.tunnel(&hosts.near, &arguments);
    let link = listener.wait_for("link")["link"].as_str().unwrap().to_owned();
    let mut dialer = hosts.tunnel(&hosts.far, &[&link, "--address", "10.77.0.1/24"]);
    dialer.wait_for("connected");
    assert_eq!(ask(&hosts.near, BEYOND), "10.77.0.2");
    listener.interrupt();
    assert_eq!(listener.end().0, Some(130));
    assert_eq!(rules(&hosts.near), [""; 0]);
}

#[test]
#[ignore = "needs root: network namespaces"]
fn ipv6_has_a_default_route_of_its_own() {
    needs_lab();
    let Ways { hosts, .. } = &Ways::new();
    ip(&hosts.far, &["-6", "address", "add", "2001:db8::9/128", "dev", "lo"]);
    let (_listener, link) = hosts.listener(&["--address", "fd77::1/64"]);
    let dialer = hosts.dialer(&link, &["--address", "fd77::2/64", "--route", "::/0"]);
    assert_eq!(ask(&hosts.near, "2001:db8::9"), "fd77::2");
    assert!(!is_reached(&hosts.near, BEYOND), "IPv4 stays as it was");
    dialer.interrupt();
    assert_eq!(dialer.end().0, Some(130));
    assert_eq!(rules(&hosts.near), [""; 0]);
}
