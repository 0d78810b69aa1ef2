//! `--record` with real processes: what is in the file after the job, after a kill and on a full disk,
//! and its replay.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tidewire_proto::trace::TraceEvent;
use tidewire_recording::{Item, ReadError, Reader};

use crate::process::{Running, lossy_link, tidewire};
use crate::schema;

const LINK: [&str; 6] = ["--rate", "25mbit", "--rtt", "40ms", "--loss", "5%"];

fn read(path: &Path) -> (Vec<Item>, Option<ReadError>) {
    Reader::open(File::open(path).unwrap()).unwrap().read_all()
}

fn events(items: &[Item]) -> impl Iterator<Item = &TraceEvent> {
    items.iter().filter_map(|item| match item {
        Item::Event(entry) => Some(&entry.event),
        _ => None,
    })
}

fn count(items: &[Item], is_counted: impl Fn(&TraceEvent) -> bool) -> u64 {
    events(items).filter(|event| is_counted(event)).count() as u64
}

fn server(arguments: &[&str]) -> (Running, String) {
    let mut server = Running::start(&[&["bench", "-s", "--json", "--listen", "127.0.0.1:0"], arguments].concat());
    let link = server.line()["link"].as_str().unwrap().to_owned();
    (server, link)
}

#[test]
#[ignore = "slow: waits in real time"]
fn both_ends_record_every_packet() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let [near, far] = ["near.rec", "far.rec"].map(|name| path(name).to_str().unwrap().to_owned());
    let (mut server, direct) = server(&["--once", "--record", &far]);
    let (_proxy, link) = lossy_link(&direct, &LINK);
    let client = ["bench", "--json", "-c", &link, "-b", "4mbit", "-t", "3", "-l", "1000", "--record", &near];
    let client = tidewire(&client).output().unwrap();
    assert_eq!(client.status.code(), Some(0));
    let summary = schema::lines(&client.stdout).pop().unwrap();
    server.wait_for("summary");
    assert_eq!(server.end().0, Some(0));

    let (items, error) = read(&path("near.rec"));
    assert!(error.is_none(), "{error:?}");
    let sent = count(&items, |event| matches!(event, TraceEvent::PacketSent { .. }));
    // The packets of closing leave after the summary.
    let counted = summary["packets"]["sent"].as_u64().unwrap();
    assert!((counted..counted + 20).contains(&sent), "{sent} recorded, {counted} counted");
    let missed = items.iter().filter(|item| matches!(item, Item::Missed { .. })).count();
    assert_eq!(missed, 0);
    let (items, error) = read(&path("far.rec"));
    assert!(error.is_none(), "{error:?}");
    let repaired = count(&items, |event| matches!(event, TraceEvent::SymbolRepaired { .. }));
    assert_eq!(Some(repaired), summary["symbols"]["repaired"].as_u64());
}

/// Runs a bench of so many seconds over a lossy link. Returns the recordings of the sender and the receiver.
pub fn recorded_bench(folder: &Path, seconds: &str, profile: &[&str]) -> [String; 2] {
    let [near, far] = ["near.rec", "far.rec"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    let (mut server, direct) = server(&["--once", "--record", &far]);
    let (_proxy, link) = lossy_link(&direct, &LINK);
    let client = ["bench", "--json", "-c", &link, "-b", "8mbit", "-t", seconds, "-l", "1000", "--record", &near];
    let client = tidewire(&[&client[..], profile].concat()).output().unwrap();
    assert_eq!(client.status.code(), Some(0));
    server.wait_for("summary");
    assert_eq!(server.end().0, Some(0));
    [near, far]
}

/// Replays a recorded bench with the same choices, and compares the delays with those of its receiver.
fn replay_of_a_bench(profile: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let [near, far] = recorded_bench(folder.path(), "6", profile);
    let svg = folder.path().join("replay.svg").to_str().unwrap().to_owned();
    let replay = tidewire(&["replay", "--json", &near, "--peer", &far, "--svg", &svg]).output().unwrap();
    assert_eq!(replay.status.code(), Some(0), "{}", String::from_utf8_lossy(&replay.stderr));
    let lines = schema::lines(&replay.stdout);
    let names: Vec<_> = lines.iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(names[..2], ["recorded", "same choices"]);
    assert!(names.len() > 5 && lines[1]["done"] == true, "{lines:?}");
    assert!(lines.iter().all(|line| line["bytes"] == lines[0]["bytes"]), "{lines:?}");
    for quantile in ["p50", "p95", "p99"] {
        let [recorded, replayed] = [0, 1].map(|line: usize| lines[line]["delay_ms"][quantile].as_f64().unwrap());
        // What a busy machine delays is in the recording and not in the replay. The simulator's test of
        // replays has the exact bound.
        let allowed = (0.15 * recorded).max(8.0);
        assert!((recorded - replayed).abs() <= allowed, "{quantile} was {recorded} ms, and {replayed} in the replay");
    }
    let [recorded, replayed] = [0, 1].map(|line: usize| lines[line]["overhead"].as_f64().unwrap());
    assert!((recorded - replayed).abs() < 0.05, "{recorded} was the overhead, and {replayed} in the replay");
    assert!(std::fs::read_to_string(svg).unwrap().contains("same choices"));

    let wrong = tidewire(&["replay", &far]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("give the recording of the end that sends"));
    let wrong = tidewire(&["replay", "--rate-control", "cubic", &near]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    // A byte that changed on the disk.
    let mut bytes = std::fs::read(&near).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&near, bytes).unwrap();
    let wrong = tidewire(&["replay", &near]).output().unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && said.contains("the block at byte"), "{said}");
}

