//! Generations that workers code: every job carries the same bytes with 0, 1 and 2 workers.

use std::fs;

use crate::forward::{exchange, start_server};
use crate::process::{Running, lossy_link, tidewire};
use crate::schema;

/// Generations so long that workers code them, on a lossy link.
const PROFILE: [&str; 2] = ["--profile", "block:100,25"];
const LOSSY: [&str; 6] = ["--rate", "50mbit", "--rtt", "10ms", "--loss", "10%"];
const WORKERS: [&str; 3] = ["0", "1", "2"];

/// Bytes that do not compress.
fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    noise
}

#[test]
fn a_file_arrives_whole_with_any_number_of_workers() {
    for workers in WORKERS {
        let folder = tempfile::tempdir().unwrap();
        let (file, into) = (folder.path().join("file"), folder.path().join("into"));
        fs::create_dir(&into).unwrap();
        fs::write(&file, noise(3_000_000)).unwrap();
        let into_text = into.to_str().unwrap();
        let listen = ["receive", "--json", "--once", "--listen", "127.0.0.1:0", "--workers", workers];
        let mut receiver = Running::start(&[&listen[..], &["--dir", into_text]].concat());
        let direct = receiver.line()["link"].as_str().unwrap().to_owned();
        let (_proxy, link) = lossy_link(&direct, &LOSSY);
        let mut send = tidewire(&["send", "--json", "--workers", workers]);
        let output = send.args(PROFILE).arg(&file).arg(&link).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{workers} workers");
        let (code, lines) = receiver.end();
        assert_eq!(code, Some(0), "{workers} workers");
        let summary = lines.iter().rfind(|line| line["event"] == "summary").unwrap();
        assert!(summary["symbols"]["repaired"].as_u64().unwrap() > 100, "{summary}");
        assert!(fs::read(into.join("file")).unwrap() == fs::read(&file).unwrap(), "{workers} workers");
    }
}

#[test]
fn connections_are_carried_whole_with_any_number_of_workers() {
    let target = start_server();
    for workers in WORKERS {
        let more = [&PROFILE[..], &["--workers", workers]].concat();
        let (_server, direct) = crate::forward::serve(&[&target], &more);
        let (_proxy, link) = lossy_link(&direct, &LOSSY);
        let (_client, local) = crate::forward::forward_with(&target, &link, &more);
        exchange(&local, 500_000, 1_000_000);
    }
}

#[test]
#[ignore = "slow: waits in real time"]
fn bench_and_demo_run_with_any_number_of_workers() {
    for workers in WORKERS {
        let mut server = Running::start(&["bench", "-s", "--json", "--listen", "127.0.0.1:0", "--workers", workers]);
        let direct = server.line()["link"].as_str().unwrap().to_owned();
        let (_proxy, link) = lossy_link(&direct, &LOSSY);
        let arguments = ["bench", "--json", "-c", &link, "-b", "16mbit", "-t", "1", "-l", "1000", "--workers", workers];
        let client = tidewire(&arguments).args(PROFILE).output().unwrap();
        assert_eq!(client.status.code(), Some(0), "{workers} workers");
        let lines = schema::lines(&client.stdout);
        assert_eq!(lines.last().unwrap()["records"]["delivered"], 2_000, "{workers} workers");
    }
    // `end_to_end` runs `demo` without workers.
    let folder = tempfile::tempdir().unwrap();
    let (file, picture) = (folder.path().join("file"), folder.path().join("demo.svg"));
    fs::write(&file, noise(1_000_000)).unwrap();
    let demo = tidewire(&["demo", "--json", "--workers", "2", "--svg"]).arg(&picture).arg(&file).output();
    assert_eq!(demo.unwrap().status.code(), Some(0));
}
