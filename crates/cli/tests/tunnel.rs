//! `tidewire tunnel up` between two hosts of the lab: real devices, kernel TCP and lost packets. Tests that
//! need root and TUN say so and pass where these are missing.
#![cfg(target_os = "linux")]

#[path = "process/mod.rs"]
mod process;
#[path = "schema/mod.rs"]
mod schema;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;
use process::{Running, tidewire};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Whether this machine and user can have a lab. If not, prints why.
fn has_lab() -> bool {
    let tun = || fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok();
    let tools = || ["ip", "python3"].iter().all(|tool| Command::new(tool).arg("-V").output().is_ok());
    let has = rustix::process::geteuid().is_root() && tun() && tools();
    if !has {
        eprintln!("skipped: a tunnel needs root, /dev/net/tun, iproute2 and python3");
    }
    has
}

/// Two hosts joined by an emulated link.
struct Hosts {
    _lab: Running,
    near: String,
    far: String,
    far_address: String,
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Hosts {
    fn new(link: &str) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let scenario = folder.path().join("link.toml");
        fs::write(&scenario, format!("[link]\n{link}\n")).unwrap();
        let mut lab = Running::start(&["lab", "up", "--json", scenario.to_str().unwrap()]);
        let hosts = lab.line();
        let name = |key: &str| hosts[key].as_str().unwrap_or_else(|| panic!("{hosts}")).to_owned();
        let (near, far, far_address) = (name("near"), name("far"), name("far_address"));
        Self { _lab: lab, near, far, far_address, folder, _turn: turn }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_owned();
        assert!(Command::new("chmod").args(["600", &path]).status().unwrap().success());
        path
    }

    /// Starts `tunnel up` on a host.
    fn tunnel(&self, host: &str, arguments: &[&str]) -> Running {
        let mut command = on(host, cargo_bin("tidewire").as_path());
        command.args(["tunnel", "up", "--json"]).args(arguments);
        command.env_remove("TIDEWIRE_LINK").env("TIDEWIRE_CONFIG", "/dev/null");
        Running::spawn(&mut command)
    }

    /// Starts a listener on the far host with the address 10.77.0.1, and returns its link.
    fn listener(&self, arguments: &[&str]) -> (Running, String) {
        let address = format!("{}:7700", self.far_address);
        let own = ["--listen", &address, "--address", "10.77.0.1/24"];
        let mut listener = self.tunnel(&self.far, &[&own[..], arguments].concat());
        let link = listener.wait_for("link")["link"].as_str().unwrap().to_owned();
        (listener, link)
    }

    /// Connects the near host with the address 10.77.0.2.
    fn dialer(&self, link: &str, arguments: &[&str]) -> Running {
        let own = [link, "--address", "10.77.0.2/24"];
        let mut dialer = self.tunnel(&self.near, &[&own[..], arguments].concat());
        dialer.wait_for("connected");
        dialer
    }
}

fn on(host: &str, program: &Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", host]).arg(program).stdin(Stdio::null());
    command
}

