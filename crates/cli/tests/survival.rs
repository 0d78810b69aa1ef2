//! Files survive what happens to a transfer: real processes are killed, disks fill up, sources change
//! (`docs/survival.md`, S13 and S15).
#![cfg(unix)]

mod process;
mod schema;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use process::{Running, address, lossy_link, tidewire};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The bytes that a kill may cost for each file.
const GROUP: u64 = 4 << 20;
/// Bytes of a slot of the state beside a part (docs/transfer.md section 4).
const STATE_SLOT: u64 = 4096;

/// Every file and directory below `root`, by hash.
fn tree(root: &Path) -> BTreeMap<PathBuf, Option<blake3::Hash>> {
    let steps = walkdir::WalkDir::new(root).min_depth(1).into_iter().map(Result::unwrap);
    steps
        .map(|step| {
            let hash = step.file_type().is_file().then(|| {
                let mut hasher = blake3::Hasher::new();
                hasher.update_reader(File::open(step.path()).unwrap()).unwrap();
                hasher.finalize()
            });
            (step.path().strip_prefix(root).unwrap().to_owned(), hash)
        })
        .collect()
}

/// Numbers that follow from a name and a seed.
struct Random(blake3::OutputReader);

impl Random {
    fn new(seed: &str) -> Self {
        Self(blake3::Hasher::new().update(seed.as_bytes()).finalize_xof())
    }

    fn below(&mut self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % bound
    }
}

fn write(path: &Path, bytes: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let reader = blake3::Hasher::new().update(path.as_os_str().as_encoded_bytes()).finalize_xof();
    std::io::copy(&mut reader.take(bytes), &mut File::create(path).unwrap()).unwrap();
}

/// Forwards datagrams between a sender, whose port changes, and a receiver. Kills a process when enough bytes
/// have passed towards the receiver.
struct Forwarder {
    address: SocketAddr,
    passed: Arc<AtomicU64>,
    trap: Arc<Mutex<Option<(u64, Pid)>>>,
}

impl Forwarder {
    fn start(receiver: SocketAddr) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let back = UdpSocket::bind("127.0.0.1:0").unwrap();
        back.connect(receiver).unwrap();
        let address = front.local_addr().unwrap();
        let (passed, trap) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
        let sender = Arc::new(Mutex::new(None));
        let (front_too, back_too) = (front.try_clone().unwrap(), back.try_clone().unwrap());
        let (counted, sprung, seen) = (Arc::clone(&passed), Arc::clone(&trap), Arc::clone(&sender));
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok((length, from)) = front.recv_from(&mut buffer) {
                *seen.lock().unwrap() = Some(from);
                // At this moment nobody may listen.
                let _ = back.send(&buffer[..length]);
                let passed = counted.fetch_add(length as u64, Ordering::Relaxed) + length as u64;
                let mut trap: std::sync::MutexGuard<'_, Option<(u64, Pid)>> = sprung.lock().unwrap();
                if trap.is_some_and(|(limit, _)| passed >= limit)
                    && let Some((_, victim)) = trap.take()
                {
                    let _ = kill_process(victim, Signal::KILL);
                }
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            loop {
                if let (Ok(length), Some(to)) = (back_too.recv(&mut buffer), *sender.lock().unwrap()) {
                    let _ = front_too.send_to(&buffer[..length], to);
                }
            }
        });
        Self { address, passed, trap }
    }

    /// Kills `victim` when `bytes` more have passed.
    fn arm(&self, bytes: u64, victim: Pid) {
        *self.trap.lock().unwrap() = Some((self.passed.load(Ordering::Relaxed) + bytes, victim));
    }

    fn disarm(&self) {
        *self.trap.lock().unwrap() = None;
    }
}

