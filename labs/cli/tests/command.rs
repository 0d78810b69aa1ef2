//! The command line of the laboratory as users meet it: the exit code and the message of each wrong input,
//! and the verbs that need no privileges.

#[path = "../../../crates/cli/tests/schema/mod.rs"]
mod schema;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

fn lab() -> Command {
    Command::cargo_bin("tidewire-lab").unwrap()
}

/// Runs with `arguments`. The command must refuse them as wrong usage, with all of `texts` in its message.
fn refused(arguments: &[&str], texts: &[&str]) {
    let mut assert = lab().args(arguments).assert().code(2);
    for text in texts {
        assert = assert.stderr(contains(*text));
    }
}

#[test]
fn wrong_options_and_units_end_with_2_and_an_example() {
    refused(&["link"], &["--to"]);
    refused(&["link", "--to", "nowhere"], &["--to", "127.0.0.1:7700"]);
    let to = ["link", "--to", "127.0.0.1:9"];
    refused(&[&to[..], &["--rate", "25"]].concat(), &["--rate", "\"25\" has no unit", "25mbit"]);
    refused(&[&to[..], &["--loss", "gilbert:10%"]].concat(), &["--loss", "gilbert:10%,4"]);
    refused(&[&to[..], &["--loss", "gilbert:90%,2"]].concat(), &["--loss", "impossible"]);
    refused(&["sim", "no-such-scenario.toml"], &["no-such-scenario.toml"]);
}

#[test]
fn completions_and_manual_name_every_verb() {
    for shell in ["bash", "fish", "zsh"] {
        lab().args(["completions", shell]).assert().success().stdout(contains("tidewire-lab"));
    }
    let manual = lab().arg("man").output().unwrap();
    let manual = String::from_utf8(manual.stdout).unwrap();
    for verb in ["link", "up", "run", "check", "contest", "sim", "papers"] {
        assert!(manual.contains(&format!(".SS tidewire\\-lab {verb}\n")), "{verb} is missing");
    }
}

#[test]
fn sim_gives_the_same_figures_for_the_same_seed() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("lossy.toml");
    let text = "seed = 7\n[link]\nrate = \"25mbit\"\nrtt = \"60ms\"\n[forward]\nloss = \"gilbert:10%,4\"\n";
    fs::write(&scenario, text).unwrap();
    let run = |redundancy: &str| {
        let mut command = lab();
        command.arg("sim").arg(&scenario).args(["--bytes", "1MB", "--json", "--redundancy", redundancy]);
        command.assert().success().get_output().stdout.clone()
    };
    let coded = run("adaptive");
    assert_eq!(coded, run("adaptive"));
    let summary = |stdout: &[u8]| schema::lines(stdout).pop().unwrap();
    let (coded, plain) = (summary(&coded), summary(&run("none")));
    assert_eq!((&coded["event"], &coded["bytes"]), (&"summary".into(), &1_000_000.into()));
    assert!(coded["packets"]["repair"].as_u64() > Some(0));
    assert_eq!(plain["packets"]["repair"], 0);
    let blocks = |code: &str| {
        let mut command = lab();
        command.arg("sim").arg(&scenario).args(["--bytes", "1MB", "--json", "--profile", "block:32,8", "--code", code]);
        summary(&command.assert().success().get_output().stdout)
    };
    // Another code over the same packets: all of them can repair.
    for code in ["rlc", "cauchy", "rlc16"] {
        assert!(blocks(code)["symbols"]["repaired"].as_u64() > Some(0), "{code}");
    }
    // The scenario's setting of an end counts, unless the command line has another.
    fs::write(&scenario, format!("{text}[near]\nprofile = \"arq\"\n")).unwrap();
    let mut plain = lab();
    plain.arg("sim").arg(&scenario).args(["--bytes", "1MB", "--json"]);
    assert_eq!(summary(&plain.assert().success().get_output().stdout)["packets"]["repair"], 0);
    assert!(blocks("rlc")["symbols"]["repaired"].as_u64() > Some(0));
    // A flow with a rate: 2,000 records in four seconds. The report of the link counts its packets.
    let flow = "[[flow]]\nfrom = \"near\"\nbytes = \"2400kB\"\nrate = \"4.8mbit\"\n";
    fs::write(&scenario, format!("{text}{flow}")).unwrap();
    let lines = schema::lines(&run("adaptive"));
    let [link, paced] = lines.last_chunk().unwrap();
    assert_eq!((&link["event"], &paced["records"]["delivered"]), (&"link_stats".into(), &2_000.into()));
    assert!(link["forward"]["lost"].as_u64() > Some(100));
    assert!(paced["records"]["one_way_ms"].as_f64() >= Some(30.0));
    assert!(paced["records"]["steady_delay_ms"]["max"].as_f64() <= paced["records"]["delay_ms"]["max"].as_f64());
    // A video of three seconds: a tenth of the link, and played to its end.
    let video = "[[flow]]\nfrom = \"near\"\nvideo = \"2.5mbit,3s\"\npace = \"live\"\nstartup = \"500ms\"\n";
    fs::write(&scenario, format!("{text}{video}")).unwrap();
    let lines = schema::lines(&run("adaptive"));
    let [_, viewing, whole] = lines.last_chunk().unwrap();
    assert_eq!((&viewing["event"], &whole["bytes"]), (&"playback".into(), &937_500.into()));
    assert_eq!((&viewing["flow"], &viewing["stalls"], &viewing["played_seconds"]), (&1.into(), &0.into(), &3.0.into()));
    let (start, end) = (viewing["first_start_seconds"].as_f64().unwrap(), viewing["ended_seconds"].as_f64().unwrap());
    assert!(start > 0.45 && (end - start - 3.0).abs() < 1e-6, "{start} {end}");
    assert_eq!(viewing["samples"].as_array().unwrap().last().unwrap()[1], 0.0);
    assert_eq!(whole["records"], serde_json::Value::Null);
    let mut table = lab();
    table.arg("sim").arg(&scenario).assert().success().stdout(contains("video, flow 1    starts at 0."));
    fs::write(&scenario, text.replace("25mbit", "25")).unwrap();
    refused(&["sim", scenario.to_str().unwrap()], &["rate", "25mbit"]);
}