/// Runs a Python program on a host, and returns what it printed.
fn python(host: &str, program: &str, arguments: &[&str]) -> String {
    let output = on(host, Path::new("python3")).arg("-c").arg(program).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Counts of the last state that a tunnel reported.
fn counts(tunnel: Running) -> Value {
    tunnel.interrupt();
    let (code, lines) = tunnel.end();
    assert_eq!(code, Some(130));
    lines.iter().rfind(|line| line["event"] == "state").expect("a state at the end")["packets"].clone()
}

/// A TCP server on port 5000 that answers each connection with the digest of what it got.
const SERVER: &str = "
import socket, hashlib, threading, sys
s = socket.create_server((sys.argv[1], 5000), family=socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)
print('ready', flush=True)
def serve(c):
    h = hashlib.sha256()
    while (d := c.recv(65536)): h.update(d)
    c.sendall(h.hexdigest().encode()); c.close()
while True: threading.Thread(target=serve, args=(s.accept()[0],)).start()
";

/// Sends bytes to the server and compares its digest. Prints the largest segment that the kernel used.
const CLIENT: &str = "
import socket, hashlib, os, sys
c = socket.create_connection((sys.argv[1], 5000), timeout=60)
d = os.urandom(int(sys.argv[2])); c.sendall(d)
mss = c.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
c.shutdown(socket.SHUT_WR); r = b''
while (x := c.recv(100)): r += x
assert r.decode() == hashlib.sha256(d).hexdigest(), r
print(mss)
";

fn server(host: &str, address: &str) -> Running {
    let mut server = Running::spawn(on(host, Path::new("python3")).arg("-c").arg(SERVER).arg(address));
    assert_eq!(server.text(), "ready");
    server
}

#[test]
fn tcp_crosses_losses_in_both_families() {
    if !has_lab() {
        return;
    }
    let hosts = Hosts::new("rate = \"50mbit\"\nrtt = \"20ms\"\nloss = \"5%\"");
    // The lab's hosts have no IPv6.
    for host in [&hosts.near, &hosts.far] {
        python(host, "open('/proc/sys/net/ipv6/conf/default/disable_ipv6', 'w').write('0')", &[]);
    }
    let (listener, link) = hosts.listener(&["--address", "fd77::1/64"]);
    let dialer = hosts.dialer(&link, &["--address", "fd77::2/64"]);
    for (address, header) in [("10.77.0.1", 40), ("fd77::1", 60)] {
        let _server = server(&hosts.far, address);
        let mss: u32 = python(&hosts.near, CLIENT, &[address, "3000000"]).parse().unwrap();
        assert_eq!(mss, 1_420 - header - 12, "the MTU without the headers and the timestamps");
    }
    let (sent, received) = (counts(dialer), counts(listener));
    let bytes = |counts: &Value, key: &str| counts[key]["bytes"].as_u64().unwrap();
    assert!(bytes(&sent, "sent") > 6_000_000 && bytes(&received, "received") > 6_000_000, "{sent} {received}");
    for counts in [sent, received] {
        for reason in ["malformed", "spoofed", "too_long", "refused", "overflow"] {
            assert_eq!(counts["dropped"][reason], 0, "{reason}: {counts}");
        }
    }
}

/// Combinations instead of packets, for TCP that controls its rate itself.
#[test]
fn tcp_crosses_losses_as_combinations_without_another_rate_control() {
    if !has_lab() {
        return;
    }
    let hosts = Hosts::new("rate = \"50mbit\"\nrtt = \"20ms\"\nqueue = \"20ms\"\nloss = \"2%\"");
    for options in [
        &["--profile", "pipeline", "--redundancy", "pipeline:16,1.25,open", "--rate-control", "open"][..],
        &["--profile", "bucket"],
    ] {
        let (listener, link) = hosts.listener(options);
        let dialer = hosts.dialer(&link, options);
        let _server = server(&hosts.far, "10.77.0.1");
        python(&hosts.near, CLIENT, &["10.77.0.1", "3000000"]);
        for counts in [counts(dialer), counts(listener)] {
            for reason in ["malformed", "spoofed", "too_long", "refused"] {
                assert_eq!(counts["dropped"][reason], 0, "{reason}: {counts}");
            }
        }
    }
}

/// A packet whose source belongs to nobody or to us, and one whose destination no peer has.
#[test]
fn spoofed_and_homeless_packets_are_dropped_and_counted() {
    if !has_lab() {
        return;
    }
    let hosts = Hosts::new("rtt = \"4ms\"");
    let (listener, link) = hosts.listener(&["--route", "192.168.7.0/24"]);
    // The near end leads more networks into the tunnel than the far end accepts from it.
    let dialer = hosts.dialer(&link, &["--route", "172.16.0.0/12", "--interface", "tw9"]);
    let send = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for source in sys.argv[2:]:
    head = bytes([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]) + socket.inet_aton(source) + socket.inet_aton(sys.argv[1])
    s.sendto(head + bytes([0, 9, 0, 9, 0, 8, 0, 0]), (sys.argv[1], 0))
import time; time.sleep(0.3)
";
    python(&hosts.near, send, &["10.77.0.1", "10.77.0.2", "10.77.0.9", "192.168.7.7", "8.8.8.8", "10.77.0.1"]);
    let unreachable = "
import socket
import subprocess
subprocess.run(['ip', 'route', 'add', '203.0.113.0/24', 'dev', 'tw9'], check=True)
IP_RECVERR = 11
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
s.connect(('203.0.113.5', 9)); s.send(b'x')
import time; time.sleep(0.3)
try: s.send(b'x'); print('sent')
except OSError as e: print(e.errno)
";
    assert_eq!(python(&hosts.near, unreachable, &[]), "113", "EHOSTUNREACH, from our ICMP answer");
    let (near, far) = (counts(dialer), counts(listener));
    assert_eq!(far["dropped"]["spoofed"], 2, "8.8.8.8, and the listener's own address: {far}");
    assert!(near["dropped"]["no_peer"].as_u64().unwrap() >= 1, "{near}");
}

/// The far end takes shorter packets than the near end's device allows.
#[test]
fn longer_packets_than_the_peer_takes_are_answered_and_tcp_shrinks() {
    if !has_lab() {
        return;
    }
    let hosts = Hosts::new("rtt = \"4ms\"");
    let (_listener, link) = hosts.listener(&["--mtu", "1280"]);
    let dialer = hosts.dialer(&link, &["--mtu", "1500"]);
    let _server = server(&hosts.far, "10.77.0.1");
    let mss: u32 = python(&hosts.near, CLIENT, &["10.77.0.1", "200000"]).parse().unwrap();
    assert!(mss <= 1_280 - 40, "{mss}");
    let discover = "
import socket, time
IP_MTU_DISCOVER, IP_MTU, DO = 10, 14, 2
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, DO)
s.connect(('10.77.0.1', 9)); s.send(bytes(1400)); time.sleep(0.3)
print(s.getsockopt(socket.IPPROTO_IP, IP_MTU))
";
    assert_eq!(python(&hosts.near, discover, &[]), "1280");
    assert!(counts(dialer)["dropped"]["too_long"].as_u64().unwrap() >= 1);
}

