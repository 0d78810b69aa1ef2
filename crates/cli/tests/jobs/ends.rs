//! How verbs end: stopped, cut off, or without what they need of the machine. With `--json` the last line of
//! a job that ran is its summary (docs/json.md).

use std::fs;

use serde_json::Value;

use crate::process::{Running, tidewire};
use crate::schema;

/// Asserts that the last lines are the error with this exit code, and the summary.
fn assert_ends(lines: &[Value], exit: u8, what: &str) {
    let [.., error, summary] = lines else { panic!("{what}: {lines:?}") };
    assert_eq!((&error["event"], &error["exit"]), (&"error".into(), &exit.into()), "{what}: {lines:?}");
    assert_eq!(summary["event"], "summary", "{what}: {lines:?}");
}

/// A listener of this verb, and its link.
fn listener(arguments: &[&str]) -> (Running, String) {
    let mut listener = Running::start(arguments);
    let link = listener.line()["link"].as_str().unwrap().to_owned();
    (listener, link)
}

#[test]
fn issue_40_a_bench_that_is_stopped_at_either_side_ends_with_its_summary() {
    let (mut server, link) = listener(&["bench", "-s", "--json", "--listen", "127.0.0.1:0"]);
    let client = |arguments: &[&str]| {
        let common = ["bench", "--json", "-c", &link, "-t", "60", "-b", "5mbit", "-i", "100ms"];
        let mut client = Running::start(&[&common, arguments].concat());
        let bytes = client.wait_for("interval")["bytes"].as_u64().unwrap();
        (client, bytes)
    };
    for direction in [&[][..], &["-R"][..]] {
        let (client, bytes) = client(direction);
        client.interrupt();
        let (code, lines) = client.end();
        assert_eq!(code, Some(130), "{lines:?}");
        assert_ends(&lines, 130, "the client");
        assert!(lines.last().unwrap()["bytes"].as_u64().unwrap() >= bytes, "{lines:?}");
        // A server that sends notices that it was cut off; one that receives sees its streams end.
        if direction == ["-R"] {
            let error = server.wait_for("error");
            assert_ends(&[error, server.line()], 3, "the server");
        } else {
            server.wait_for("summary");
        }
    }
    let (client, _) = client(&[]);
    server.interrupt();
    let (code, lines) = server.end();
    // Ctrl-C needs no error, since the exit code tells it.
    assert_eq!((code, &lines.last().unwrap()["event"]), (Some(130), &"summary".into()), "{lines:?}");
    let (code, lines) = client.end();
    assert_eq!(code, Some(3), "{lines:?}");
    assert_ends(&lines, 3, "the client whose server was stopped");
}

#[test]
fn issue_40_a_probe_that_is_stopped_ends_with_its_summary() {
    let (_server, link) = listener(&["bench", "-s", "--json", "--listen", "127.0.0.1:0"]);
    let mut probe = Running::start(&["probe", "--json", "--time", "60s", &link]);
    probe.wait_for("probing");
    probe.interrupt();
    let (code, lines) = probe.end();
    assert_eq!(code, Some(130), "{lines:?}");
    assert_ends(&lines, 130, "the probe");
}

#[test]
fn issue_40_a_transfer_that_is_stopped_ends_with_its_summary_at_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let (file, into) = (folder.path().join("f"), folder.path().join("into"));
    fs::create_dir(&into).unwrap();
    fs::write(&file, vec![b'x'; 9_000_000]).unwrap();
    let listen = ["receive", "--json", "--listen", "127.0.0.1:0", "--dir", into.to_str().unwrap()];
    let (receiver, link) = listener(&listen);
    let send = || Running::spawn(tidewire(&["send", "--json", "--max-rate", "5mbit"]).arg(&file).arg(&link));
    let mut sender = send();
    sender.wait_for("progress");
    sender.interrupt();
    let (code, lines) = sender.end();
    assert_eq!(code, Some(130), "{lines:?}");
    assert_ends(&lines, 130, "the sender");
    let mut sender = send();
    sender.wait_for("progress");
    receiver.interrupt();
    let (code, lines) = receiver.end();
    assert_eq!(code, Some(130), "{lines:?}");
    assert_ends(&lines, 130, "the receiver");
    let (code, lines) = sender.end();
    assert_eq!(code, Some(5), "{lines:?}");
    assert_ends(&lines, 5, "the sender whose receiver was stopped");
}

#[test]
fn issue_40_a_demo_that_is_stopped_ends_with_its_summary() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("demo.svg");
    let mut demo = Running::spawn(tidewire(&["demo", "--json", "--senders", "2", "--svg"]).arg(&svg));
    demo.wait_for("shares");
    demo.interrupt();
    let (code, lines) = demo.end();
    assert_eq!(code, Some(130), "{lines:?}");
    assert_ends(&lines, 130, "the demo");
}

#[test]
fn issue_40_a_program_that_gets_no_threads_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for verb in ["receive", "send"] {
        let mut command = tidewire(&[verb, "--json"]);
        // No thread gets a stack of 2^60 bytes.
        command.env("RUST_MIN_STACK", (1_u64 << 60).to_string());
        match verb {
            "receive" => command.args(["--listen", "127.0.0.1:0", "--dir"]).arg(folder.path()),
            _ => command.arg(folder.path()).arg("tidewire://127.0.0.1:9/#tws1aaaaaaaaaaaaaaaa"),
        };
        let ended = command.output().unwrap();
        let (lines, errors) = (schema::lines(&ended.stdout), String::from_utf8_lossy(&ended.stderr).into_owned());
        assert_eq!(ended.status.code(), Some(1), "{verb}: {lines:?} {errors}");
        assert!(lines.last().unwrap()["message"].as_str().unwrap().contains("ulimit -u"), "{verb}: {lines:?}");
        assert!(!errors.contains("panicked"), "{verb}: {errors}");
    }
}

#[test]
fn issue_40_a_program_that_gets_too_little_memory_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let receive = tidewire(&["receive", "--json", "--listen", "127.0.0.1:0", "--dir"]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -v 65536; exec \"$@\"", "sh"]).arg(receive.get_program()).args(receive.get_args());
    let ended = command.arg(folder.path()).env("TIDEWIRE_CONFIG", "/dev/null").output().unwrap();
    let lines = schema::lines(&ended.stdout);
    assert_eq!(ended.status.code(), Some(1), "{lines:?}");
    assert!(lines.last().unwrap()["message"].as_str().unwrap().contains("ulimit -v"), "{lines:?}");
}

/// A full disk below a redirection: what was printed is lost, which is no success.
#[cfg(target_os = "linux")]
#[test]
fn issue_40_output_that_is_lost_is_said_and_is_no_success() {
    for arguments in [&["keygen"][..], &["config", "show", "bench"], &["completions", "bash"], &["man"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = tidewire(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{arguments:?}: {said}");
        assert!(said.contains("cannot write to the standard output"), "{arguments:?}: {said}");
    }
    // A reader that goes away has seen enough.
    let mut man = tidewire(&["man"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(man.stdout.take());
    assert_eq!(man.wait().unwrap().code(), Some(0));
}

/// The events of a job as well.
#[cfg(target_os = "linux")]
#[test]
fn issue_40_a_job_whose_events_are_lost_is_no_success() {
    let (_server, link) = listener(&["bench", "-s", "--json", "--listen", "127.0.0.1:0"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = tidewire(&["bench", "--json", "-c", &link, "-t", "300ms"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
}
