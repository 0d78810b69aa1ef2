//! A network address translator that rebinds between client and server: nftables in its own network
//! namespace, between the namespaces of the two hosts. Tests that need root or nft say so and pass where
//! these are missing.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::tidewire;
use crate::{schema, wrapped};

/// How often the translator rebinds in a job.
const REBINDINGS: u64 = 5;
/// Bytes that arrive between two rebindings, which take 0.3 s. This is more than can be on the way, so the
/// client's new address is in use before it gets the next one.
const BETWEEN: u64 = 1_500_000;
const RATE: &str = "40mbit";
/// The longest time without an arriving byte. Simulated it is two round trips (rows S2 and S3). Here a busy
/// machine sets the bound.
const LONGEST_STALL: Duration = Duration::from_secs(3);
/// A job has failed if nothing arrives for this long.
const GIVE_UP: Duration = Duration::from_secs(60);
/// The translator's outer addresses.
const OUTER: [&str; 2] = ["10.98.2.1", "10.98.2.9"];
const SERVER: &str = "10.98.2.2:0";

/// A network namespace. It ends with the process that lives in it, and that process ends with the test.
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

    /// `command`, to be run in this namespace.
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

/// A client behind a translator, and a server in front of it.
struct Network {
    client: Namespace,
    translator: Namespace,
    server: Namespace,
}

impl Network {
    fn start() -> Self {
        // Tries everything that the network needs, in a namespace that ends at once.
        let trial = "nft add table ip nat && ip link add inner type veth peer name outer";
        let output = Command::new("unshare").args(["--net", "sh", "-ec", trial]).output();
        let possible = output.is_ok_and(|output| output.status.success());
        tidewire_testing::needs("root, nft (nftables), ip (iproute2), and a kernel for them", possible);
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
        network
    }

    /// Makes binding number `index`: other ports each time, another outer address every second time. The
    /// translator forgets earlier bindings, because it tracks connections in another zone. It refuses what
    /// still comes to the old port.
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

    /// Rebinds while bytes arrive. Returns the longest time without an arriving byte since the rebinding, or
    /// `None` when no more bytes come. `bytes` returns how many have arrived.
    fn rebind_under_way(&self, bytes: impl Fn() -> u64) -> Option<Duration> {
        let (mut bound, mut last, mut next) = (0, 0, BETWEEN);
        let (mut grown, mut stall) = (Instant::now(), Duration::ZERO);
        loop {
            let now = bytes();
            if now > last {
                // The time before the job's first byte does not count.
                stall = stall.max(if last > 0 { grown.elapsed() } else { Duration::ZERO });
                (last, grown) = (now, Instant::now());
            }
            if grown.elapsed() > GIVE_UP {
                return None;
            }
            if now >= next {
                if bound == REBINDINGS {
                    return Some(stall);
                }
                bound += 1;
                self.rebind(bound);
                // Bytes that arrived meanwhile count for the time before. The time that nft takes does not
                // count: on a busy machine it is seconds.
                (last, grown) = (bytes(), Instant::now());
                next = last + BETWEEN;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Runs `pipe` on the server or the client. Its standard output goes to `copy` or is dropped.
    fn pipe(&self, at: &Namespace, arguments: &[&str], feeds: bool, copy: Option<&File>) -> Child {
        let mut command = at.inside(&tidewire(&[&["pipe", "--json", "--max-rate", RATE], arguments].concat()));
        let stdin = if feeds { Stdio::piped() } else { Stdio::null() };
        let stdout = copy.map_or_else(Stdio::null, |copy| copy.try_clone().unwrap().into());
        command.stdin(stdin).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap()
    }
}

/// The bytes that all jobs carry.
fn content() -> blake3::OutputReader {
    blake3::Hasher::new().finalize_xof()
}

/// Writes until `enough` is set. Returns the number of bytes.
fn feed(mut stdin: ChildStdin, enough: &AtomicBool) -> u64 {
    let (mut content, mut bytes, mut piece) = (content(), 0, [0; 16 << 10]);
    while !enough.load(Ordering::Relaxed) {
        content.fill(&mut piece);
        stdin.write_all(&piece).unwrap();
        bytes += piece.len() as u64;
    }
    bytes
}

/// The exit code, and the lines that were not read yet.
fn end(mut child: Child, mut said: impl Read) -> (Option<i32>, Vec<serde_json::Value>) {
    let mut rest = Vec::new();
    said.read_to_end(&mut rest).unwrap();
    (child.wait().unwrap().code(), schema::lines(&rest))
}

/// The translator gives the client other ports and addresses while bytes flow: one connection, no byte lost.
/// Bytes flow until the last address is in use, however slow the machine is.
fn cross(upload: bool) {
    let network = Network::start();
    for round in 0..if tidewire_testing::few_seeds() { 1 } else { 3 } {
        network.rebind(0);
        let copy = tempfile::tempfile().unwrap();
        let mut server = network.pipe(&network.server, &["--listen", SERVER], !upload, upload.then_some(&copy));
        let mut said = BufReader::new(server.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let link = schema::lines(line.as_bytes())[0]["link"].as_str().unwrap().to_owned();
        let mut client = network.pipe(&network.client, &[&link], upload, (!upload).then_some(&copy));
        let stdin = if upload { client.stdin.take() } else { server.stdin.take() }.unwrap();
        let enough = AtomicBool::new(false);
        let (stall, bytes) = thread::scope(|scope| {
            let fed = scope.spawn(|| feed(stdin, &enough));
            let stall = network.rebind_under_way(|| copy.metadata().unwrap().len());
            enough.store(true, Ordering::Relaxed);
            if stall.is_none() {
                // The thread that feeds it learns from this that the job is over.
                client.kill().and_then(|()| server.kill()).unwrap();
            }
            (stall.expect("no byte arrives any more"), fed.join().unwrap())
        });
        println!("round {round}: upload {upload}, {REBINDINGS} rebindings, nothing arrived for {stall:?} at most");
        let stderr = client.stderr.take().unwrap();
        let (client, server) = (end(client, stderr), end(server, said));
        assert_eq!((client.0, server.0), (Some(0), Some(0)), "{client:?}, {server:?}");
        for lines in [&client.1, &server.1] {
            assert_eq!(lines.iter().filter(|line| line["event"] == "connected").count(), 1, "{lines:?}");
        }
        // Each address was proven before it was used.
        assert_eq!(server.1.last().unwrap()["moves"], REBINDINGS, "{server:?}");
        let (arrived, mut wanted) = (fs::read(format!("/proc/self/fd/{}", copy.as_raw_fd())).unwrap(), Vec::new());
        content().take(bytes).read_to_end(&mut wanted).unwrap();
        assert!(arrived == wanted, "{} of {bytes} bytes, or others", arrived.len());
        assert!(stall < LONGEST_STALL, "nothing arrived for {stall:?}");
    }
}

#[test]
#[ignore = "needs root, nft and iproute2"]
fn e8_an_upload_through_a_translator_that_rebinds() {
    cross(true);
}

/// The server learns only from the client's answers where the client is now.
#[test]
#[ignore = "needs root, nft and iproute2"]
fn e8_a_download_through_a_translator_that_rebinds() {
    cross(false);
}