/// A connection that writes a line ten times a second, and prints the longest time without an echo.
const HEARTBEAT: &str = "
import socket, time, sys
c = socket.create_connection((sys.argv[1], 5001), timeout=60); longest = 0; end = time.time() + float(sys.argv[2])
print('ready', flush=True)
while time.time() < end:
    begun = time.time(); c.sendall(b'x'); assert c.recv(1) == b'x'
    longest = max(longest, time.time() - begun); time.sleep(0.1)
print('%.2f' % longest)
";

const ECHO: &str = "
import socket, threading
s = socket.create_server(('0.0.0.0', 5001)); print('ready', flush=True)
def serve(c):
    while (d := c.recv(1000)): c.sendall(d)
while True: threading.Thread(target=serve, args=(s.accept()[0],)).start()
";

#[test]
fn flows_go_on_after_either_end_was_killed() {
    if !has_lab() {
        return;
    }
    let hosts = Hosts::new("rtt = \"10ms\"\nloss = \"2%\"");
    let secret = String::from_utf8(tidewire(&["keygen"]).output().unwrap().stdout).unwrap();
    let key = hosts.file("secret", secret.lines().next().unwrap());
    let (mut listener, link) = hosts.listener(&["--key", &key]);
    let mut dialer = hosts.dialer(&link, &[]);
    let mut echo = Running::spawn(on(&hosts.far, Path::new("python3")).arg("-c").arg(ECHO));
    assert_eq!(echo.text(), "ready");
    for kill_far in [true, false] {
        let mut beat = on(&hosts.near, Path::new("python3"));
        let mut beat = Running::spawn(beat.arg("-c").arg(HEARTBEAT).args(["10.77.0.1", "9"]));
        assert_eq!(beat.text(), "ready");
        std::thread::sleep(Duration::from_secs(1));
        let end = if kill_far { &mut listener } else { &mut dialer };
        // `ip netns exec` becomes the command, so this is the tunnel itself.
        kill_process(Pid::from_child(&end.child), Signal::KILL).unwrap();
        end.child.wait().unwrap();
        let host = if kill_far { &hosts.far } else { &hosts.near };
        let devices = on(host, Path::new("ip")).args(["-o", "link"]).output().unwrap();
        assert!(!String::from_utf8_lossy(&devices.stdout).contains("tidewire0"), "the device is gone");
        if kill_far {
            listener = hosts.listener(&["--key", &key]).0;
        } else {
            dialer = hosts.dialer(&link, &[]);
        }
        let longest: f64 = beat.text().parse().unwrap();
        // Measured 0.2 to 3.5 s: then the timer of the TCP inside decides, which doubles.
        assert!(longest < 8.0, "{longest} s without an echo after a kill, far {kill_far}");
    }
}

