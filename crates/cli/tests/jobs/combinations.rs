//! Every profile with every job: each carries the same bytes. Those that send combinations instead of source
//! symbols are also seen to do so.

use std::fs;

use tidewire_proto::profile::Profile;

use crate::forward::{exchange, forward_with, serve, start_server};
use crate::pipe::both_ways_at_once;
use crate::process::{Running, lossy_link, tidewire};
use crate::schema;

const COMBINING: [&str; 5] =
    ["pipeline", "pipeline:32,min", "pipeline:16,1.5,systematic", "bucket", "bucket:4,1.25,fixed"];
const OTHERS: [&str; 7] = ["stream", "arq", "block", "sphinx", "sphinx:printed", "rcdp", "rcdp:84,basic"];
const LOSSY: [&str; 6] = ["--rate", "50mbit", "--rtt", "10ms", "--loss", "10%"];

fn profiles() -> impl Iterator<Item = &'static str> {
    COMBINING.into_iter().chain(OTHERS)
}

#[test]
fn none_is_missing() {
    for named in Profile::NAMED {
        assert!(profiles().any(|profile| profile == named.name), "{}", named.name);
    }
}

#[test]
#[ignore = "slow: waits in real time"]
fn a_file_arrives_whole() {
    for profile in profiles() {
        let folder = tempfile::tempdir().unwrap();
        let (file, into) = (folder.path().join("file"), folder.path().join("into"));
        fs::create_dir(&into).unwrap();
        let mut noise = vec![0; 2_000_000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        fs::write(&file, &noise).unwrap();
        let listen = ["receive", "--json", "--once", "--listen", "127.0.0.1:0", "--dir", into.to_str().unwrap()];
        let mut receiver = Running::start(&listen);
        let direct = receiver.line()["link"].as_str().unwrap().to_owned();
        let (_proxy, link) = lossy_link(&direct, &LOSSY);
        let mut send = tidewire(&["send", "--json", "--profile", profile]);
        let output = send.arg(&file).arg(&link).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{profile}");
        let (code, lines) = receiver.end();
        assert_eq!(code, Some(0), "{profile}");
        assert!(fs::read(into.join("file")).unwrap() == noise, "{profile}");
        if OTHERS.contains(&profile) {
            continue;
        }
        let symbols = &lines.iter().rfind(|line| line["event"] == "summary").unwrap()["symbols"];
        let count = |name: &str| symbols[name].as_u64().unwrap();
        assert!(count("repaired") > 50, "{profile}: {symbols}");
        // Only a generation of one symbol brings that symbol, and `bucket` begins with them.
        let is_systematic = profile.ends_with("systematic");
        assert_eq!(count("direct") > count("repaired"), is_systematic, "{profile}: {symbols}");
    }
}

#[test]
#[ignore = "slow: waits in real time"]
fn connections_are_carried_whole() {
    let target = start_server();
    let (_server, direct) = serve(&[&target], &[]);
    for profile in profiles() {
        let (_proxy, link) = lossy_link(&direct, &LOSSY);
        let (_client, local) = forward_with(&target, &link, &["--profile", profile]);
        exchange(&local, 500_000, 1_000_000);
    }
}

#[test]
#[ignore = "slow: waits in real time"]
fn a_pipe_carries_both_directions() {
    for profile in profiles() {
        both_ways_at_once(&["--profile", profile]);
    }
}

/// With those that combine, the server's packets are combinations too, since it was started without a choice
/// of its own. It does not follow the fixed form, which fills blocks without a bound.
#[test]
#[ignore = "slow: waits in real time"]
fn bench_measures_both_directions() {
    for profile in profiles() {
        let mut server = Running::start(&["bench", "-s", "--json", "--listen", "127.0.0.1:0"]);
        let link = server.line()["link"].as_str().unwrap().to_owned();
        let load = ["-R", "-b", "4mbit", "-t", "1", "-l", "1000"];
        let client = [&["bench", "--json", "-c", &link, "--profile", profile][..], &load].concat();
        let output = tidewire(&client).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{profile}: {:?}", schema::lines(&output.stdout));
        if OTHERS.contains(&profile) {
            continue;
        }
        let summary = server.wait_for("summary");
        let packets = |name: &str| summary["packets"][name].as_u64().unwrap();
        let is_combined = packets("repair") > 400 && packets("source") < 20;
        let expected = !profile.ends_with("systematic") && !profile.ends_with("fixed");
        assert_eq!(is_combined, expected, "{profile}: {summary}");
    }
}
