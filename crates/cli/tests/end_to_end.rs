//! Real processes over real sockets: `receive` and `send`, with losses between them.
#![cfg(unix)]

mod process;
mod schema;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Output;

use process::{Running, lossy_link, tidewire};
use serde_json::Value;
use tidewire_proxy::Proxy;

/// A receiver into its own folder, and a lossy link in front of it.
struct Stage {
    folder: tempfile::TempDir,
    receiver: Running,
    link: Proxy,
    /// This address leads through the lossy link.
    address: String,
}

impl Stage {
    fn new(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("into");
        fs::create_dir(&into).unwrap();
        let into = into.to_str().unwrap();
        let mut receiver = Running::start(&["receive", "--json", "--once", "--listen", "127.0.0.1:0", "--dir", into]);
        let direct = receiver.line()["link"].as_str().unwrap().to_owned();
        let (link, address) = lossy_link(&direct, settings);
        Self { folder, receiver, link, address }
    }

    fn destination(&self) -> PathBuf {
        self.folder.path().join("into")
    }

    /// Makes a file to send.
    fn source(&self, name: &str, bytes: usize) -> PathBuf {
        let path = self.folder.path().join("from").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut content = vec![0; bytes];
        blake3::Hasher::new().update(name.as_bytes()).finalize_xof().fill(&mut content);
        fs::write(&path, content).unwrap();
        path
    }

    fn send(&self, paths: &[&Path]) -> Output {
        self.send_with(&[], paths)
    }

    fn send_with(&self, options: &[&str], paths: &[&Path]) -> Output {
        let mut command = tidewire(&["send", "--json"]);
        command.args(options).args(paths).arg(&self.address).output().unwrap()
    }
}

fn tree(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let steps = walkdir::WalkDir::new(root).min_depth(1).into_iter().map(Result::unwrap);
    steps
        .map(|step| {
            let content = step.file_type().is_file().then(|| fs::read(step.path()).unwrap());
            (step.path().strip_prefix(root).unwrap().to_owned(), content)
        })
        .collect()
}

fn find<'a>(lines: &'a [Value], event: &str) -> &'a Value {
    lines.iter().rev().find(|line| line["event"] == event).unwrap_or_else(|| panic!("no {event} in {lines:?}"))
}

#[test]
fn a_folder_crosses_twenty_percent_loss_whole() {
    let stage = Stage::new(&["--rate", "50mbit", "--rtt", "20ms", "--loss", "20%", "--back-loss", "5%"]);
    for (name, bytes) in [("tree/big", 3_000_000), ("tree/empty", 0), ("tree/deep/er/ü", 100_000), ("tree/deep/x", 1)]
    {
        stage.source(name, bytes);
    }
    let sent = stage.send(&[&stage.folder.path().join("from/tree")]);
    assert_eq!(sent.status.code(), Some(0), "{}", String::from_utf8_lossy(&sent.stderr));
    assert_eq!(tree(&stage.folder.path().join("from")), tree(&stage.destination()));
    let lines = schema::lines(&sent.stdout);
    let summary = lines.last().unwrap();
    assert_eq!((&summary["event"], &summary["bytes"]), (&"summary".into(), &3_100_001.into()));
    assert!(summary["packets"]["repair"].as_u64().unwrap() > 0, "the default must code: {summary}");
    let loss = summary["loss"].as_f64().unwrap();
    assert!((0.1..0.3).contains(&loss), "{summary}");

    let Stage { receiver, .. } = stage;
    let (code, lines) = receiver.end();
    assert_eq!(code, Some(0));
    assert_eq!(find(&lines, "tally")["failed"], 0);
    assert!(summary["delay_ms"]["p99"].is_null(), "a sender does not know the delay at the other end");
    assert!(lines.last().unwrap()["delay_ms"]["p99"].as_f64().unwrap() > 0.0);
    let symbols = &lines.last().unwrap()["symbols"];
    let count = |name: &str| symbols[name].as_u64().unwrap();
    assert!(count("repaired") > 0, "{symbols}");
    assert_eq!(count("direct") + count("repaired") + count("resent"), count("delivered"));
}