#[test]
fn each_peer_has_its_networks() {
    if !has_lab() {
        return;
    }
    let hosts = Hosts::new("rtt = \"4ms\"");
    let pair = |name: &str| {
        let path = hosts.folder.path().join(name);
        let output = tidewire(&["keygen", "--pair", "-o", path.to_str().unwrap()]).output().unwrap();
        assert!(output.status.success());
        let public = String::from_utf8(output.stdout).unwrap();
        (
            path.to_str().unwrap().to_owned(),
            public.split_whitespace().find(|word| word.starts_with("twp")).unwrap().to_owned(),
        )
    };
    let ((far, _), (ann, ann_public), (bob, bob_public), (eve, eve_public)) =
        (pair("far"), pair("ann"), pair("bob"), pair("eve"));
    let peers = hosts.file("peers", &format!("{ann_public} 10.77.0.2/32 ann\n{bob_public} 10.77.0.3/32\n"));
    let (_listener, link) = hosts.listener(&["--key", &far, "--authorized-keys", &peers]);
    let dial = |key: &str, arguments: &[&str]| {
        let mut dialer = hosts.tunnel(&hosts.near, &[&[link.as_str(), "--key", key], arguments].concat());
        dialer.wait_for("connected");
        dialer
    };
    let _ann = dial(&ann, &["--address", "10.77.0.2/24", "--interface", "tw1"]);
    let bob = dial(&bob, &["--address", "10.77.0.3/32", "--route", "10.77.0.1/32", "--interface", "tw2"]);
    let _server = server(&hosts.far, "10.77.0.1");
    // Each peer reaches the listener from its own address, and bob not from ann's.
    let reach = "
import socket, sys, subprocess
subprocess.run(['ip', 'route', 'replace', '10.77.0.1/32', 'dev', sys.argv[1], 'src', sys.argv[2]], check=True)
try: socket.create_connection(('10.77.0.1', 5000), timeout=3, source_address=(sys.argv[2], 0)); print('reached')
except OSError: print('not reached')
";
    let reaches = |device: &str, source: &str| python(&hosts.near, reach, &[device, source]);
    assert_eq!(reaches("tw1", "10.77.0.2"), "reached");
    assert_eq!(reaches("tw2", "10.77.0.3"), "reached");
    assert_eq!(reaches("tw2", "10.77.0.2"), "not reached");
    drop(bob);
    // A key that is added later is let in, but has no networks here.
    let text = fs::read_to_string(&peers).unwrap();
    fs::write(&peers, format!("{text}{eve_public} 10.77.0.4/32\n")).unwrap();
    std::thread::sleep(Duration::from_millis(2_500));
    let arguments = [link.as_str(), "--key", &eve, "--address", "10.77.0.4/32", "--interface", "tw3"];
    let (code, lines) = hosts.tunnel(&hosts.near, &arguments).end();
    let said = lines.iter().rfind(|line| line["event"] == "error").unwrap();
    assert!(code == Some(4) && said["message"].as_str().unwrap().contains("no networks for our key"), "{said}");
    let overlapping = hosts.file("overlapping", &format!("{text}\n{eve_public} 10.77.0.0/24\n"));
    let refused =
        ["--listen", "127.0.0.1:0", "--address", "10.77.0.1/24", "--key", &eve, "--authorized-keys", &overlapping];
    let output = tidewire(&[&["tunnel", "up"], &refused[..]].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("overlapping:4: 10.77.0.0/24 and 10.77.0."), "{said}");
}