#[test]
#[ignore = "slow: waits in real time"]
fn a_replay_of_a_coded_bench_gives_its_delays() {
    replay_of_a_bench(&[]);
}

#[test]
#[ignore = "slow: waits in real time"]
fn a_replay_of_a_bench_with_retransmissions_gives_its_delays() {
    replay_of_a_bench(&["--profile", "arq"]);
}

#[test]
fn a_killed_job_leaves_its_recording_up_to_the_last_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed.rec");
    let (_server, link) = server(&[]);
    let record = path.to_str().unwrap();
    let mut client =
        Running::start(&["bench", "--json", "-c", &link, "-b", "1mbit", "-t", "60", "-i", "500ms", "--record", record]);
    let mut until = 0.0;
    while until < 2.0 {
        until = client.wait_for("interval")["to_seconds"].as_f64().unwrap();
    }
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    let (items, error) = read(&path);
    assert!(matches!(error, Some(ReadError::Truncated { .. })), "{error:?}");
    let last = items.iter().rev().find_map(|item| match item {
        Item::Event(entry) => Some(entry.at),
        _ => None,
    });
    assert!(last.unwrap() >= Duration::from_secs_f64(until - 1.0), "{last:?} of {until} s");
    // What there is can be replayed, with a warning.
    let replay = tidewire(&["replay", "--json", "--redundancy", "none", record]).output().unwrap();
    assert_eq!(replay.status.code(), Some(0));
    let warned = String::from_utf8_lossy(&replay.stderr);
    assert!(warned.contains("the recording is cut off at byte"), "{warned}");
}

#[test]
#[ignore = "slow: waits in real time"]
fn a_disk_that_is_full_ends_the_recording_and_not_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.rec");
    let (_server, link) = server(&[]);
    let client = tidewire(&[
        "bench",
        "--json",
        "-c",
        &link,
        "-b",
        "8mbit",
        "-t",
        "3",
        "-l",
        "1000",
        "--record",
        path.to_str().unwrap(),
    ]);
    // A limit of the length of files stands for a full disk; the signal that comes with it is ignored.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 32; exec \"$0\" \"$@\""]).arg(client.get_program());
    let ended = limited.args(client.get_args()).env("TIDEWIRE_CONFIG", "/dev/null").output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    let warned = String::from_utf8_lossy(&ended.stderr);
    let expected = format!("tidewire: the recording ends here: `{}`: the file cannot be written", path.display());
    assert_eq!(warned.lines().filter(|line| line.starts_with(&expected)).count(), 1, "{warned}");
    assert_eq!(schema::lines(&ended.stdout).last().unwrap()["bytes"], 3_000_000);
    let (items, error) = read(&path);
    assert!(!items.is_empty() && matches!(error, Some(ReadError::Truncated { .. })), "{error:?}");
}

#[test]
fn files_and_pipes_are_recorded_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("file"), vec![7; 100_000]).unwrap();
    let (into, far, near) = (path("into"), path("far.rec"), path("near.rec"));
    let mut receiver =
        Running::start(&["receive", "--json", "--once", "--dir", &into, "--listen", "127.0.0.1:0", "--record", &far]);
    let link = receiver.line()["link"].as_str().unwrap().to_owned();
    let sender = tidewire(&["send", "--json", "--record", &near, &path("file"), &link]).output().unwrap();
    assert_eq!((sender.status.code(), receiver.end().0), (Some(0), Some(0)));
    for recording in [near, far] {
        let (items, error) = read(Path::new(&recording));
        assert!(error.is_none(), "{error:?}");
        assert!(events(&items).any(|event| matches!(event, TraceEvent::Closed(_))), "{recording}");
        assert_eq!(count(&items, |event| matches!(event, TraceEvent::Agreed(_))), 1);
    }
    let wrong = tidewire(&["send", "--record", "/nowhere/file", &path("file"), &link]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(7));
    let wrong = tidewire(&["replay", &path("file")]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("not a recording"));
}