#[test]
fn wrong_scenarios_are_named_with_file_line_key_and_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    let path = file.to_str().unwrap();
    for (text, wanted) in [
        ("[link]\nlos = \"1%\"", ":2: link.los: no such key; did you mean \"loss\"? (allowed: rate, "),
        ("[links]\n", ":1: links: no such key; did you mean \"link\"? (allowed: seed, "),
        ("[link]\nrtt = \"60\"", ":2: link.rtt: \"60\" has no unit; write for example \"60ms\" (units: ns "),
        ("[link]\nloss = \"110%\"", ":2: link.loss: \"110%\" is out of range (0% to 100%); write for example \"10%\""),
        ("[link]\nloss = \"-1%\"", ":2: link.loss: \"-1%\" is not a percentage; write for example \"10%\""),
        ("[link]\nloss = 0.1", ":2: link.loss: write the value with its unit in quotes"),
        ("[link]\nloss = \"gilbert:10%,0.5\"", ":2: link.loss: a mean burst of 0.5 is impossible"),
        ("[link]\nloss = \"gilbert:10%,inf\"", ":2: link.loss: "),
        ("[link]\nreorder = \"2%\"", ":2: link.reorder: \"2%\" is incomplete; write for example \"2%,3ms\""),
        ("[link]\nduplicate = \"101%\"", ":2: link.duplicate: \"101%\" is out of range (0% to 100%)"),
        ("[near]\nmax_overhead = \"130%\"", ":2: near.max_overhead: \"130%\" is out of range (0% to 100%)"),
        ("[near]\ndeliver = \"99.99999%\"", ":2: near.deliver: deliver must be from 50 % to 99.9999 %"),
        ("[far]\nlatency = \"5\"", ":2: far.latency: \"5\" has no unit"),
        ("[far]\nmaxrate = \"5mbit\"", ":2: far.maxrate: no such key; did you mean \"max_rate\"? (allowed: profile, "),
        ("[[flow]]\nfrom = \"left\"\nbytes = \"1MB\"", ":2: flow.from: \"left\" "),
        ("[[flow]]\nfrom = \"near\"\nbytes = \"1\"", ":3: flow.bytes: \"1\" has no unit"),
        ("seed = \"7\"", ":1: seed: write a whole number"),
    ] {
        fs::write(&file, text).unwrap();
        refused(&["sim", path], &[&format!("tidewire-lab: {path}{wanted}")]);
        #[cfg(target_os = "linux")]
        refused(&["run", path, "--", "true"], &[&format!("tidewire-lab: {path}{wanted}")]);
    }
}

/// The address on which a running `tidewire-lab link` says that it listens.
fn first_line(child: &mut std::process::Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    line
}