/// Two machines with one secret would take the tunnel from each other for ever.
#[test]
fn the_end_whose_place_was_taken_leaves_it() {
    if !has_lab() {
        return;
    }
    let hosts = Hosts::new("rtt = \"4ms\"");
    let (_listener, link) = hosts.listener(&[]);
    let first = hosts.dialer(&link, &["--interface", "tw1"]);
    let second = hosts.dialer(&link, &["--interface", "tw2"]);
    let (code, lines) = first.end();
    let said = lines.iter().rfind(|line| line["event"] == "error").unwrap();
    assert!(code == Some(1) && said["message"].as_str().unwrap().contains("has the tunnel now"), "{said}");
    assert_eq!(lines.last().unwrap()["event"], "summary");
    drop(second);
}

#[test]
fn what_cannot_work_is_refused_with_what_to_do() {
    let secret = String::from_utf8(tidewire(&["keygen"]).output().unwrap().stdout).unwrap();
    let link = format!("tidewire://192.0.2.9:7700/#{}", secret.lines().next().unwrap());
    for (arguments, wanted) in [
        (&[link.as_str(), "--address", "10.77.0.0/24"][..], "10.77.0.0 is no address of a host"),
        (&[&link, "--address", "10.77.0.1/24", "--route", "192.0.2.1/24"], "did you mean 192.0.2.0/24?"),
        (
            &[&link, "--address", "10.77.0.1/24", "--route", "192.0.0.0/8"],
            "contains 192.0.2.9, the address of the far side",
        ),
        (&[&link, "--address", "10.77.0.1/24", "--mtu", "500"], "1280..=9000"),
        (&[&link, "--address", "10.77.0.1/24", "--interface", "a/b"], "1 to 15 letters"),
        (&["--address", "10.77.0.1/24"], "no link is given"),
    ] {
        let output = tidewire(&[&["tunnel", "up"], arguments].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn without_the_capability_it_names_what_is_missing_and_what_to_use() {
    if !has_lab() {
        return;
    }
    let begun = Instant::now();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]).arg(cargo_bin("tidewire"));
    command.args(["tunnel", "up", "--listen", "127.0.0.1:0", "--address", "10.77.0.1/24"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("CAP_NET_ADMIN") && said.contains("tidewire forward"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

/// A tunnel through a relay on the far host: one hop loses packets, and TCP inside sees none of it.
#[test]
fn tcp_crosses_a_tunnel_over_a_relay() {
    if !has_lab() {
        return;
    }
    let hosts = Hosts::new("rate = \"20mbit\"\nrtt = \"20ms\"\nloss = \"10%\"");
    let address = format!("{}:7700", hosts.far_address);
    let own = ["--relayed", "--listen", &address, "--address", "10.77.0.1/24"];
    let mut listener = hosts.tunnel(&hosts.far, &own);
    let hop = listener.wait_for("hop_link")["link"].as_str().unwrap().to_owned();
    let link = listener.wait_for("link")["link"].as_str().unwrap().to_owned();
    let mut command = on(&hosts.far, cargo_bin("tidewire").as_path());
    command.args(["relay", "--json", "--to", &hop, "--listen", &format!("{}:7701", hosts.far_address)]);
    let mut relay = Running::spawn(command.env("TIDEWIRE_CONFIG", "/dev/null"));
    let via = relay.wait_for("link")["link"].as_str().unwrap().to_owned();
    let dialer = hosts.dialer(&link, &["--via", &via]);
    let _server = server(&hosts.far, "10.77.0.1");
    python(&hosts.near, CLIENT, &["10.77.0.1", "2000000"]);
    let (sent, received) = (counts(dialer), counts(listener));
    let bytes = |counts: &Value, key: &str| counts[key]["bytes"].as_u64().unwrap();
    assert!(bytes(&sent, "sent") > 2_000_000 && bytes(&received, "received") > 2_000_000, "{sent} {received}");
    relay.interrupt();
    assert_eq!(relay.end().0, Some(130));
}
