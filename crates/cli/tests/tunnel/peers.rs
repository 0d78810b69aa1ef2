//! Peers with keys: their networks, and a list of them that changes while the listener runs.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::hosts::{ECHO, Hosts, needs_lab, on, python, server};
use crate::process::{Running, tidewire};

/// Makes a pair of keys. Returns the file of the private one, and the public one.
fn pair(hosts: &Hosts, name: &str) -> (String, String) {
    let path = hosts.folder.path().join(name).to_str().unwrap().to_owned();
    let output = tidewire(&["keygen", "--pair", "-o", &path]).output().unwrap();
    assert!(output.status.success());
    let public = String::from_utf8(output.stdout).unwrap();
    (path, public.split_whitespace().find(|word| word.starts_with("twp")).unwrap().to_owned())
}

#[test]
#[ignore = "needs root: network namespaces"]
fn each_peer_has_its_networks() {
    needs_lab();
    let hosts = Hosts::new("rtt = \"4ms\"");
    let ((far, _), (ann, ann_public), (bob, bob_public), (eve, eve_public)) =
        (pair(&hosts, "far"), pair(&hosts, "ann"), pair(&hosts, "bob"), pair(&hosts, "eve"));
    let peers = hosts.file("peers", &format!("{ann_public} 10.77.0.2/32 ann\n{bob_public} 10.77.0.3/32\n"));
    let (_listener, link) = hosts.listener(&["--key", &far, "--authorized-keys", &peers]);
    let dial = |key: &str, arguments: &[&str]| {
        let mut dialer = hosts.tunnel(&hosts.near, &[&[link.as_str(), "--key", key], arguments].concat());
        dialer.wait_for("connected");
        dialer
    };
    let _ann = dial(&ann, &["--address", "10.77.0.2/24", "--interface", "tw1"]);
    let _bob = dial(&bob, &["--address", "10.77.0.3/32", "--route", "10.77.0.1/32", "--interface", "tw2"]);
    let _server = server(&hosts.far, "10.77.0.1");
    // Each peer reaches the listener from its own address, and bob not from ann's.
    let reach = "
import socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sys.argv[1].encode())
s.bind((sys.argv[2], 0)); s.settimeout(3)
try: s.connect(('10.77.0.1', 5000)); print('reached')
except OSError: print('not reached')
";
    let reaches = |device: &str, source: &str| python(&hosts.near, reach, &[device, source]);
    assert_eq!(reaches("tw1", "10.77.0.2"), "reached");
    assert_eq!(reaches("tw2", "10.77.0.3"), "reached");
    assert_eq!(reaches("tw2", "10.77.0.2"), "not reached");
    let overlapping =
        hosts.file("overlapping", &format!("{}\n{eve_public} 10.77.0.0/24\n", fs::read_to_string(&peers).unwrap()));
    let refused =
        ["--listen", "127.0.0.1:0", "--address", "10.77.0.1/24", "--key", &eve, "--authorized-keys", &overlapping];
    let output = tidewire(&[&["tunnel", "up"], &refused[..]].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("overlapping:4: 10.77.0.0/24 and 10.77.0."), "{said}");
}

/// Echoes a byte for each line on standard input, over one TCP connection.
const STEADY: &str = "
import socket, sys
c = socket.create_connection(('10.77.0.1', 5001), timeout=60)
print('ready', flush=True)
for line in sys.stdin:
    c.sendall(b'x'); assert c.recv(1) == b'x'; print('echo', flush=True)
";

