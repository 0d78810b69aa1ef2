//! Runs the examples of the guide for embedders as a user runs them. `cargo test` builds them unless it is
//! told to build something else.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The command that runs an example.
fn example(name: &str) -> Command {
    let tests = std::env::current_exe().expect("the test has a path");
    let path: PathBuf = tests.ancestors().nth(2).expect("a folder of the profile").join("examples").join(name);
    assert!(path.exists(), "the example `{name}` is not built: `cargo build -p tidewire --examples`");
    Command::new(path)
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_client_gets_the_answer_of_the_server() {
    let (mut server, mut client) = (example("server"), example("client"));
    let mut server = server.stdout(Stdio::piped()).spawn().expect("the server starts");
    let mut said = BufReader::new(server.stdout.take().expect("stdout is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("the server says where it is");
    let answer = client.args(line.split_whitespace()).arg("hello").output().expect("the client starts");
    assert_eq!(text(&answer), "HELLO\n");
    assert!(server.wait().expect("the server ends").success());
    let mut end = String::new();
    said.read_to_string(&mut end).expect("the server says how it ended");
    assert!(end.contains("thank you"), "{end}");
}

#[test]
fn frames_arrive_in_time_over_loopback() {
    let mut messages = example("messages");
    let said = text(&messages.output().expect("it starts"));
    let frames: u32 = said.split_whitespace().next().and_then(|word| word.parse().ok()).expect(&said);
    assert!((25..=30).contains(&frames), "{said}");
}

#[test]
fn a_listed_key_gets_in_and_a_stranger_does_not() {
    let mut key_pair = example("key_pair");
    let said = text(&key_pair.output().expect("it starts"));
    assert!(said.contains("the server knows its client: twp1") && said.contains("a stranger: "), "{said}");
}

#[test]
fn a_policy_and_a_controller_from_outside_carry_a_stream() {
    let mut custom = example("custom");
    text(&custom.output().expect("it starts"));
}