/// A receiver that can be restarted under the same link, and the files that are sent to it.
struct Stage {
    folder: tempfile::TempDir,
    listen: String,
    link: String,
    forwarder: Forwarder,
    receiver: Running,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("into")).unwrap();
        let secret = tidewire(&["keygen"]).output().unwrap().stdout;
        fs::write(folder.path().join("key"), secret).unwrap();
        let (receiver, link) = Self::receive(folder.path(), "127.0.0.1:0");
        let listen = address(&link);
        let forwarder = Forwarder::start(listen.parse().unwrap());
        let link = link.replace(&listen, &forwarder.address.to_string());
        Self { folder, listen, link, forwarder, receiver }
    }

    fn receive(folder: &Path, listen: &str) -> (Running, String) {
        let mut command = tidewire(&["receive", "--quiet", "--listen", listen]);
        command.arg("--dir").arg(folder.join("into")).arg("--key").arg(folder.join("key"));
        let mut receiver = Running::spawn(&mut command);
        let link = receiver.text();
        (receiver, link)
    }

    fn start_receiver_again(&mut self) {
        (self.receiver, _) = Self::receive(self.folder.path(), &self.listen);
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("from")
    }

    /// Kills `victim` when a state file says that a first group is on the disk. The transfer must be slow
    /// enough that it is not over by then.
    fn kill_after_first_group(&self, victim: Pid) {
        let parts = self.destination().join(".tidewire-parts");
        let is_state = |path: &Path| path.extension().is_some_and(|extension| extension == "state");
        // A state file that is being written is shorter than its first valid slot, which is the second one.
        let written = |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.len() >= 2 * STATE_SLOT);
        while !fs::read_dir(&parts)
            .is_ok_and(|steps| steps.flatten().any(|step| is_state(&step.path()) && written(&step.path())))
        {
            std::thread::yield_now();
        }
        let _ = kill_process(victim, Signal::KILL);
    }

    fn destination(&self) -> PathBuf {
        self.folder.path().join("into")
    }

    /// Bytes of the final files, and of the longest part, now at the destination. Holes of a part do not
    /// count: they are not flushed, and a kill costs at most a second of them.
    fn there(&self) -> (u64, u64) {
        let (mut whole, mut part) = (0, 0);
        for step in walkdir::WalkDir::new(self.destination()).into_iter().flatten() {
            let Ok(metadata) = step.metadata() else { continue };
            if step.path().extension().is_some_and(|extension| extension == "part") {
                part = part.max(metadata.len().min(512 * metadata.blocks()));
            } else if metadata.is_file() && !step.path().parent().unwrap().ends_with(".tidewire-parts") {
                whole += metadata.len();
            }
        }
        (whole, part)
    }
}

/// A line that a killed process did not finish is left out.
fn whole_lines(bytes: &[u8]) -> Vec<Value> {
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    schema::lines(&bytes[..end])
}

/// The sum of a number over the `resumed` events.
fn resumed(lines: &[Value]) -> u64 {
    lines.iter().filter(|line| line["event"] == "resumed").map(|line| line["offset"].as_u64().unwrap()).sum()
}

/// The length of S13's file with holes.
fn sparse_len() -> u64 {
    if tidewire_testing::few_seeds() { 8 * GROUP } else { 1 << 30 }
}

/// Makes the files of S13 and returns their bytes.
fn file_set(from: &Path) -> u64 {
    let large = if tidewire_testing::few_seeds() { 3 * GROUP } else { 12 * GROUP };
    for (name, bytes) in
        [("a old name", 4 * GROUP + 5), ("b empty", 0), ("c/ü 日本語\u{202e}", large + 1), ("d", 2 * GROUP)]
    {
        write(&from.join(name), bytes);
    }
    for index in 0..30 {
        write(&from.join(format!("small/{index}")), index * 1000);
    }
    write(&from.join("holes"), 100_000);
    File::options().write(true).open(from.join("holes")).unwrap().set_len(sparse_len()).unwrap();
    write(&from.join("z"), large);
    fs::rename(from.join("holes"), from.join("small/holes")).unwrap();
    walkdir::WalkDir::new(from)
        .into_iter()
        .flatten()
        .filter(|step| step.file_type().is_file())
        .map(|step| step.metadata().unwrap().len())
        .sum()
}

