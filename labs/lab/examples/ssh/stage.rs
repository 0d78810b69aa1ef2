//! Two hosts with a link between them, an sshd on the far one, and the commands that reach it.
//!
//! A run makes one, so no run sees the queue, the TCP metrics or the processes of another. Invariant:
//! everything that runs on the hosts ends with it.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tidewire_lab::emulator::Emulator;
use tidewire_lab::hosts::Hosts;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::pair::End;

/// Longest wait for sshd. Chosen: a hundred times what it takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// An option of `forward` for keys: two repairs after each packet. A key is a packet of its own, so nothing
/// else carries its repair. One repair leaves 1 % of lost keys in each direction at 10 %.
pub const REPEATED: &str = "--redundancy every:1.5";

/// See the module.
pub struct Stage {
    sshd: Child,
    _emulator: Emulator,
    hosts: Hosts,
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Stage {
    /// Makes the hosts and starts sshd, with keys and a configuration of its own.
    pub fn start(link: &DuplexConfig, program: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        for key in ["host", "user"] {
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]).status();
            if !made.context("cannot run `ssh-keygen`: install openssh-server")?.success() {
                bail!("ssh-keygen failed");
            }
        }
        let hosts = Hosts::start()?;
        let emulator = Emulator::start(hosts.device(End::Near)?, hosts.device(End::Far)?, link)?;
        let far = hosts.address(End::Far);
        let _ = fs::create_dir("/run/sshd");
        let mut sshd = hosts.command(End::Far, "/usr/sbin/sshd");
        sshd.args(["-D", "-f", "/dev/null", "-p", "22", "-o", &format!("HostKey={}", path("host"))]);
        for option in ["StrictModes=no", "UsePAM=no", "PermitRootLogin=yes"] {
            sshd.args(["-o", option]);
        }
        sshd.args(["-o", &format!("AuthorizedKeysFile={}", path("user.pub"))]);
        let sshd = sshd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let stage = Self { sshd, _emulator: emulator, hosts, folder, program: program.to_owned() };
        stage.configure()?;
        let deadline = Instant::now() + PATIENCE;
        while stage.hosts.inside(End::Far, || TcpStream::connect((far, 22)))?.is_err() {
            if Instant::now() > deadline {
                bail!("sshd does not listen");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(stage)
    }

    /// Writes ssh's configuration: the far host plainly, and through a coded connection that ssh starts.
    fn configure(&self) -> anyhow::Result<()> {
        let (config, far) = (self.path("config"), self.hosts.address(End::Far));
        let forward = format!(
            "{} forward -q --ssh 'ssh -F {config}' --remote '{}' -W {far}:22",
            self.program.display(),
            self.remote()
        );
        let text = format!(
            "Host plain coded repeated\nHostName {far}\nUser root\nIdentityFile {}\nBatchMode yes\nStrictHostKeyChecking no\n\
             UserKnownHostsFile /dev/null\nLogLevel ERROR\nHost coded\nProxyCommand {forward} plain\n\
             Host repeated\nProxyCommand {forward} {REPEATED} plain\n",
            self.path("user")
        );
        Ok(fs::write(config, text)?)
    }

    /// The far `tidewire`, as its shell starts it.
    fn remote(&self) -> String {
        format!("env TIDEWIRE_CONFIG=/dev/null {}", self.program.display())
    }

    /// The path of a file that both hosts see.
    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A program of the near host.
    pub fn near(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.hosts.command(End::Near, program);
        command.env("TIDEWIRE_CONFIG", "/dev/null").env("LANG", "C.UTF-8").env("TERM", "xterm");
        command
    }

    /// ssh to a host of the configuration.
    pub fn ssh(&self, host: &str) -> Command {
        let mut command = self.near("ssh");
        command.args(["-F", &self.path("config"), host]);
        command
    }

    /// mosh to a host of the configuration.
    pub fn mosh(&self, host: &str) -> Command {
        let mut command = self.near("mosh");
        command.arg(format!("--ssh=ssh -F {}", self.path("config"))).args(["--predict=never", host]);
        command
    }

    /// `tidewire send` to a folder of the far host.
    pub fn send(&self, from: &str, into: &str) -> Command {
        let mut command = self.near(&self.program);
        command.args(["send", "-q", "--ssh", &format!("ssh -F {}", self.path("config")), "--remote", &self.remote()]);
        command.args([from, &format!("plain:{into}")]);
        command
    }

    /// A folder with `files` files of 500 to 8,000 bytes. The sizes are chosen: those of sources and
    /// settings.
    pub fn tree(&self, files: u64) -> anyhow::Result<String> {
        let tree = self.folder.path().join("tree");
        for number in 0..files {
            let folder = tree.join(format!("{}", number % 20));
            fs::create_dir_all(&folder)?;
            // Steps of a prime number spread the sizes evenly.
            let length = 500 + number * 6_101 % 7_501;
            let bytes: Vec<u8> = (0..length).map(|place| (place * (number + 3) % 251) as u8).collect();
            fs::write(folder.join(format!("{number}.txt")), bytes)?;
        }
        Ok(tree.display().to_string())
    }

    /// Packets that the emulator did not read in time. If there are any, the figures are void.
    pub fn unread(&self) -> anyhow::Result<u64> {
        Ok(self.hosts.unread(End::Near)? + self.hosts.unread(End::Far)?)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // It may have ended. What it started ends with the hosts.
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}
