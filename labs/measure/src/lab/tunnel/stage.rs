//! The nodes of a network, a tunnel between two of them whose ends can be killed, and iperf3 over it.

use super::super::with_scenario;
use crate::context::lab_of;
use crate::figures::process::Process;
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time for a program to say what is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The addresses in the tunnel: of the end that connects and of the one that listens.
pub const INNER: [&str; 2] = ["10.77.0.2", "10.77.0.1"];
/// The listener's port.
const PORT: u16 = 7_700;
/// Time between two looks whether iperf3 listens.
const STEP: Duration = Duration::from_millis(20);

/// An end of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that connects.
    Near,
    /// The end that listens.
    Far,
}

/// Running nodes and the tunnel. All of it ends when this value is dropped.
pub struct Stage {
    binary: PathBuf,
    /// Name of the namespace and address of each node. The tunnel ends at the first and the last one.
    nodes: Vec<(String, String)>,
    key: PathBuf,
    link: String,
    near: Option<Process>,
    far: Option<Process>,
    _lab: Process,
}

impl Stage {
    /// Starts the nodes of a network. [`Self::connect`] makes the tunnel from the first to the last of them.
    pub fn start(binary: &Path, scenario: &str) -> Result<Self, String> {
        let count = scenario.matches("[[node]]").count();
        let (lab, nodes) = with_scenario(scenario, |path| {
            let mut lab = Process::start("the lab", Command::new(lab_of(binary)).args(["up", "--json"]).arg(path))?;
            let mut nodes = Vec::new();
            for _ in 0..count {
                let node = lab.wait_for("node", Instant::now() + PATIENCE)?;
                nodes.push((node.text("/namespace")?.to_owned(), node.text("/address")?.to_owned()));
            }
            Ok((lab, nodes))
        })?;
        let key = std::env::temp_dir().join(format!("tidewire-lab-{}.key", std::process::id()));
        let stage =
            Self { binary: binary.to_owned(), nodes, key, link: String::new(), near: None, far: None, _lab: lab };
        stage.write_key()?;
        Ok(stage)
    }

    /// Starts both ends of the tunnel.
    pub fn connect(&mut self) -> Result<(), String> {
        self.restart(Side::Far)?;
        self.restart(Side::Near)?;
        Ok(())
    }

    /// Writes a key that a restarted listener has too, so that its link stays the same.
    fn write_key(&self) -> Result<(), String> {
        let made = Command::new(&self.binary).arg("keygen").stderr(Stdio::inherit()).output();
        let made = made.map_err(|e| format!("keygen: {e}"))?;
        let secret = String::from_utf8_lossy(&made.stdout).lines().next().ok_or("keygen printed nothing")?.to_owned();
        // The program refuses a key that others can read.
        let mut write = Command::new("sh");
        write.args(["-c", "umask 077; rm -f \"$0\"; cat > \"$0\""]).arg(&self.key).stdin(Stdio::piped());
        feed(&mut write, &secret)
    }

    /// Kills an end, if it runs, and starts it. Returns the moment of the kill.
    pub fn restart(&mut self, side: Side) -> Result<Instant, String> {
        let killed = Instant::now();
        let address = |inner: &str| format!("{inner}/24");
        let deadline = killed + PATIENCE;
        match side {
            Side::Far => {
                self.far = None;
                let (_, outer) = &self.nodes[self.nodes.len() - 1];
                let mut command = self.on(self.nodes.len() - 1, &self.binary);
                command.args(["tunnel", "up", "--json", "--listen", &format!("{outer}:{PORT}"), "--address"]);
                command.arg(address(INNER[1])).arg("--key").arg(&self.key);
                let mut far = Process::start("the listener", &mut command)?;
                self.link = far.wait_for("link", deadline)?.text("/link")?.to_owned();
                self.far = Some(far);
            }
            Side::Near => {
                self.near = None;
                let mut command = self.on(0, &self.binary);
                command.args(["tunnel", "up", "--json", "--address", &address(INNER[0])]);
                let mut near = Process::start("the connecting end", command.env("TIDEWIRE_LINK", &self.link))?;
                near.wait_for("connected", deadline)?;
                self.near = Some(near);
            }
        }
        Ok(killed)
    }