#[test]
fn s13_kill_9_of_either_side_costs_at_most_a_group_of_each_file() {
    let mut stage = Stage::new();
    let total = file_set(&stage.source());
    let mut random = Random::new("s13");
    // The bytes at the end of the last session: final files, and the longest part.
    let mut before = (0, 0);
    // Whether the sender was killed in the last session, and its output, for the message of a failure.
    let mut last = (false, Vec::new());
    let kills = if tidewire_testing::few_seeds() { 6 } else { 50 };
    for kill in 0..=kills {
        let mut command = tidewire(&["send", "--json"]);
        if kill == 0 {
            command.args(["--max-rate", "40mbit"]);
        }
        let mut sender = command.arg(stage.source()).arg(&stage.link).spawn().unwrap();
        let kill_sender = random.below(2) == 0;
        let victim = Pid::from_child(if kill_sender { &sender } else { &stage.receiver.child });
        if kill == 0 {
            // The first kill is during the first file: at this rate its other groups take 2 s.
            stage.kill_after_first_group(victim);
        } else if kill < kills {
            stage
                .forwarder
                .arm(50_000 + random.below(if tidewire_testing::few_seeds() { GROUP } else { 3 * GROUP }), victim);
        }
        let mut killed_receiver = false;
        if !kill_sender && kill < kills {
            // The process ends by itself only if the sender was done before the kill.
            let status = loop {
                if let Some(status) = stage.receiver.child.try_wait().unwrap() {
                    break Some(status);
                }
                if sender.try_wait().unwrap().is_some() {
                    break None;
                }
                std::thread::yield_now();
            };
            killed_receiver = status.is_some_and(|status| status.signal() == Some(9));
            let _ = sender.kill();
        }
        let output = sender.wait_with_output().unwrap();
        stage.forwarder.disarm();
        let lines = whole_lines(&output.stdout);
        // No byte at the destination was sent again, except less than a group of the file under way. The file
        // with holes is left out, because it may still be flushed while the part behind it grows.
        let under_way = |line: &&Value| line["offset"] != line["bytes"] && line["bytes"] != sparse_len();
        if let Some(began) = lines.iter().find(|line| line["event"] == "resumed" && under_way(line)) {
            let offset = began["offset"].as_u64().unwrap();
            assert!(
                before.1 <= offset + GROUP,
                "kill {kill}: {} bytes were there, it went on at {offset}: {lines:?}; the session before: {last:?}",
                before.1
            );
        }
        if output.status.code() == Some(0) {
            let tally = lines.iter().find(|line| line["event"] == "tally").unwrap();
            let (moved, there) = (tally["moved_bytes"].as_u64().unwrap(), tally["resumed_bytes"].as_u64().unwrap());
            assert_eq!((moved + there, resumed(&lines)), (total, there));
            assert!(
                moved + before.0 + before.1 <= total + GROUP,
                "{moved} of {total} moved though {before:?} were there"
            );
            assert!(kill > 2, "the kills came too late");
            break;
        }
        assert_ne!(kill, kills, "{lines:?}");
        if killed_receiver {
            stage.start_receiver_again();
        }
        before = stage.there();
        last = (kill_sender, lines);
        if kill == 0 {
            assert!(before.0 == 0 && before.1 >= GROUP, "the first kill came at {before:?}");
            fs::rename(stage.source().join("a old name"), stage.source().join("a new name")).unwrap();
        }
    }
    let arrived = tree(&stage.destination());
    let sent: BTreeMap<_, _> =
        tree(&stage.source()).into_iter().map(|(path, hash)| (Path::new("from").join(path), hash)).collect();
    assert!(arrived.get(Path::new("from")).is_some_and(Option::is_none));
    assert_eq!(arrived.into_iter().filter(|(path, _)| path != Path::new("from")).collect::<BTreeMap<_, _>>(), sent);
}

#[test]
#[ignore = "a minute: a lost connection is noticed after 60 s"]
fn s13_a_sender_outlives_its_receiver() {
    let mut stage = Stage::new();
    write(&stage.source().join("f"), 5 * GROUP);
    // Four groups follow the first one. The receiver is killed within the 6 s that they take.
    let sender = tidewire(&["send", "--json", "--max-rate", "20mbit"]).arg(stage.source()).arg(&stage.link).spawn();
    let sender = sender.unwrap();
    stage.kill_after_first_group(Pid::from_child(&stage.receiver.child));
    assert_eq!(stage.receiver.child.wait().unwrap().signal(), Some(9));
    stage.start_receiver_again();
    let output = sender.wait_with_output().unwrap();
    let lines = schema::lines(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{lines:?}");
    let resumed = resumed(&lines);
    assert!(resumed >= GROUP && resumed.is_multiple_of(GROUP), "it went on at {resumed}");
    assert_eq!(tree(&stage.source()), tree(&stage.destination().join("from")));
}

/// Starts a receiver into a small file system of its own, and returns the folder as seen from here.
fn receive_into_mount(folder: &Path, options: &str) -> (Running, PathBuf) {
    let mount = format!("mount -t tmpfs -o {options} tmpfs \"$0\"");
    let possible = Command::new("unshare").args(["-rm", "sh", "-c", &mount]).arg(folder).output();
    let possible = possible.is_ok_and(|output| output.status.success());
    tidewire_testing::needs("root or user namespaces, to mount a tmpfs", possible);
    let receive = tidewire(&["receive", "--json", "--listen", "127.0.0.1:0", "--dir"]);
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &format!("{mount} && exec \"$@\" \"$0\"")]).arg(folder);
    command.arg(receive.get_program()).args(receive.get_args()).env("TIDEWIRE_CONFIG", "/dev/null");
    let receiver = Running::spawn(&mut command);
    let seen = PathBuf::from(format!("/proc/{}/root", receiver.child.id())).join(folder.strip_prefix("/").unwrap());
    (receiver, seen)
}