/// A line that was added to the list gives its key networks and a route, and one that was removed takes them
/// and its connection. The others notice nothing.
#[test]
#[ignore = "needs root: network namespaces"]
fn peers_come_and_go_while_the_listener_runs() {
    needs_lab();
    let hosts = Hosts::new("rtt = \"4ms\"");
    let ((far, _), (ann, ann_public), (eve, eve_public)) =
        (pair(&hosts, "far"), pair(&hosts, "ann"), pair(&hosts, "eve"));
    let of_ann = format!("{ann_public} 10.77.0.2/32 ann\n");
    let peers = hosts.file("peers", &of_ann);
    let (mut listener, link) =
        hosts.listener(&["--address", "10.78.0.1/24", "--key", &far, "--authorized-keys", &peers]);
    let mut ann =
        hosts.tunnel(&hosts.near, &[link.as_str(), "--key", &ann, "--address", "10.77.0.2/24", "--interface", "tw1"]);
    ann.wait_for("connected");
    let mut echo = Running::spawn(on(&hosts.far, Path::new("python3")).arg("-c").arg(ECHO));
    assert_eq!(echo.text(), "ready");
    let mut steady = on(&hosts.near, Path::new("python3"));
    let mut steady = Running::spawn(steady.arg("-c").arg(STEADY).stdin(Stdio::piped()));
    assert_eq!(steady.text(), "ready");
    let mut goes_on = || {
        steady.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        steady.text() == "echo"
    };
    let routes = |host: &str| {
        let printed = on(host, Path::new("ip")).args(["route", "show", "dev", "tidewire0"]).output().unwrap();
        String::from_utf8(printed.stdout).unwrap()
    };
    // Some editors empty the file before they write it. No key may lose its connection by that.
    let rewrite = |text: &str| {
        fs::write(&peers, "").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        fs::write(&peers, text).unwrap();
    };
    assert!(goes_on() && !routes(&hosts.far).contains("192.168.9.0/24"));

    // The key gets in while its end still tries.
    let arguments = [link.as_str(), "--key", &eve, "--address", "10.78.0.4/24", "--interface", "tw3"];
    let mut eve = hosts.tunnel(&hosts.near, &arguments);
    listener.wait_for("refused");
    rewrite(&format!("{of_ann}{eve_public} 10.78.0.4/32 192.168.9.0/24\n"));
    eve.wait_for("connected");
    assert!(routes(&hosts.far).contains("192.168.9.0/24"));
    let state = state_with(&mut listener, |peers| peers.len() == 2);
    assert_eq!(state[1]["networks"], serde_json::json!(["10.78.0.4/32", "192.168.9.0/24"]), "{state:?}");
    python(&hosts.near, "import socket; socket.create_connection(('10.78.0.1', 5001), timeout=20)", &[]);
    assert!(goes_on());

    // A wrong list changes nothing. The file is looked at more often than the state is reported.
    rewrite(&format!("{of_ann}{eve_public} 10.77.0.2/31\n"));
    for _ in 0..2 {
        listener.wait_for("state");
    }
    assert_eq!(state_with(&mut listener, |_| true).len(), 2);
    rewrite(&of_ann);
    eve.wait_for("lost");
    assert!(!routes(&hosts.far).contains("192.168.9.0/24"), "the route of the key is gone");
    assert!(goes_on());
    let state = state_with(&mut listener, |peers| peers.len() == 1);
    assert_eq!(state[0]["key"], ann_public);
    ann.interrupt();
    let lines = ann.end().1;
    assert!(lines.iter().all(|line| line["event"] != "lost"), "the connection of the key that stayed: {lines:?}");
}

/// The peers of the next state that `wanted` holds for.
fn state_with(listener: &mut Running, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    loop {
        let state = listener.wait_for("state");
        let peers = state["peers"].as_array().unwrap();
        if wanted(peers) {
            return peers.clone();
        }
    }
}

/// The near end gets another address, as after a change of networks.
#[test]
#[ignore = "needs root: network namespaces"]
fn the_state_has_the_address_that_a_peer_moved_to() {
    needs_lab();
    let hosts = Hosts::new("rtt = \"4ms\"");
    let (mut listener, link) = hosts.listener(&[]);
    let _dialer = hosts.dialer(&link, &[]);
    let address = |peers: &[Value]| peers[0]["peer"].as_str().unwrap_or_default().to_owned();
    let first = address(&state_with(&mut listener, |peers| !peers[0]["peer"].is_null()));
    let moving = "
import subprocess, sys
run = lambda *words: subprocess.run(['ip', *words], check=True, capture_output=True, text=True).stdout.split()
device = run('route', 'get', sys.argv[1]); device = device[device.index('dev') + 1]
run('address', 'add', '10.99.200.1/32', 'dev', device)
run('route', 'replace', sys.argv[1], 'dev', device, 'src', '10.99.200.1')
";
    python(&hosts.near, moving, &[&hosts.far_address]);
    // The far host's only link is its default route.
    let moved = address(&state_with(&mut listener, |peers| address(peers).starts_with("10.99.200.1:")));
    assert!(!first.starts_with("10.99.200.1:") && moved != first, "{first} {moved}");
}