#[cfg(unix)]
#[test]
fn lab_link_carries_loses_and_tells() {
    let target = UdpSocket::bind("127.0.0.1:0").unwrap();
    // This is long, because on a busy machine the first datagram waits until the link runs.
    target.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let to = target.local_addr().unwrap().to_string();
    let mut process = Process::new(assert_cmd::cargo::cargo_bin("tidewire-lab"))
        .args(["link", "--listen", "127.0.0.1:0", "--to", &to, "--loss", "50%", "--rtt", "20ms", "--seed", "3"])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = first_line(&mut process);
    let address = line.split_whitespace().nth(2).unwrap().to_owned();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..200 {
        client.send_to(b"tide", &address).unwrap();
    }
    let mut buffer = [0; 16];
    target.recv(&mut buffer).unwrap();
    target.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let arrived = 1 + std::iter::from_fn(|| target.recv(&mut buffer).ok()).count();
    assert!((60..=140).contains(&arrived), "{arrived} of 200 passed a loss of 50 %");
    let pid = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(130));
}

/// A network in the simulator: the same figures each time, every event as the schema has it, and a picture.
#[test]
fn sim_runs_a_network() {
    let folder = tempfile::tempdir().unwrap();
    let (scenario, picture) = (folder.path().join("net.toml"), folder.path().join("net.svg"));
    let text = r#"
time = "5s"
[[node]]
name = "a"
[[node]]
name = "r"
role = "router"
[[node]]
name = "b"
[[link]]
from = "a"
to = "r"
rate = "20mbit"
delay = "5ms"
[[link]]
from = "r"
to = "b"
rate = "10mbit"
delay = "5ms"
queue = "100ms"
discipline = "codel"
[[flow]]
name = "call"
from = "a"
to = "b"
rate = "1mbit"
[[flow]]
kind = "cubic"
from = "a"
to = "b"
"#;
    fs::write(&scenario, text).unwrap();
    let run = || {
        let mut command = lab();
        command.arg("sim").arg(&scenario).arg("--json").arg("--svg").arg(&picture);
        command.assert().success().get_output().stdout.clone()
    };
    let output = run();
    assert_eq!(output, run());
    let lines = schema::lines(&output);
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["network_flow", "network_flow", "network_link", "network_link"]);
    assert_eq!([&lines[0]["name"], &lines[0]["kind"], &lines[1]["kind"]], ["call", "tidewire", "cubic"]);
    assert!(lines[0]["latency_ms"]["p50"].as_f64() >= Some(10.0) && lines[0]["jitter_ms"]["mean"].is_f64());
    assert!(lines[1]["window"].as_array().unwrap().len() > 50 && lines[1]["goodput_bps"].as_f64() > Some(5e6));
    assert!(lines[3]["forward_queue"].as_array().unwrap().len() >= 49);
    let picture = fs::read_to_string(&picture).unwrap();
    assert!(picture.contains("congestion window") && picture.contains("r-b") && !picture.contains("NaN"));
    // A table for people, and errors that name the line.
    lab().arg("sim").arg(&scenario).assert().success().stdout(contains("a > b").and(contains("r-b back")));
    // The second flow in a tunnel, whose settings the command line overrides.
    let tunnel = "[[tunnel]]\nname = \"t\"\nfrom = \"a\"\nto = \"b\"\n[[flow]]\nthrough = \"t\"\nkind = \"cubic\"";
    fs::write(&scenario, text.replace("[[flow]]\nkind = \"cubic\"", tunnel)).unwrap();
    let output = lab().arg("sim").arg(&scenario).args(["--json", "--redundancy", "every:5"]).output().unwrap();
    let lines = schema::lines(&output.stdout);
    let [near, far] = [&lines[2]["ends"][0], &lines[2]["ends"][1]];
    assert_eq!([&lines[2]["event"], &lines[2]["name"], &lines[2]["from"]], ["network_tunnel", "t", "a"]);
    let count = |key: &str| near[key].as_f64().unwrap();
    let arrived = far["received_packets"].as_u64().unwrap();
    assert!(arrived > 1_000 && count("repair") / count("source") > 0.2, "{near} {far}");
    lab().arg("sim").arg(&scenario).assert().success().stdout(contains("t at b"));
    fs::write(&scenario, text.replace("to = \"b\"", "to = \"c\"")).unwrap();
    lab().arg("sim").arg(&scenario).assert().code(2).stderr(contains("net.toml:17: link.to: there is no node"));
    fs::write(&scenario, text.replace("cubic", "bbr")).unwrap();
    lab().arg("sim").arg(&scenario).assert().code(2).stderr(contains("the simulator has no BBR"));
}