fn send(paths: &[&Path], link: &str) -> (Option<i32>, Vec<Value>) {
    let output = tidewire(&["send", "--json"]).args(paths).arg(link).output().unwrap();
    (output.status.code(), schema::lines(&output.stdout))
}

#[test]
#[ignore = "needs root or user namespaces: mounts a small tmpfs"]
fn s15_a_full_disk_is_named_and_when_there_is_room_the_file_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("into");
    fs::create_dir(&into).unwrap();
    let (mut receiver, seen) = receive_into_mount(&into, "size=12m");
    let link = receiver.line()["link"].as_str().unwrap().to_owned();
    let (large, small) = (folder.path().join("large"), folder.path().join("small"));
    write(&large, 20_000_000);
    write(&small, 1000);
    let (code, lines) = send(&[&large, &small], &link);
    assert_eq!(code, Some(7), "{lines:?}");
    assert!(lines.iter().any(|line| line["path"] == "large" && line["reason"] == "no space"), "{lines:?}");
    assert_eq!(fs::read(seen.join("small")).unwrap(), fs::read(&small).unwrap());
    assert!(!seen.join("large").exists());

    let pid = receiver.child.id().to_string();
    let remount = ["-U", "-m", "--preserve-credentials", "-t", &pid, "mount", "-o", "remount,size=64m"];
    assert!(Command::new("nsenter").args(remount).arg(&into).status().unwrap().success());
    let (code, lines) = send(&[&large, &small], &link);
    assert_eq!(code, Some(0), "{lines:?}");
    assert_eq!(resumed(&lines), 2 * GROUP + 1000);
    // Bytes from an earlier session are no goodput of this session, and do not make its overhead negative.
    let summary = lines.last().unwrap();
    assert_eq!(summary["bytes"], 20_000_000 - 2 * GROUP);
    assert_eq!(summary["resumed_bytes"], 2 * GROUP + 1000);
    assert!(summary["overhead"].as_f64().unwrap() > 0.0, "{summary}");
    let both = BTreeMap::from(
        [&large, &small].map(|path| (path.file_name().unwrap().into(), Some(blake3::hash(&fs::read(path).unwrap())))),
    );
    assert_eq!(tree(&seen), both);
}

#[test]
#[ignore = "needs root or user namespaces: mounts a small tmpfs"]
fn s15_a_destination_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("into");
    fs::create_dir(&into).unwrap();
    let (receiver, _) = receive_into_mount(&into, "ro");
    // It ends before it prints a link.
    let (code, lines) = receiver.end();
    assert_eq!((code, lines.len()), (Some(7), 1), "{lines:?}");
    assert!(lines[0]["message"].as_str().unwrap().contains("cannot receive into"), "{lines:?}");
}

#[test]
#[ignore = "slow: waits in real time"]
fn s15_a_source_that_changes_while_it_is_sent_is_named_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("into");
    fs::create_dir(&into).unwrap();
    let listening = ["receive", "--json", "--listen", "127.0.0.1:0", "--dir", into.to_str().unwrap()];
    let mut receiver = Running::start(&listening);
    let direct = receiver.line()["link"].as_str().unwrap().to_owned();
    let (_slow, link) = lossy_link(&direct, &["--rate", "40mbit"]);
    let (changing, other) = (folder.path().join("changing"), folder.path().join("other"));
    write(&changing, 3 * GROUP);
    write(&other, 1000);
    let mut sender = Running::spawn(tidewire(&["send", "--json"]).args([&changing, &other]).arg(&link));
    sender.wait_for("progress");
    File::options().write(true).open(&changing).unwrap().set_len(3 * GROUP + 1).unwrap();
    let (code, lines) = sender.end();
    assert_eq!(code, Some(7), "{lines:?}");
    assert!(lines.iter().any(|line| line["reason"] == "changed while read"), "{lines:?}");
    assert_eq!(tree(&into).into_keys().collect::<Vec<_>>(), [PathBuf::from("other")]);
}