    /// A command on a node.
    fn on(&self, node: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.nodes[node].0]).arg(program).env("TIDEWIRE_CONFIG", "/dev/null");
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        command
    }

    /// Gives these rules to nftables on a node.
    pub fn nft(&self, node: usize, rules: &str) -> Result<(), String> {
        feed(self.on(node, "nft").args(["-f", "-"]).stdin(Stdio::piped()), rules)
    }

    /// The outer address of a node.
    pub fn address(&self, node: usize) -> &str {
        &self.nodes[node].1
    }

    /// Starts iperf3 through the tunnel, toward the listener.
    pub fn iperf(&self, port: u16, interval: &str, arguments: &[&str]) -> Result<Iperf, String> {
        let problem = |e: std::io::Error| format!("cannot run iperf3: {e}");
        let (far, port) = (self.nodes.len() - 1, port.to_string());
        let mut server = self.on(far, "iperf3");
        server.args(["-s", "-1", "-J", "-B", INNER[1], "-p", &port, "-i", interval]).stdout(Stdio::piped());
        let server = Running(server.spawn().map_err(problem)?);
        let deadline = Instant::now() + PATIENCE;
        let listens = |stage: &Self| {
            let look = stage.on(far, "ss").args(["-Hltn", &format!("sport = :{port}")]).output();
            look.is_ok_and(|look| !look.stdout.is_empty())
        };
        while !listens(self) {
            if Instant::now() > deadline {
                return Err("iperf3 does not listen".into());
            }
            std::thread::sleep(STEP);
        }
        let mut client = self.on(0, "iperf3");
        // The machine's default control may be another one.
        client.args(["-c", INNER[1], "-p", &port, "-C", "cubic"]).args(arguments).stdout(Stdio::null());
        let client = Running(client.spawn().map_err(problem)?);
        Ok(Iperf { server, client })
    }

    /// Asks both ends to stop. Returns how often the connecting end lost its connection, and how often the
    /// listener saw it at another address.
    pub fn end(mut self) -> Result<(usize, f64), String> {
        let deadline = Instant::now() + PATIENCE;
        let (near, far) = self.near.take().zip(self.far.take()).ok_or("an end of the tunnel does not run")?;
        near.interrupt()?;
        far.interrupt()?;
        let near = near.finish(crate::figures::emulator::INTERRUPTED, deadline)?;
        let far = far.finish(crate::figures::emulator::INTERRUPTED, deadline)?;
        let moves = far.iter().filter_map(|line| line.event["moves"].as_f64()).sum();
        Ok((near.iter().filter(|line| line.is("lost")).count(), moves))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A file that remains in the temporary folder does no harm.
        let _ = std::fs::remove_file(&self.key);
    }
}

/// A child that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running iperf3 with its server.
pub struct Iperf {
    server: Running,
    client: Running,
}

impl Iperf {
    /// Waits for the end. Returns what the server, which receives, counted.
    pub fn finish(mut self) -> Result<Value, String> {
        let problem = |e: std::io::Error| format!("iperf3: {e}");
        let mut output = String::new();
        if let Some(mut printed) = self.server.0.stdout.take() {
            std::io::Read::read_to_string(&mut printed, &mut output).map_err(problem)?;
        }
        let ended = self.client.0.wait().map_err(problem)?;
        let counted: Value = serde_json::from_str(&output).map_err(|e| format!("iperf3 printed no JSON: {e}"))?;
        match counted["error"].as_str() {
            Some(error) => Err(format!("the server of iperf3: {error}")),
            None if ended.success() => Ok(counted),
            None => Err(format!("the client of iperf3 ended with {ended}")),
        }
    }
}

/// The longest time in seconds without a byte, of a stream of iperf3's intervals with these bytes and
/// lengths. Intervals before the first byte do not count.
pub fn longest_silence(intervals: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut longest, mut silent): (f64, f64) = (0.0, 0.0);
    for (bytes, seconds) in intervals.skip_while(|(bytes, _)| *bytes == 0.0) {
        silent = if bytes > 0.0 { 0.0 } else { silent + seconds };
        longest = longest.max(silent);
    }
    longest
}

/// Runs a command with this standard input.
fn feed(command: &mut Command, input: &str) -> Result<(), String> {
    let problem = |e: std::io::Error| format!("{command:?}: {e}", command = "a command of the stage");
    let mut child = command.spawn().map_err(problem)?;
    child.stdin.take().ok_or("no standard input")?.write_all(input.as_bytes()).map_err(problem)?;
    let ended = child.wait().map_err(problem)?;
    if ended.success() { Ok(()) } else { Err(format!("{command:?} ended with {ended}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_the_longest_run_of_empty_intervals_after_the_first_byte() {
        let of = |bytes: &[f64]| longest_silence(bytes.iter().map(|&bytes| (bytes, 0.5)));
        assert_eq!(of(&[0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]), 1.0);
        assert_eq!((of(&[0.0, 0.0]), of(&[1.0, 1.0])), (0.0, 0.0));
    }
}