#[test]
fn blocks_under_another_code_arrive_whole() {
    let stage = Stage::new(&["--rate", "50mbit", "--rtt", "20ms", "--loss", "10%"]);
    let source = stage.source("blocks", 2_000_000);
    let sent = stage.send_with(&["--profile", "block:32,8", "--code", "rlc16"], &[&source]);
    assert_eq!(sent.status.code(), Some(0), "{}", String::from_utf8_lossy(&sent.stderr));
    assert_eq!(fs::read(stage.destination().join("blocks")).unwrap(), fs::read(&source).unwrap());
    let (code, lines) = stage.receiver.end();
    assert_eq!(code, Some(0));
    assert!(lines.last().unwrap()["symbols"]["repaired"].as_u64().unwrap() > 0, "{lines:?}");
}

#[test]
#[ignore = "slow: waits in real time"]
fn a_wrong_secret_is_never_answered_and_ends_with_3() {
    let stage = Stage::new(&[]);
    let source = stage.source("f", 10);
    let fresh = tidewire(&["keygen"]).output().unwrap().stdout;
    let (host, _) = stage.address.split_once('#').unwrap();
    let wrong = format!("{host}#{}", String::from_utf8(fresh).unwrap().trim());
    let sent = tidewire(&["send", "--json", source.to_str().unwrap(), &wrong]).output().unwrap();
    assert_eq!(sent.status.code(), Some(3));
    let lines = schema::lines(&sent.stdout);
    assert_eq!(find(&lines, "error")["message"], "no answer: wrong host, port or secret");
    let counted = stage.link.stop().unwrap();
    assert!(counted.forward.delivered > 0);
    assert_eq!(counted.back.offered, 0, "something was answered");
}

#[test]
fn what_cannot_be_sent_or_placed_is_named_and_the_rest_arrives() {
    let stage = Stage::new(&["--loss", "10%"]);
    let (good, blocked) = (stage.source("good", 50_000), stage.source("blocked/f", 2_000_000));
    // A file stands where a folder should be. No user can write there, not even root.
    fs::write(stage.destination().join("blocked"), b"in the way").unwrap();
    let link = stage.folder.path().join("link");
    std::os::unix::fs::symlink(&good, &link).unwrap();
    let missing = stage.folder.path().join("missing");
    let sent = stage.send(&[&missing, &link, Path::new("/dev/null"), blocked.parent().unwrap(), &good]);
    assert_eq!(sent.status.code(), Some(7));
    let lines = schema::lines(&sent.stdout);
    let mut reasons: Vec<_> = lines.iter().filter_map(|line| line["reason"].as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["not a file", "not a file", "unwritable", "unwritable", "vanished"]);
    assert_eq!(fs::read(stage.destination().join("good")).unwrap(), fs::read(&good).unwrap());
    assert_eq!(tree(&stage.destination()).len(), 2);
    let Stage { receiver, .. } = stage;
    assert_eq!(receiver.end().0, Some(7));
}

#[test]
fn an_interrupted_receiver_leaves_no_part_and_the_sender_hears_of_it() {
    let stage = Stage::new(&["--rate", "4mbit"]);
    let source = stage.source("large", 20_000_000);
    let mut sender = Running::start(&["send", "--json", source.to_str().unwrap(), &stage.address]);
    // Once bytes were read from the stream, the transfer is certainly under way.
    let Stage { folder, mut receiver, link, .. } = stage;
    while receiver.line()["bytes"].as_u64().unwrap_or(0) == 0 {}
    assert_eq!(tree(&folder.path().join("into")).len(), 2, "the folder of parts and the part");
    receiver.interrupt();
    assert_eq!(receiver.end().0, Some(130));
    assert_eq!(tree(&folder.path().join("into")), BTreeMap::new(), "a part without a group is of no use");
    let _ = sender.line();
    assert_eq!(sender.end().0, Some(5));
    drop(link);
}

