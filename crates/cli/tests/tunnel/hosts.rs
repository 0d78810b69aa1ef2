//! Hosts of the lab, tunnels between them, and the programs that use these.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use assert_cmd::cargo::cargo_bin;
use serde_json::Value;

use crate::process::{Running, lab};

/// Whether this machine and user can have a lab. If not, prints why.
pub fn needs_lab() {
    let tun = || fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok();
    let tools = || ["ip", "python3"].iter().all(|tool| Command::new(tool).arg("-V").output().is_ok());
    tidewire_testing::needs(
        "root, /dev/net/tun, iproute2 and python3",
        rustix::process::geteuid().is_root() && tun() && tools(),
    );
}

/// Two hosts joined by an emulated link.
pub struct Hosts {
    _lab: Running,
    pub near: String,
    pub far: String,
    pub far_address: String,
    pub folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Hosts {
    pub fn new(link: &str) -> Self {
        let turn = turn();
        let folder = tempfile::tempdir().unwrap();
        let scenario = folder.path().join("link.toml");
        fs::write(&scenario, format!("[link]\n{link}\n")).unwrap();
        let mut stage = Running::spawn(&mut lab(&["up", "--json", scenario.to_str().unwrap()]));
        let hosts = stage.line();
        let name = |key: &str| hosts[key].as_str().unwrap_or_else(|| panic!("{hosts}")).to_owned();
        let (near, far, far_address) = (name("near"), name("far"), name("far_address"));
        Self { _lab: stage, near, far, far_address, folder, _turn: turn }
    }

    /// The first and the last node of a network, and the namespaces of all nodes.
    pub fn of_network(scenario: &str) -> (Self, Vec<String>) {
        let turn = turn();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("network.toml");
        fs::write(&path, scenario).unwrap();
        let mut stage = Running::spawn(&mut lab(&["up", "--json", path.to_str().unwrap()]));
        let nodes: Vec<Value> = scenario.matches("[[node]]").map(|_| stage.wait_for("node")).collect();
        let text = |node: &Value, key: &str| node[key].as_str().unwrap().to_owned();
        let names: Vec<_> = nodes.iter().map(|node| text(node, "namespace")).collect();
        let far_address = text(nodes.last().unwrap(), "address");
        let (near, far) = (names[0].clone(), names[names.len() - 1].clone());
        (Self { _lab: stage, near, far, far_address, folder, _turn: turn }, names)
    }

    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_owned();
        assert!(Command::new("chmod").args(["600", &path]).status().unwrap().success());
        path
    }

    /// `tunnel up` on a host.
    pub fn command(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = on(host, cargo_bin("tidewire").as_path());
        command.args(["tunnel", "up", "--json"]).args(arguments);
        command.env_remove("TIDEWIRE_LINK").env("TIDEWIRE_CONFIG", "/dev/null");
        command
    }

    /// Starts `tunnel up` on a host.
    pub fn tunnel(&self, host: &str, arguments: &[&str]) -> Running {
        Running::spawn(&mut self.command(host, arguments))
    }

    /// Starts a listener on the far host with the address 10.77.0.1, and returns its link.
    pub fn listener(&self, arguments: &[&str]) -> (Running, String) {
        let address = format!("{}:7700", self.far_address);
        let own = ["--listen", &address, "--address", "10.77.0.1/24"];
        let mut listener = self.tunnel(&self.far, &[&own[..], arguments].concat());
        let link = listener.wait_for("link")["link"].as_str().unwrap().to_owned();
        (listener, link)
    }

    /// Connects the near host with the address 10.77.0.2.
    pub fn dialer(&self, link: &str, arguments: &[&str]) -> Running {
        let own = [link, "--address", "10.77.0.2/24"];
        let mut dialer = self.tunnel(&self.near, &[&own[..], arguments].concat());
        dialer.wait_for("connected");
        dialer
    }
}

/// Waits until no other test of this process has a lab.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program on a host.
pub fn on(host: &str, program: &Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", host]).arg(program).stdin(Stdio::null());
    command
}

/// Runs a Python program on a host, and returns what it printed.
pub fn python(host: &str, program: &str, arguments: &[&str]) -> String {
    let output = on(host, Path::new("python3")).arg("-c").arg(program).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Counts of the last state that a tunnel reported.
pub fn counts(tunnel: Running) -> Value {
    tunnel.interrupt();
    let (code, lines) = tunnel.end();
    assert_eq!(code, Some(130));
    lines.iter().rfind(|line| line["event"] == "state").expect("a state at the end")["packets"].clone()
}

/// A TCP server on port 5000 that answers each connection with the digest of what it got.
pub const SERVER: &str = "
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
pub const CLIENT: &str = "
import socket, hashlib, os, sys
c = socket.create_connection((sys.argv[1], 5000), timeout=60)
d = os.urandom(int(sys.argv[2])); c.sendall(d)
mss = c.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
c.shutdown(socket.SHUT_WR); r = b''
while (x := c.recv(100)): r += x
assert r.decode() == hashlib.sha256(d).hexdigest(), r
print(mss)
";

pub fn server(host: &str, address: &str) -> Running {
    let mut server = Running::spawn(on(host, Path::new("python3")).arg("-c").arg(SERVER).arg(address));
    assert_eq!(server.text(), "ready");
    server
}

/// A connection that writes a line ten times a second, and prints the longest time without an echo.
pub const HEARTBEAT: &str = "
import socket, time, sys
c = socket.create_connection((sys.argv[1], 5001), timeout=60); longest = 0; end = time.time() + float(sys.argv[2])
print('ready', flush=True)
while time.time() < end:
    begun = time.time(); c.sendall(b'x'); assert c.recv(1) == b'x'
    longest = max(longest, time.time() - begun); time.sleep(0.1)
print('%.2f' % longest)
";

pub const ECHO: &str = "
import socket, threading
s = socket.create_server(('0.0.0.0', 5001)); print('ready', flush=True)
def serve(c):
    while (d := c.recv(1000)): c.sendall(d)
while True: threading.Thread(target=serve, args=(s.accept()[0],)).start()
";
