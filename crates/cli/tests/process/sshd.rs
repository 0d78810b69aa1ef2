//! Debian's sshd with keys and a configuration of its own, on a port of the loopback address.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;

const SSHD: &str = "/usr/sbin/sshd";

/// An sshd for root, and the key that it accepts.
pub struct Sshd {
    pub folder: tempfile::TempDir,
    pub address: SocketAddr,
}

impl Sshd {
    /// Starts one.
    pub fn start() -> Self {
        let has = |program: &str| {
            Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
        };
        tidewire_testing::needs("ssh and sshd", has("ssh") && has(SSHD));
        // sshd takes other users than its own only as root.
        tidewire_testing::needs("root", rustix::process::geteuid().is_root());
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for key in ["host", "user"] {
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]).status();
            assert!(made.unwrap().success());
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (host_key, authorized) = (path("host"), path("user.pub"));
        // Each connection gets an sshd of its own, which speaks over its standard input and output.
        let _ = fs::create_dir("/run/sshd");
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let options = [
                    format!("HostKey={host_key}"),
                    format!("AuthorizedKeysFile={authorized}"),
                    "StrictModes=no".to_owned(),
                    "UsePAM=no".to_owned(),
                    "PermitRootLogin=yes".to_owned(),
                ];
                let options = options.iter().flat_map(|option| ["-o", option]);
                let input = OwnedFd::from(client.try_clone().unwrap());
                let output = OwnedFd::from(client);
                let mut sshd = Command::new(SSHD);
                sshd.args(["-i", "-f", "/dev/null"]).args(options).stdin(input).stdout(output).stderr(Stdio::null());
                let mut sshd = sshd.spawn().unwrap();
                thread::spawn(move || sshd.wait());
            }
        });
        Self { folder, address }
    }

    /// The path of a file beside the keys.
    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The options with which ssh reaches it, without the host.
    pub fn options(&self) -> Vec<String> {
        let port = self.address.port().to_string();
        let mut options = vec!["-F".into(), "none".into(), "-i".into(), self.path("user"), "-p".into(), port];
        for option in ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"] {
            options.extend(["-o".to_owned(), option.to_owned()]);
        }
        options
    }

    /// The same as one text for `--ssh`.
    pub fn command(&self) -> String {
        format!("ssh {}", self.options().join(" "))
    }
}