/// All that the page of a dashboard is told, as text where it is text.
fn channel_of(url: &str) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut tcp = TcpStream::connect(host).unwrap();
    write!(tcp, "GET /{path}stream HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
#[ignore = "slow: waits in real time"]
fn the_demo_measures_three_runs_of_each_part_and_draws_them() {
    let folder = tempfile::tempdir().unwrap();
    let (file, svg) = (folder.path().join("f"), folder.path().join("demo.svg"));
    let mut content = vec![0; 3_000_000];
    blake3::Hasher::new().update(b"demo").finalize_xof().fill(&mut content);
    fs::write(&file, content).unwrap();
    let arguments = ["demo", file.to_str().unwrap(), "--svg", svg.to_str().unwrap(), "--json", "--dashboard"];
    let mut demo = Running::start(&arguments);
    let url = demo.wait_for("dashboard")["url"].as_str().unwrap().to_owned();
    let page = std::thread::spawn(move || channel_of(&url));
    let (code, lines) = demo.end();
    assert_eq!(code, Some(0), "{lines:?}");
    // Who watches sees both ends of each run.
    let page = page.join().unwrap();
    for way in ["to", "from"] {
        let told = format!("\"peer\":\"{way} 127.0.0.1:");
        let opened =
            page.split(&told).skip(1).filter(|rest| rest.split('}').next().unwrap().ends_with("\"closed\":null"));
        assert_eq!(opened.count(), 6, "{way}");
    }
    let runs: Vec<_> = lines.iter().filter(|line| line["event"] == "run").collect();
    let profiles: Vec<_> = runs.iter().filter_map(|run| run["profile"].as_str()).collect();
    assert_eq!(profiles, ["arq", "block:32,8", "stream", "arq", "block:32,8", "stream"]);
    let (records, files) = runs.split_at(3);
    assert!(records.iter().all(|run| run["part"] == "records" && run["summary"]["records"]["delivered"] == 10_000));
    assert!(files.iter().all(|run| run["part"] == "file" && run["hash_ok"] == true));
    // Checks that what each run is meant to show did happen.
    let packets = |run: usize, name: &str| runs[run]["summary"]["packets"][name].as_u64().unwrap();
    for first in [0, 3] {
        assert_eq!(packets(first, "repair"), 0);
        assert!(packets(first + 1, "repair") > 0 && packets(first + 2, "repair") > 0);
    }
    assert!(runs.iter().all(|run| run["summary"]["delay_ms"]["p99"].as_f64().unwrap() > 0.0));
    assert_eq!(lines.last().unwrap()["event"], "summary");
    assert!(fs::read_to_string(svg).unwrap().contains("half of the link"));
    assert!(fs::read_to_string(folder.path().join("demo-file.svg")).unwrap().contains("fills the link"));
}

#[test]
#[ignore = "slow: waits in real time"]
fn the_demo_shows_how_senders_share_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("shares.svg");
    let arguments = ["demo", "--senders", "2", "--rate-control", "share", "--json", "--svg", svg.to_str().unwrap()];
    let (code, lines) = Running::start(&arguments).end();
    assert_eq!(code, Some(0), "{lines:?}");
    let shares: Vec<_> = lines.iter().filter(|line| line["event"] == "shares").collect();
    let senders = |line: &serde_json::Value| line["goodput_bps"].as_array().unwrap().len();
    assert!(shares.len() >= 8 && senders(shares[0]) == 1 && senders(shares.last().unwrap()) == 2, "{shares:?}");
    for line in &shares {
        let sum: f64 = line["goodput_bps"].as_array().unwrap().iter().map(|goodput| goodput.as_f64().unwrap()).sum();
        assert!((sum - line["sum_bps"].as_f64().unwrap()).abs() < 1.0, "{line}");
        assert!((0.0..=1.000_1).contains(&line["jain"].as_f64().unwrap()), "{line}");
    }
    let summary = lines.last().unwrap();
    assert!(summary["event"] == "summary" && summary["bytes"].as_u64().unwrap() > 1_000_000, "{summary}");
    assert!(summary["rate_control"]["dropped_packets"].is_u64(), "{summary}");
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("sender 2") && svg.contains("by the queue"), "{svg}");
}
