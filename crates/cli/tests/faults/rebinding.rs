//! A network address translator between client and server that rebinds: nftables in a network namespace of its own,
//! between the namespaces of the two hosts. What needs root or nft says so and passes where they lack.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{Running, tidewire};
use crate::{quick, receive, schema, wrapped, write};

/// How often the translator rebinds in a job.
const REBINDINGS: u64 = 5;
/// Bytes of a job: 3 s at [`RATE`].
const BYTES: u64 = 15_000_000;
/// Bytes that arrive between two rebindings, which take 0.3 s: more than can be on the way, so that the client's new
/// address is in use before it has the next.
const BETWEEN: u64 = 1_500_000;
const RATE: &str = "40mbit";
/// The longest that no byte may arrive. Simulated it is two round trips (rows S2 and S3); here it is bounded by what a
/// busy machine takes.
const LONGEST_STALL: Duration = Duration::from_secs(3);
/// The translator's outer addresses.
const OUTER: [&str; 2] = ["10.98.2.1", "10.98.2.9"];
const SERVER: &str = "10.98.2.2:0";

/// A network namespace; it ends with the process that lives in it, which ends with ours.
struct Namespace(Child);

impl Namespace {
    fn start() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo ready; read -r _"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.id()));
        command
    }

    /// `command`, in here.
    fn inside(&self, command: &Command) -> Command {
        wrapped(self.enter(), command)
    }

    fn run(&self, script: &str) {
        let output = self.enter().args(["sh", "-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client behind a translator, and a server before it.
struct Network {
    client: Namespace,
    translator: Namespace,
    server: Namespace,
}

impl Network {
    /// `None` where this machine or user cannot have one; says why not.
    fn start() -> Option<Self> {
        // All that it takes, in a namespace that is gone at once.
        let trial = "nft add table ip nat && ip link add inner type veth peer name outer";
        let output = Command::new("unshare").args(["--net", "sh", "-ec", trial]).output();
        if !output.is_ok_and(|output| output.status.success()) {
            eprintln!(
                "SKIPPED: an address translator needs root, nft (nftables), ip (iproute2), and a kernel for them"
            );
            return None;
        }
        let [client, translator, server] = std::array::from_fn(|_| Namespace::start());
        let [one, other] = OUTER;
        translator.run(&format!(
            "ip link add inner type veth peer name lan netns {}
             ip link add outer type veth peer name wan netns {}
             ip address add 10.98.1.1/24 dev inner; ip link set inner up
             ip address add {one}/24 dev outer; ip address add {other}/24 dev outer; ip link set outer up
             echo 1 > /proc/sys/net/ipv4/ip_forward",
            client.0.id(),
            server.0.id()
        ));
        client.run("ip address add 10.98.1.2/24 dev lan; ip link set lan up; ip route add default via 10.98.1.1");
        server.run("ip address add 10.98.2.2/24 dev wan; ip link set wan up");
        let network = Self { client, translator, server };
        network.rebind(0);
        Some(network)
    }

    /// Binding number `index`: other ports each time, another outer address every second time. What was bound before
    /// is forgotten, since connections are tracked in another zone: what still comes to the old port is refused.
    fn rebind(&self, index: u64) {
        let address = OUTER[(index as usize / 2) % OUTER.len()];
        let ports = 20_000 + 1_000 * index;
        let rules = format!(
            "flush ruleset
             table ip nat {{
                 chain zone {{ type filter hook prerouting priority raw; ct zone set {}; }}
                 chain out {{
                     type nat hook postrouting priority srcnat
                     oifname outer meta l4proto udp snat to {address}:{ports}-{}
                 }}
             }}",
            index + 1,
            ports + 999
        );
        let mut nft = self.translator.enter().args(["nft", "-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success(), "{rules}");
    }

    /// Rebinds while the file at the end of the job grows to [`BYTES`]; the longest time in which it did not grow.
    /// `bytes` tells how long it is.
    fn rebind_while_it_grows(&self, bytes: impl Fn() -> u64, mut is_over: impl FnMut() -> bool) -> Duration {
        let (mut bound, mut last, mut next) = (0, 0, BETWEEN);
        let (mut grown, mut stall) = (Instant::now(), Duration::ZERO);
        loop {
            let (over, now) = (is_over(), bytes());
            if now > last {
                // Not what the job took to begin.
                stall = stall.max(if last > 0 { grown.elapsed() } else { Duration::ZERO });
                (last, grown) = (now, Instant::now());
            }
            if bound < REBINDINGS && now >= next {
                bound += 1;
                self.rebind(bound);
                // What has arrived meanwhile counts for the time before.
                next = bytes() + BETWEEN;
            }
            if over || now == BYTES {
                assert_eq!(bound, REBINDINGS, "{now} bytes arrived");
                return stall;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Bytes of the only file below `folder` that is no state of a part.
fn arrived(folder: &Path) -> u64 {
    let steps = walkdir::WalkDir::new(folder).into_iter().flatten();
    let files = steps.filter(|step| step.path().extension().is_none_or(|extension| extension == "part"));
    files
        .filter_map(|step| step.metadata().ok())
        .filter(|file| file.is_file())
        .map(|file| file.len())
        .max()
        .unwrap_or(0)
}

/// The client's file crosses a translator that gives it other ports and addresses: one connection, no byte lost.
#[test]
fn e8_an_upload_through_a_translator_that_rebinds() {
    let Some(network) = Network::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, into) = (folder.path().join("file"), folder.path().join("into"));
    write(&file, BYTES);
    fs::create_dir(&into).unwrap();
    for round in 0..if quick() { 1 } else { 3 } {
        network.rebind(0);
        let mut receiver = Running::spawn(&mut network.server.inside(&receive(&into, SERVER)));
        let link = receiver.line()["link"].as_str().unwrap().to_owned();
        let mut command = tidewire(&["send", "--json", "--max-rate", RATE]);
        let mut sender = network.client.inside(command.arg(&file).arg(&link)).stdout(Stdio::piped()).spawn().unwrap();
        let stall = network.rebind_while_it_grows(|| arrived(&into), || sender.try_wait().unwrap().is_some());
        println!("round {round}: upload, {REBINDINGS} rebindings, nothing arrived for {stall:?} at most");
        let output = sender.wait_with_output().unwrap();
        let (sent, received) = (schema::lines(&output.stdout), receiver.end());
        assert_eq!((output.status.code(), received.0), (Some(0), Some(0)), "{sent:?}, {received:?}");
        for lines in [&sent, &received.1] {
            assert_eq!(lines.iter().filter(|line| line["event"] == "connected").count(), 1, "{lines:?}");
        }
        // Each address was proven before it was used.
        assert_eq!(received.1.last().unwrap()["moves"], REBINDINGS, "{received:?}");
        assert!(fs::read(into.join("file")).unwrap() == fs::read(&file).unwrap(), "other bytes");
        assert!(stall < LONGEST_STALL, "nothing arrived for {stall:?}");
        fs::remove_file(into.join("file")).unwrap();
    }
}

/// The other way: the server learns only from the client's answers where the client is now.
#[test]
fn e8_a_download_through_a_translator_that_rebinds() {
    let Some(network) = Network::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("file"), folder.path().join("copy"));
    write(&file, BYTES);
    for round in 0..if quick() { 1 } else { 3 } {
        network.rebind(0);
        let mut command = network.server.inside(&tidewire(&["pipe", "--json", "--listen", SERVER, "--max-rate", RATE]));
        command.stdin(File::open(&file).unwrap()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut said = BufReader::new(server.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let link = schema::lines(line.as_bytes())[0]["link"].as_str().unwrap().to_owned();
        let mut command = network.client.inside(&tidewire(&["pipe", "--json", &link]));
        command.stdin(Stdio::null()).stdout(File::create(&copy).unwrap()).stderr(Stdio::null());
        let mut client = command.spawn().unwrap();
        let length = || fs::metadata(&copy).unwrap().len();
        let stall = network.rebind_while_it_grows(length, || client.try_wait().unwrap().is_some());
        println!("round {round}: download, {REBINDINGS} rebindings, nothing arrived for {stall:?} at most");
        let mut rest = Vec::new();
        said.read_to_end(&mut rest).unwrap();
        let lines = schema::lines(&rest);
        assert_eq!((server.wait().unwrap().code(), client.wait().unwrap().code()), (Some(0), Some(0)), "{lines:?}");
        assert_eq!(lines.last().unwrap()["moves"], REBINDINGS, "{lines:?}");
        assert!(fs::read(&copy).unwrap() == fs::read(&file).unwrap(), "other bytes");
        assert!(stall < LONGEST_STALL, "nothing arrived for {stall:?}");
    }
}
